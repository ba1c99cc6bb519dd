//! `make bench-health`: cost of the verdict of all VMs of a fleet, and of the memory of one VM.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use virtfleet_collector_core::{
    dial::DialRules,
    enrolment::{CertificateLife, EnrolmentRecord, EnrolmentRecords, EnrolmentState, KeyFingerprint},
    facts::{Fact, InfraNode, InventoryEvent, Labels, Phase, Selector, UserCluster, UserNode, Vm, Vmi},
    fleet_status::FleetStatus,
    health::HealthVerdict,
    index::FleetIndex,
    pull_result::{Answer, MetricsSummary, PeerCertificateState, PullResult},
    queue_traffic::{GuestQueue, QueueDirection, QueueTotals},
    report::KeptReport,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    usage::{CpuCounters, UsageCounters},
    vmi_spec::{CpuSpec, CpuTopology, DiskBus, DiskSpec, InterfaceSpec, MemorySpec, VmiSpec},
};
use virtfleet_tests::measure::allocation::{self, Counting};
use virtfleet_wire::ids::{Uuid, VmKey};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
/// End of all certificates, in seconds since 1970.
const CERTIFICATE_ENDS: u64 = NOW_MS / 1_000 + 86_400;
/// Shards of the records of enrolments, as in a cluster.
const RECORD_SHARDS: usize = 64;
const REPORT: &str = r#"{
  "apiVersion": "report.virtfleet.io/v1", "kind": "GuestReport", "bootId": "b",
  "clock": { "realtimeNs": 1800000000000000000 },
  "sections": {
    "storage": { "status": "ok", "items": [] },
    "dns": { "status": "ok", "items": [{ "state": "verified" }] },
    "system": { "status": "ok", "items": [{ "cpusOnline": 4, "memoryTotalBytes": 8300000000 }] },
    "hardware": { "status": "ok", "items": [{
      "cpusOnline": 4, "cpusPresent": 4, "sockets": 1, "coresPerSocket": 4, "threadsPerCore": 1,
      "cpuModel": "Intel Xeon Processor (Skylake)", "cpuFlags": "fpu avx avx2 vmx pcid", "tpm": false
    }] },
    "disks": { "status": "ok", "items": [
      { "name": "vda", "sizeBytes": 26843545600 }, { "name": "vdb", "sizeBytes": 53687091200 },
      { "name": "vdc", "sizeBytes": 1048576 }
    ] },
    "nics": { "status": "ok", "items": [
      { "name": "eth0", "mac": "02:00:00:00:00:01", "driver": "virtio_net", "channelsPossible": 4 }
    ] },
    "virtio": { "status": "ok", "items": [
      { "kind": "device", "type": "net" }, { "kind": "device", "type": "balloon" },
      { "kind": "disk", "name": "vda", "behind": "virtio-blk", "queues": 4, "writeCache": "back" },
      { "kind": "disk", "name": "vdb", "behind": "virtio-blk", "queues": 4, "writeCache": "back" },
      { "kind": "disk", "name": "vdc", "behind": "virtio-blk", "queues": 4, "writeCache": "back" }
    ] }
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
        reported_ms: None,
        unschedulable: false,
        taints: Vec::new(),
        allocatable: None,
    }))
}

/// A worker of KKP: two disks without serial, one interface.
fn spec(number: usize) -> Result<VmiSpec> {
    let disk = |name: String| DiskSpec {
        name: name.into(),
        serial: None,
        bus: Some(DiskBus::Virtio),
        is_cdrom: false,
        cache: None,
        io: None,
        has_io_thread: false,
        bytes: None,
        is_pending: false,
    };
    let topology = CpuTopology {
        sockets: 1,
        cores: 4,
        threads: 1,
    };
    Ok(VmiSpec {
        cpu: CpuSpec {
            topology: Some((topology, "spec.domain.cpu")),
            model: Some("host-model".into()),
            ..CpuSpec::default()
        },
        memory: Some(MemorySpec {
            bytes: 8 << 30,
            field: "spec.domain.memory.guest",
            current_bytes: Some(8 << 30),
        }),
        disks: [
            disk(format!("vm-{number}")),
            disk(format!("vm-{number}-secondarydisk0")),
            disk("cloudinitdisk".to_owned()),
        ]
        .into(),
        interfaces: [InterfaceSpec {
            name: "default".into(),
            model: None,
            mac: Some("02:00:00:00:00:01".parse()?),
            is_tap: true,
        }]
        .into(),
        network_multi_queue: true,
        block_multi_queue: true,
        ..VmiSpec::default()
    })
}

