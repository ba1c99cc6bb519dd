//! `make bench-index`: cost of one event for the fleet index while hundreds of user clusters share
//! a namespace of thousands of VMs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, FactKey, InventoryEvent, Labels, Phase, Selector, UserCluster, Vmi},
    index::FleetIndex,
};
use virtfleet_wire::ids::VmKey;

/// Measure the cost of one event for the fleet index.
#[derive(Debug, Parser)]
struct Arguments {
    /// User clusters in the namespace.
    #[arg(long, default_value_t = 500)]
    clusters: usize,
    /// VMs in the namespace.
    #[arg(long, default_value_t = 10_000)]
    vms: usize,
    /// Events of each kind.
    #[arg(long, default_value_t = 50)]
    events: usize,
}

fn labels(cluster: usize) -> Labels {
    let id = format!("c-{cluster}");
    [("role".to_owned(), "worker".to_owned()), ("id".to_owned(), id)]
        .into_iter()
        .collect()
}

fn cluster(number: usize, selects: usize) -> Result<Fact> {
    Ok(Fact::UserCluster(UserCluster {
        name: format!("c-{number}").parse()?,
        namespace: "shared".parse()?,
        selector: Selector {
            match_labels: labels(selects),
            match_expressions: Vec::new(),
        },
        labels: Labels::new(),
        suspend: false,
        relay: None,
        node_authorities: None,
        node_conditions: std::collections::BTreeSet::new(),
    }))
}

fn vmi(number: usize, clusters: usize, host: &str) -> Result<Fact> {
    Ok(Fact::Vmi(Box::new(Vmi {
        uid: Some(format!("uid-{number}").parse()?),
        labels: labels(number % clusters),
        has_status: true,
        phase: Phase::Running,
        node: Some(host.parse()?),
        ..Vmi::new(VmKey {
            namespace: "shared".parse()?,
            name: format!("vm-{number}").parse()?,
        })
    })))
}

/// The median and the longest time of the events.
fn measure(index: &mut FleetIndex, events: Vec<InventoryEvent>) -> Result<(Duration, Duration)> {
    let mut times = Vec::new();
    for event in events {
        let begun = Instant::now();
        index.apply(event);
        times.push(begun.elapsed());
    }
    times.sort();
    let longest = *times.last().context("no events")?;
    Ok((times[times.len() / 2], longest))
}

fn main() -> Result<()> {
    let Arguments {
        clusters,
        vms,
        events,
    } = Arguments::parse();
    let mut index = FleetIndex::new(DialRules::default());
    let begun = Instant::now();
    for number in 0..vms {
        index.apply(InventoryEvent::Apply(vmi(number, clusters, "host-1")?));
    }
    for number in 0..clusters {
        index.apply(InventoryEvent::Apply(cluster(number, number)?));
    }
    index.apply(InventoryEvent::Synced);
    println!(
        "{clusters} user clusters and {vms} VMs in one namespace: loaded in {:.0?}",
        begun.elapsed()
    );
    let apply = |facts: Result<Vec<Fact>>| -> Result<Vec<InventoryEvent>> {
        Ok(facts?.into_iter().map(InventoryEvent::Apply).collect())
    };
    let all = 0..events.min(clusters);
    let gone = all.clone().map(|number| {
        Ok(InventoryEvent::Delete(FactKey::UserCluster(
            format!("c-{number}").parse()?,
        )))
    });
    let kinds = [
        (
            "a VM moves",
            apply(all.clone().map(|n| vmi(n, clusters, "host-2")).collect())?,
        ),
        (
            "a user cluster selects another's VMs",
            apply(all.clone().map(|n| cluster(n, n + 1)).collect())?,
        ),
        (
            "and its own again",
            apply(all.clone().map(|n| cluster(n, n)).collect())?,
        ),
        ("a user cluster goes", gone.collect::<Result<_>>()?),
        (
            "a user cluster comes",
            apply(all.map(|n| cluster(n, n)).collect())?,
        ),
    ];
    for (name, events) in kinds {
        let (median, longest) = measure(&mut index, events)?;
        println!("{name:40} median {median:>10.1?}   longest {longest:>10.1?}");
    }
    Ok(())
}
