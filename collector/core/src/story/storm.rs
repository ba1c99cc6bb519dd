//! `migration-storm`: many VMs move off a host, onto a host, or across the fleet in a short time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{NodeName, VmKey},
};

use crate::{findings::MIGRATION_STORM, pull_result::UnixMs};

/// Time in which migrations are counted, in milliseconds: 10 minutes.
pub const STORM_INTERVAL_MS: u64 = 600_000;
/// VMs that move off or onto one host within [`STORM_INTERVAL_MS`] for a storm. KubeVirt moves two
/// VMs off a host at a time by default, so a drain of a host with ten VMs is not one in an instant.
pub const STORM_HOST_VMS: usize = 10;
/// VMs of the whole fleet that move within [`STORM_INTERVAL_MS`] for a storm.
pub const STORM_FLEET_VMS: usize = 30;
/// Maximum starts that are remembered.
const MAX_STARTS: usize = 4096;
/// Maximum VMs that a finding names.
const MAX_NAMED_VMS: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigrationStart {
    pub(crate) at_ms: UnixMs,
    pub(crate) vm: VmKey,
    pub(crate) source: Option<NodeName>,
    pub(crate) target: Option<NodeName>,
}

/// The last starts of migrations.
#[derive(Debug, Default)]
pub(crate) struct StormWatch {
    starts: VecDeque<MigrationStart>,
}

impl StormWatch {
    /// Records a start; old ones count for nothing.
    pub(crate) fn record(&mut self, start: MigrationStart, now_ms: UnixMs) {
        if now_ms.saturating_sub(start.at_ms) > STORM_INTERVAL_MS {
            return;
        }
        if self.starts.len() >= MAX_STARTS {
            self.starts.pop_front();
        }
        self.starts.push_back(start);
    }

    /// The present findings, sorted by subject. `is_cordoned` says so of a host.
    pub(crate) fn findings(
        &mut self,
        now_ms: UnixMs,
        is_cordoned: impl Fn(&NodeName) -> bool,
    ) -> Vec<Finding> {
        self.starts
            .retain(|start| now_ms.saturating_sub(start.at_ms) <= STORM_INTERVAL_MS);
        let mut off: BTreeMap<&NodeName, BTreeSet<&VmKey>> = BTreeMap::new();
        let mut onto: BTreeMap<&NodeName, BTreeSet<&VmKey>> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for start in &self.starts {
            all.insert(&start.vm);
            for (hosts, host) in [(&mut off, &start.source), (&mut onto, &start.target)] {
                if let Some(host) = host {
                    hosts.entry(host).or_default().insert(&start.vm);
                }
            }
        }
        let mut found = Vec::new();
        if all.len() >= STORM_FLEET_VMS {
            found.push(of_fleet(&all));
        }
        let hosts: BTreeSet<&NodeName> = off.keys().chain(onto.keys()).copied().collect();
        for host in hosts {
            let (off, onto) = (off.get(host), onto.get(host));
            let most = [off, onto].into_iter().flatten().map(BTreeSet::len).max();
            if most.is_some_and(|most| most >= STORM_HOST_VMS) {
                found.push(of_host(host, off, onto, is_cordoned(host)));
            }
        }
        found
    }
}

fn names(vms: &BTreeSet<&VmKey>) -> String {
    let named: Vec<String> = vms.iter().take(MAX_NAMED_VMS).map(ToString::to_string).collect();
    match vms.len().saturating_sub(named.len()) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn of_fleet(vms: &BTreeSet<&VmKey>) -> Finding {
    let message = format!("{} VMs have begun to migrate in the last 10 minutes", vms.len());
    Finding::new(
        MIGRATION_STORM,
        Severity::Warning,
        ("Fleet", "migrations"),
        "MigrationStorm",
        message,
    )
    .with("vms", vms.len())
    .with("names", names(vms))
    .remedy(
        "list them with `virtfleetctl migrations`; if no host is drained, check the descheduler and the workload updater of KubeVirt; \
         spec.configuration.migrations.parallelMigrationsPerCluster of the KubeVirt object limits how many run at a time",
    )
}

fn of_host(
    host: &NodeName,
    off: Option<&BTreeSet<&VmKey>>,
    onto: Option<&BTreeSet<&VmKey>>,
    is_cordoned: bool,
) -> Finding {
    let count = |vms: Option<&BTreeSet<&VmKey>>| vms.map_or(0, BTreeSet::len);
    let (leaving, arriving) = (count(off), count(onto));
    let drained = is_cordoned && leaving >= arriving;
    let message = match (leaving >= STORM_HOST_VMS, arriving >= STORM_HOST_VMS) {
        (true, true) => format!("{leaving} VMs leave {host} and {arriving} VMs move to it within 10 minutes"),
        (true, false) => format!("{leaving} VMs leave {host} within 10 minutes"),
        _ => format!("{arriving} VMs move to {host} within 10 minutes"),
    };
    let (severity, why) = if drained {
        (Severity::Info, "; it is cordoned, so this is probably a drain")
    } else {
        (Severity::Warning, "")
    };
    let remedy = if drained {
        format!(
            "nothing, if the drain is intended: `virtfleetctl migrations --host {host}` shows what the guests feel; \
             spec.configuration.migrations.parallelOutboundMigrationsPerNode of the KubeVirt object limits how many leave at a time"
        )
    } else {
        format!(
            "`virtfleetctl migrations --host {host}` lists them; check the node's health and load, and whether the descheduler moves VMs"
        )
    };
    let most = if leaving >= arriving { off } else { onto };
    Finding::new(
        MIGRATION_STORM,
        severity,
        ("InfraNode", host.as_str()),
        "MigrationStorm",
        format!("{message}{why}"),
    )
    .with("leaving", leaving)
    .with("arriving", arriving)
    .with("cordoned", is_cordoned)
    .with("names", most.map(names).unwrap_or_default())
    .remedy(remedy)
}
