//! `make bench-health`: cost of the verdict of all VMs of a fleet, and of the memory of one VM.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, InfraNode, InventoryEvent, Labels, Phase, Selector, UserCluster, UserNode, Vm, Vmi},
    fleet_status::FleetStatus,
    health::HealthVerdict,
    index::FleetIndex,
    pull_result::{Answer, MetricsSummary, PullResult},
    report::KeptReport,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};
use virtfleet_wire::ids::VmKey;

/// Measure the cost of the verdict.
#[derive(Debug, Parser)]
struct Arguments {
    /// VMs of the fleet.
    #[arg(long, default_value_t = 10_000)]
    vms: usize,
    /// VMs on one infra node.
    #[arg(long, default_value_t = 50)]
    vms_per_host: usize,
    /// Measurements.
    #[arg(long, default_value_t = 9)]
    runs: usize,
}

/// The time of all facts, in milliseconds since 1970.
const NOW_MS: u64 = 1_800_000_000_000;
const REPORT: &str = r#"{
  "apiVersion": "report.virtfleet.io/v1", "kind": "GuestReport", "bootId": "b",
  "clock": { "realtimeNs": 1800000000000000000 },
  "sections": {
    "storage": { "status": "ok", "items": [] },
    "dns": { "status": "ok", "items": [{ "state": "verified" }] },
    "virtio": { "status": "ok", "items": [] }
  }
}"#;

/// Conditions of a Node that is ready.
const READY_NODE: [(&str, ReportedStatus); 4] = [
    ("Ready", ReportedStatus::True),
    ("MemoryPressure", ReportedStatus::False),
    ("DiskPressure", ReportedStatus::False),
    ("PIDPressure", ReportedStatus::False),
];

/// Conditions as KubeVirt and Kubernetes write them on healthy objects.
fn conditions(all: &[(&str, ReportedStatus)]) -> ReportedConditions {
    let all = all.iter();
    ReportedConditions::new(
        all.map(|(kind, status)| ReportedCondition::new(kind, *status, Some("Reason"), None)),
    )
}

fn key(number: usize) -> Result<VmKey> {
    Ok(VmKey {
        namespace: "prod".parse()?,
        name: format!("vm-{number}").parse()?,
    })
}

fn host(number: usize) -> Result<Fact> {
    Ok(Fact::InfraNode(InfraNode {
        name: format!("host-{number}").parse()?,
        uid: None,
        labels: Labels::new(),
        ready: Some(true),
        conditions: conditions(&READY_NODE),
        unschedulable: false,
        taints: Vec::new(),
    }))
}

fn facts(number: usize, host: usize) -> Result<[Fact; 3]> {
    let vmi = Vmi {
        key: key(number)?,
        uid: Some(format!("uid-{number}").parse()?),
        owner: None,
        labels: Labels::new(),
        firmware_uuid: None,
        hostname: None,
        has_status: true,
        phase: Phase::Running,
        node: Some(format!("host-{host}").parse()?),
        interfaces: Vec::new(),
        guest_os: None,
        paused: false,
        migration: None,
        deleting: false,
        conditions: conditions(&[
            ("Ready", ReportedStatus::True),
            ("LiveMigratable", ReportedStatus::True),
            ("StorageLiveMigratable", ReportedStatus::True),
            ("AgentConnected", ReportedStatus::True),
            ("DataVolumesReady", ReportedStatus::True),
        ]),
        evacuation_node: None,
    };
    let vm = Vm {
        key: key(number)?,
        uid: None,
        labels: Labels::new(),
        printable_status: Some("Running".to_owned()),
        conditions: conditions(&[("Ready", ReportedStatus::True)]),
    };
    let node = UserNode {
        cluster: "blue".parse()?,
        name: format!("vm-{number}").parse()?,
        uid: None,
        labels: Labels::new(),
        provider_id: None,
        system_uuid: None,
        ready: Some(true),
        conditions: conditions(&READY_NODE),
        unschedulable: false,
        owned: None,
        kubelet_labels: std::collections::BTreeSet::new(),
        resource_version: None,
    };
    Ok([Fact::Vmi(Box::new(vmi)), Fact::Vm(vm), Fact::UserNode(node)])
}

fn pull(number: usize) -> Result<PullResult> {
    Ok(PullResult {
        vm: key(number)?,
        at: NOW_MS,
        address: None,
        pushed: false,
        outcome: Ok(Answer {
            report: Box::new(KeptReport::read(REPORT.as_bytes())?),
            metrics: MetricsSummary::default(),
            took_ms: 10,
            slow: false,
            certificate: None,
        }),
    })
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .context("no VmRSS in /proc/self/status")?
        .parse()
        .context("VmRSS is no number")
}

fn main() -> Result<()> {
    let Arguments {
        vms,
        vms_per_host,
        runs,
    } = Arguments::parse();
    let before = resident_kib()?;
    let mut index = FleetIndex::new(DialRules::default());
    index.set_time(String::new(), NOW_MS);
    index.apply(InventoryEvent::Init);
    index.apply(InventoryEvent::Apply(Fact::UserCluster(UserCluster {
        name: "blue".parse()?,
        namespace: "prod".parse()?,
        selector: Selector::default(),
        labels: Labels::new(),
        suspend: false,
        relay: None,
        node_authorities: None,
    })));
    for number in 0..vms.div_ceil(vms_per_host) {
        index.apply(InventoryEvent::Apply(host(number)?));
    }
    for number in 0..vms {
        for fact in facts(number, number / vms_per_host)? {
            index.apply(InventoryEvent::Apply(fact));
        }
        index.record_pull(pull(number)?);
    }
    index.apply(InventoryEvent::Synced);
    let status = FleetStatus::of(&index.snapshot());
    anyhow::ensure!(
        status.verdict == HealthVerdict::Healthy,
        "the fleet is not healthy: {:?}",
        status.counts
    );
    println!(
        "{vms} VMs: {} KiB of memory per VM, all facts together",
        resident_kib()?.saturating_sub(before) / vms.max(1) as u64
    );
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..runs.max(1) {
        let begun = Instant::now();
        anyhow::ensure!(index.recompute_health() == vms, "not all VMs were recomputed");
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "all verdicts recomputed: median {:.1?}, longest {:.1?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    let begun = Instant::now();
    index.settle();
    println!("settle without changes: {:.1?}", begun.elapsed());
    Ok(())
}
