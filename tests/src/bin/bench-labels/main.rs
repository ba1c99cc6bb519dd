//! Latency of labels, requests in a steady fleet and memory with a large fleet, on real API
//! servers: `make bench-labels`.
//!
//! The baseline, measured in the same run, is a patch of a Node by this program until the watch
//! delivers it. A label takes at least two of these steps: one for the VMI, one for the Node.

mod fleet;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use fleet::{Fleet, NEW_KEY, RACK_KEY};
use serde_json::json;
use virtfleet_tests::{
    cluster::{ApiServer, Change, Follow, live::Collector},
    measure::{Table, usage},
    wait,
};

/// Measure labels on real API servers.
#[derive(Debug, Parser)]
#[command(name = "bench-labels")]
struct Arguments {
    /// VMs, each with a Node in a user cluster.
    #[arg(long, default_value_t = 2000)]
    vmis: usize,
    /// Infra nodes.
    #[arg(long, default_value_t = 100)]
    hosts: usize,
    /// User clusters, each an API server.
    #[arg(long, default_value_t = 2)]
    clusters: usize,
    /// Moves, each of one VM.
    #[arg(long, default_value_t = 600)]
    moves: usize,
    /// Moves per second.
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// Infra nodes whose rack changes, one after the other.
    #[arg(long, default_value_t = 20)]
    relabels: usize,
    /// Seconds of the measurement without changes.
    #[arg(long, default_value_t = 60)]
    steady: u64,
    /// Seconds between two pulls of an agent, none of which answers.
    #[arg(long, default_value_t = 30)]
    interval: u64,
    /// Seconds without a write after which the writers have finished.
    #[arg(long, default_value_t = 15)]
    quiet: u64,
    /// VMs and Nodes of the large fleet for the memory measurement, on a tenth as many infra nodes;
    /// 0 skips it.
    #[arg(long, default_value_t = 10_000)]
    large: usize,
}

/// Timeout of the first reconciliation of a fleet of thousands on a busy machine.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(5);
const MIB: f64 = 1024.0 * 1024.0;

/// The quantile `share` of sorted durations.
fn quantile(sorted: &[Duration], share: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of a short list"
    )]
    let at = (share * sorted.len() as f64) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

fn millis(of: Duration) -> String {
    format!("{:.0} ms", of.as_secs_f64() * 1e3)
}

/// Nodes that wait for a value of a label, with the start time of each.
struct Expected<'a> {
    follows: &'a [Follow],
    key: &'a str,
    open: BTreeMap<String, (String, Instant)>,
    took: Vec<Duration>,
}

impl<'a> Expected<'a> {
    fn new(follows: &'a [Follow], key: &'a str) -> Self {
        Self {
            follows,
            key,
            open: BTreeMap::new(),
            took: Vec::new(),
        }
    }

    fn expect(&mut self, node: String, value: String, since: Instant) {
        self.open.insert(node, (value, since));
    }

    fn take(&mut self, change: &Change) {
        let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
        let value = change.object["metadata"]["labels"][self.key].as_str();
        if let Some((wanted, since)) = self.open.get(name)
            && value == Some(wanted)
        {
            self.took.push(change.at.saturating_duration_since(*since));
            self.open.remove(name);
        }
    }

    /// Reads the pending changes without waiting.
    fn drain(&mut self) -> Result<()> {
        for follow in self.follows {
            while let Some(change) = follow.next(Duration::ZERO)? {
                self.take(&change);
            }
        }
        Ok(())
    }

    /// Waits until every Node has its value; returns all durations, sorted.
    fn finish(mut self, what: &str) -> Result<Vec<Duration>> {
        wait::eventually(RECONCILE_TIMEOUT, what, || {
            self.drain()?;
            ensure!(
                self.open.is_empty(),
                "{} of {} are left",
                self.open.len(),
                self.open.len() + self.took.len()
            );
            Ok(())
        })?;
        self.took.sort_unstable();
        Ok(self.took)
    }
}