fn facts(number: usize, host: usize) -> Result<[Fact; 3]> {
    let vmi = Vmi {
        uid: Some(format!("uid-{number}").parse()?),
        firmware_uuid: Some(Uuid::from_u128(number as u128 + 1)),
        has_status: true,
        phase: Phase::Running,
        node: Some(format!("host-{host}").parse()?),
        conditions: conditions(&[
            ("Ready", ReportedStatus::True),
            ("LiveMigratable", ReportedStatus::True),
            ("StorageLiveMigratable", ReportedStatus::True),
            ("AgentConnected", ReportedStatus::True),
            ("DataVolumesReady", ReportedStatus::True),
        ]),
        spec: Some(spec(number)?.into()),
        ..Vmi::new(key(number)?)
    };
    let vm = Vm {
        printable_status: Some("Running".to_owned()),
        conditions: conditions(&[("Ready", ReportedStatus::True)]),
        ..Vm::new(key(number)?)
    };
    let node = UserNode {
        system_uuid: Some(Uuid::from_u128(number as u128 + 1)),
        ready: Some(true),
        conditions: conditions(&READY_NODE),
        ..UserNode::new("blue".parse()?, format!("vm-{number}").parse()?)
    };
    Ok([Fact::Vmi(Box::new(vmi)), Fact::Vm(vm), Fact::UserNode(node)])
}

/// Pairs of queues of a VM's network interface.
const QUEUE_PAIRS: u16 = 4;

/// Counters of all queues at a time in seconds.
fn queues(seconds: u32) -> Box<[QueueTotals]> {
    let numbers = (0..QUEUE_PAIRS).flat_map(|queue| {
        [QueueDirection::Receive, QueueDirection::Transmit].map(|direction| QueueTotals {
            queue: GuestQueue {
                nic: "eth0".into(),
                queue,
                direction,
            },
            packets: u64::from(seconds) * 100,
            bytes: u64::from(seconds) * 90_000,
        })
    });
    numbers.collect()
}

/// CPU time and pressure at a time in seconds: half of 4 CPUs is used.
fn counters(seconds: u32) -> UsageCounters {
    UsageCounters {
        cpu: Some(CpuCounters {
            total_ms: seconds * 4_000,
            idle_ms: seconds * 2_000,
            steal_ms: seconds * 4,
        }),
        cpu_waiting_ms: Some(seconds),
        memory_waiting_ms: Some(seconds),
        io_waiting_ms: Some(seconds),
    }
}

/// The answer of an agent, so many seconds after the first one.
fn pull(number: usize, seconds: u32) -> Result<PullResult> {
    let at = NOW_MS + u64::from(seconds) * 1_000;
    // The guest's clock is right.
    let report = REPORT.replace(&NOW_MS.to_string(), &at.to_string());
    Ok(PullResult {
        vm: key(number)?,
        at,
        address: None,
        pushed: false,
        outcome: Ok(Answer {
            report: Box::new(KeptReport::read(report.as_bytes())?),
            metrics: MetricsSummary {
                cpus: 4,
                ..MetricsSummary::default()
            },
            counters: counters(seconds),
            queues: queues(seconds),
            took_ms: 10,
            slow: false,
            certificate: Some(PeerCertificateState {
                life: CertificateLife {
                    not_before: NOW_MS / 1_000,
                    not_after: CERTIFICATE_ENDS,
                },
                renewal: None,
            }),
        }),
    })
}

/// The record of a VM that is enrolled.
fn enrolled(number: usize) -> Result<EnrolmentRecord> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Ok(EnrolmentRecord {
        uid: format!("uid-{number}").parse()?,
        key_sha256: Some(KeyFingerprint::from_bytes(key)),
        serial: Some(format!("{number:040x}")),
        not_after: CERTIFICATE_ENDS,
        enrolled_at: NOW_MS / 1_000,
        state: EnrolmentState::Enrolled,
    })
}

fn main() -> Result<()> {
    let Arguments {
        vms,
        vms_per_host,
        runs,
    } = Arguments::parse();
    let before = allocation::held();
    let mut records = EnrolmentRecords::new(RECORD_SHARDS);
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
        node_conditions: std::collections::BTreeSet::new(),
    })));
    for number in 0..vms.div_ceil(vms_per_host) {
        index.apply(InventoryEvent::Apply(host(number)?));
    }
    for number in 0..vms {
        for fact in facts(number, number / vms_per_host)? {
            index.apply(InventoryEvent::Apply(fact));
        }
        // The second answer gives the use, the history and the traffic of queues.
        index.record_pull(pull(number, 0)?);
        index.record_pull(pull(number, 30)?);
        records.set(&key(number)?, Some(enrolled(number)?));
    }
    index.apply(InventoryEvent::Synced);
    let status = FleetStatus::of(&index.snapshot());
    anyhow::ensure!(
        status.verdict == HealthVerdict::Healthy,
        "the fleet is not healthy: {:?}",
        status.counts
    );
    println!(
        "{vms} VMs: {} bytes allocated per VM (all facts, answer, history, verdict, enrolment)",
        (allocation::held() - before) / vms.max(1) as u64
    );
    anyhow::ensure!(records.enrolled() == vms, "not all VMs are enrolled");
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