/// Durations of a direct patch of a Node until the watch delivers it.
fn bare(fleet: &Fleet, follows: &[Follow], rounds: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for round in 0..rounds {
        let vm = round % fleet.vmis;
        let mut expected = Expected::new(follows, "bench.example.com/bare");
        let value = format!("v{round}");
        expected.expect(fleet::name(vm), value.clone(), Instant::now());
        fleet.label_node(vm, "bench.example.com/bare", &value)?;
        took.extend(expected.finish("our own patch")?);
    }
    took.sort_unstable();
    Ok(took)
}

fn speed(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut fleet = Fleet::create(
        folder.path(),
        arguments.vmis,
        arguments.hosts,
        arguments.clusters,
        false,
    )?;
    let follows = fleet.follow()?;
    let mut first = Expected::new(&follows, RACK_KEY);
    let begun = Instant::now();
    for vm in 0..fleet.vmis {
        first.expect(fleet::name(vm), fleet.rack_of(vm), begun);
    }
    let collector = fleet.collector(&folder.path().join("collector"), arguments.interval)?;
    let took = first.finish("the first labels")?;
    table.row(&[
        &format!("start of the collector to {} Nodes labelled", arguments.vmis),
        "",
        &millis(quantile(&took, 1.0)),
        "",
    ]);

    let peer = bare(&fleet, &follows, 200)?;
    let mut moved = Expected::new(&follows, RACK_KEY);
    let pause = Duration::from_secs(1) / arguments.rate;
    for number in 0..arguments.moves {
        // No VM moves twice before all have moved: a second move would wait for the first.
        let vm = (number * 7) % fleet.vmis;
        let (at, value) = fleet.move_on(vm)?;
        moved.expect(fleet::name(vm), value, at);
        moved.drain()?;
        wait::measure(pause.saturating_sub(at.elapsed()), || Ok(()))?;
    }
    let moved = moved.finish("labels after moves")?;
    let ratio = |times: &[Duration], share| {
        format!(
            "{:.1}",
            quantile(times, share).as_secs_f64() / quantile(&peer, share).as_secs_f64()
        )
    };
    for (what, share) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
        table.row(&[
            &format!("a move to its label, {what} of {}", moved.len()),
            "p99 <= 1 s",
            &millis(quantile(&moved, share)),
            &ratio(&moved, share),
        ]);
        table.row(&[
            &format!("  bare patch to its watch event, {what} of {}", peer.len()),
            "",
            &millis(quantile(&peer, share)),
            "1",
        ]);
    }

    let mut relabelled = Vec::new();
    for host in 0..arguments.relabels.min(arguments.hosts) {
        let mut expected = Expected::new(&follows, RACK_KEY);
        let (at, value) = fleet.relabel(host)?;
        for vm in fleet.on(host) {
            expected.expect(fleet::name(vm), value.clone(), at);
        }
        relabelled.extend(expected.finish("labels after a relabel")?.pop());
    }
    relabelled.sort_unstable();
    table.row(&[
        &format!(
            "a host's relabel to all its VMs (confirmChange: 0s), longest of {}",
            relabelled.len()
        ),
        "<= 1 s",
        &millis(quantile(&relabelled, 1.0)),
        &ratio(&relabelled, 1.0),
    ]);

    let mut edited = Expected::new(&follows, NEW_KEY);
    let at = Instant::now();
    fleet.edit_policy()?;
    for vm in 0..fleet.vmis {
        edited.expect(fleet::name(vm), "yes".to_owned(), at);
    }
    let edited = edited.finish("labels after an edit of the policy")?;
    table.row(&[
        "a policy's edit to the whole fleet",
        "<= 10 s",
        &millis(quantile(&edited, 1.0)),
        &ratio(&edited, 1.0),
    ]);
    settle(&fleet, Duration::from_secs(arguments.quiet), table)?;
    steady(&fleet, arguments.steady, table)?;
    resident(&collector, "resident, this fleet", "", table)
}

/// Requests to the API servers within `time`, counted by kind.
fn asked(fleet: &Fleet, time: Duration) -> Result<BTreeMap<String, usize>> {
    let marks = fleet.servers().map(ApiServer::audit_mark);
    let marks = marks.collect::<Result<Vec<_>>>()?;
    wait::measure(time, || Ok(()))?;
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for (server, mark) in fleet.servers().zip(marks) {
        for entry in server.audit_since(mark)? {
            *asked
                .entry(format!("{} {}", entry.verb, entry.resource))
                .or_default() += 1;
        }
    }
    Ok(asked)
}

/// Waits until the collector has finished the writes that follow from all changes. It writes
/// GuestHealth at a separate rate: twice for a VM that is new to it, and once more after the first
/// pull, which fails for all agents here.
fn settle(fleet: &Fleet, quiet: Duration, table: &mut Table) -> Result<()> {
    let begun = Instant::now();
    let mut written = 0;
    wait::eventually(RECONCILE_TIMEOUT, "the writers rest", || {
        let asked = asked(fleet, quiet)?;
        let changes = asked.iter().filter(|(what, _)| !what.ends_with(" leases"));
        let changes: usize = changes
            .filter(|(what, _)| {
                ["create ", "patch ", "update ", "delete "]
                    .iter()
                    .any(|verb| what.starts_with(verb))
            })
            .map(|(_, count)| count)
            .sum();
        written += changes;
        ensure!(changes == 0, "{changes} changes in {quiet:?}");
        let silent = fleet.silent()?;
        ensure!(
            silent == fleet.vmis,
            "{silent} of {} agents are said to be silent",
            fleet.vmis
        );
        Ok(())
    })?;
    table.row(&[
        &format!("the policy's edit to the last write of any kind ({written} until then)"),
        "",
        &format!("{} s", begun.elapsed().saturating_sub(quiet).as_secs()),
        "",
    ]);
    Ok(())
}

/// Requests to the API servers while nothing changes.
fn steady(fleet: &Fleet, seconds: u64, table: &mut Table) -> Result<()> {
    let asked = asked(fleet, Duration::from_secs(seconds))?;
    let text: Vec<_> = asked
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    table.row(&[
        &format!("requests in {seconds} steady seconds"),
        "watches, Lease",
        &text.join(", "),
        "",
    ]);
    Ok(())
}

fn resident(collector: &Collector, what: &str, goal: &str, table: &mut Table) -> Result<()> {
    let id = collector.process.id();
    table.row(&[
        &format!("{what} (most ever)"),
        goal,
        &format!(
            "{:.0} MiB ({:.0})",
            usage::resident(id)? as f64 / MIB,
            usage::peak(id)? as f64 / MIB
        ),
        "",
    ]);
    Ok(())
}

fn weight(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let vmis = arguments.large;
    let folder = tempfile::tempdir()?;
    let fleet = Fleet::create(folder.path(), vmis, vmis / 10, 1, true)?;
    let follows = fleet.follow()?;
    let mut first = Expected::new(&follows, RACK_KEY);
    let begun = Instant::now();
    for vm in 0..fleet.vmis {
        first.expect(fleet::name(vm), fleet.rack_of(vm), begun);
    }
    let collector = fleet.collector(&folder.path().join("collector"), arguments.interval)?;
    first.finish("the first labels of the large fleet")?;
    wait::measure(Duration::from_secs(30), || Ok(()))?;
    let what = format!("resident, {vmis} VMIs and Nodes, {} hosts", vmis / 10);
    resident(&collector, &what, "<= 150 MiB", table)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.vmis >= arguments.moves, "at most one move a VM");
    let mut table = Table::new(&["figure", "goal", "measured", "x bare"]);
    speed(&arguments, &mut table).context("speed")?;
    if arguments.large > 0 {
        weight(&arguments, &mut table).context("weight")?;
    }
    print!("{}", table.render());
    // Used to compare runs.
    println!(
        "{}",
        json!({ "vmis": arguments.vmis, "hosts": arguments.hosts, "clusters": arguments.clusters })
    );
    Ok(())
}
