//! What the infra cluster says at present: infra nodes, VMs, user clusters and policies, as facts;
//! and the labels that each Node must have in the end, from rules that do not use the planner.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_collector_core::{
    facts::{
        Fact, FactKey, InfraNode, InventoryEvent, Migration, Phase, Selector, UserCluster, Vmi, VmiMove,
    },
    labels::policy::{LabelPolicy, Mode, Rule, Source, Takeover},
    reported::ReportedConditions,
};

use super::{
    super::harness::{machine, vm_key},
    policies::{fixed_policies, policy},
};

/// The label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// Its older name, which is written together with it.
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// The value that other writers set.
pub(super) const FOREIGN: &str = "others";
/// Time for which the collector may still act on an older state: the sum of all delays of watches
/// and requests, of the wait for the rate limit, and of one step of the clock.
pub(super) const STALENESS_MS: u64 = 75_000;

/// A key that a policy sets on Nodes.
#[derive(Debug)]
pub(super) struct TargetKey {
    pub(super) key: &'static str,
    pub(super) source: &'static str,
    pub(super) policy: &'static str,
    pub(super) takeover: Takeover,
}

const fn target(
    key: &'static str,
    source: &'static str,
    policy: &'static str,
    takeover: Takeover,
) -> TargetKey {
    TargetKey {
        key,
        source,
        policy,
        takeover,
    }
}

/// All keys that may be written. The takeover rule of each is fixed, so that the end state does not
/// depend on the history of the policies.
pub(super) const TARGETS: [TargetKey; 6] = [
    target(ZONE, ZONE, "zone", Takeover::IfPlacementMatches),
    target(
        "rack.example.com/id",
        "rack.example.com/id",
        "rack",
        Takeover::Never,
    ),
    target(
        "virtfleet.io/row",
        "rack.example.com/row",
        "row",
        Takeover::Always,
    ),
    target(
        "place.example.com/x",
        "loc.example.com/x",
        "place",
        Takeover::Never,
    ),
    target(
        "place.example.com/y",
        "loc.example.com/y",
        "place",
        Takeover::Never,
    ),
    target(BETA_ZONE, ZONE, "zone", Takeover::IfPlacementMatches),
];

/// Keys on Nodes that must never be written: foreign, protected, only reported, only a dry run.
pub(super) const UNTOUCHED: [&str; 4] = [
    "team",
    "kubernetes.io/hostname",
    "rack.example.com/room",
    "dry.example.com/pdu",
];

/// Label keys of infra nodes.
pub(super) const SOURCES: [&str; 7] = [
    ZONE,
    "rack.example.com/id",
    "rack.example.com/row",
    "loc.example.com/x",
    "loc.example.com/y",
    "rack.example.com/room",
    "rack.example.com/pdu",
];

/// Names of the policies that are edited.
pub(super) const POLICIES: [&str; 4] = ["zone", "rack", "row", "place"];

/// State of a policy that is edited.
#[derive(Debug, Clone)]
pub(super) struct PolicyState {
    pub(super) exists: bool,
    pub(super) dry_run: bool,
    /// The only user cluster that it selects; none: all.
    pub(super) only: Option<String>,
    /// `Follow` instead of `FollowIfSafe`; only for the policy `zone`.
    pub(super) follow: bool,
}

/// A VM: its user cluster and its name.
pub(super) type VmId = (String, String);

/// State of a VM.
#[derive(Debug, Clone)]
pub(super) struct VmState {
    uid: String,
    pub(super) host: Option<String>,
    came_from: Option<String>,
    /// Each infra node on which a VM of this name has run, with the times at which that ended.
    past: Vec<(String, u64)>,
}

/// State of a user cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterTruth {
    pub(super) exists: bool,
    pub(super) suspended: bool,
    /// Since when nothing may be written to it.
    pub(super) closed_since: Option<u64>,
}

/// An infra node.
#[derive(Debug, Clone)]
struct HostState {
    exists: bool,
    uid: String,
    labels: BTreeMap<&'static str, String>,
}

/// The infra cluster.
#[derive(Debug, Default)]
pub(super) struct Truth {
    hosts: BTreeMap<String, HostState>,
    pub(super) vms: BTreeMap<VmId, VmState>,
    pub(super) clusters: BTreeMap<String, ClusterTruth>,
    pub(super) policies: BTreeMap<&'static str, PolicyState>,
    /// Infra node and key of each label value that ever existed, and when it ended.
    values: BTreeMap<String, (String, &'static str, Option<u64>)>,
    /// The policy `zone` once had `Follow`: the zone may change under objects that depend on it.
    pub(super) zone_followed: bool,
    moves: Vec<VmiMove>,
    count: u64,
}

impl Truth {
    pub(super) fn new(hosts: usize, vms: &[(&str, &str)]) -> Self {
        let mut truth = Self::default();
        for number in 0..hosts {
            let name = format!("h{number}");
            let uid = format!("host-{name}-0");
            truth.hosts.insert(
                name.clone(),
                HostState {
                    exists: true,
                    uid,
                    labels: BTreeMap::new(),
                },
            );
            for key in SOURCES {
                truth.relabel(&name, key, true, 0);
            }
        }
        for (cluster, name) in vms {
            truth.clusters.insert(
                (*cluster).to_owned(),
                ClusterTruth {
                    exists: true,
                    suspended: false,
                    closed_since: None,
                },
            );
            let id = ((*cluster).to_owned(), (*name).to_owned());
            let host = Some(format!("h{}", truth.vms.len() % hosts));
            let vm = VmState {
                uid: format!("vmi-{cluster}-{name}-0"),
                host,
                came_from: None,
                past: Vec::new(),
            };
            truth.vms.insert(id, vm);
        }
        for name in POLICIES {
            let policy = PolicyState {
                exists: true,
                dry_run: false,
                only: None,
                follow: false,
            };
            truth.policies.insert(name, policy);
        }
        truth
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn host_names(&self) -> Vec<String> {
        self.hosts.keys().cloned().collect()
    }

    /// Gives a label of an infra node a new value, or removes it.
    pub(super) fn relabel(&mut self, host: &str, key: &'static str, set: bool, now: u64) -> Option<Fact> {
        let value = format!("{host}-{}", self.next());
        let state = self.hosts.get_mut(host)?;
        let before = if set {
            self.values.insert(value.clone(), (host.to_owned(), key, None));
            state.labels.insert(key, value)
        } else {
            state.labels.remove(key)
        };
        if let Some(ended) = before.and_then(|before| self.values.get_mut(&before)) {
            ended.2 = Some(now);
        }
        self.host_fact(host)
    }

    /// Removes an infra node, or creates it again with another UID.
    pub(super) fn replace_host(&mut self, host: &str, exists: bool) -> InventoryEvent {
        let number = self.next();
        if let Some(state) = self.hosts.get_mut(host) {
            if exists && !state.exists {
                state.uid = format!("host-{host}-{number}");
            }
            state.exists = exists;
        }
        let gone = InventoryEvent::Delete(FactKey::InfraNode(host.parse().unwrap()));
        self.host_fact(host).map_or(gone, InventoryEvent::Apply)
    }

    fn host_fact(&self, host: &str) -> Option<Fact> {
        let state = self.hosts.get(host).filter(|state| state.exists)?;
        Some(Fact::InfraNode(InfraNode {
            name: host.parse().unwrap(),
            uid: Some(state.uid.parse().unwrap()),
            labels: state
                .labels
                .iter()
                .map(|(key, value)| (*key, value.as_str()))
                .collect(),
            ready: Some(true),
            conditions: ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Vec::new(),
            allocatable: None,
        }))
    }

    /// Migrates a VM; without `host` it is not scheduled. Returns the facts.
    pub(super) fn migrate(&mut self, id: &VmId, host: Option<String>, now: u64) -> Vec<Fact> {
        let number = self.next();
        let Some(vm) = self.vms.get_mut(id) else {
            return Vec::new();
        };
        let from = vm.host.clone();
        vm.past.extend(from.clone().map(|from| (from, now)));
        vm.host.clone_from(&host);
        if host.is_some() {
            vm.came_from.clone_from(&from);
        }
        let mut facts: Vec<Fact> = self.vm_fact(id).into_iter().collect();
        if let (Some(from), Some(_)) = (from, host) {
            let one = VmiMove {
                source: from.parse().ok(),
                phase: Some("Succeeded".into()),
                ..VmiMove::new(&format!("move-{number}"), vm_key(&id.0, &id.1))
            };
            self.moves.push(one.clone());
            facts.push(Fact::VmiMove(one));
        }
        facts
    }

    /// Creates a VM of the same name again, on another infra node.
    pub(super) fn recreate_vm(&mut self, id: &VmId, host: &str, now: u64) -> Option<Fact> {
        let number = self.next();
        let vm = self.vms.get_mut(id)?;
        vm.past.extend(vm.host.clone().map(|from| (from, now)));
        vm.uid = format!("vmi-{}-{}-{number}", id.0, id.1);
        vm.host = Some(host.to_owned());
        vm.came_from = None;
        self.vm_fact(id)
    }

    fn vm_fact(&self, id: &VmId) -> Option<Fact> {
        let vm = self.vms.get(id)?;
        let migration = vm.came_from.as_ref().map(|from| Migration {
            source: from.parse().ok(),
            target: vm.host.as_ref().and_then(|host| host.parse().ok()),
            completed: true,
            ..Migration::default()
        });
        Some(Fact::Vmi(Box::new(Vmi {
            uid: Some(vm.uid.parse().unwrap()),
            firmware_uuid: Some(machine(&id.1)),
            has_status: true,
            phase: if vm.host.is_some() {
                Phase::Running
            } else {
                Phase::Scheduling
            },
            node: vm.host.as_ref().map(|host| host.parse().unwrap()),
            migration,
            ..Vmi::new(vm_key(&id.0, &id.1))
        })))
    }

    /// The event about a user cluster as it is now.
    pub(super) fn cluster_event(&self, name: &str) -> InventoryEvent {
        let state = &self.clusters[name];
        if !state.exists {
            return InventoryEvent::Delete(FactKey::UserCluster(name.parse().unwrap()));
        }
        InventoryEvent::Apply(Fact::UserCluster(UserCluster {
            name: name.parse().unwrap(),
            namespace: name.parse().unwrap(),
            selector: Selector::default(),
            labels: [("name", name)].into_iter().collect(),
            suspend: state.suspended,
            relay: None,
            node_authorities: None,
            node_conditions: BTreeSet::new(),
        }))
    }

    /// Sets whether a user cluster exists and is suspended.
    pub(super) fn set_cluster(
        &mut self,
        name: &str,
        exists: bool,
        suspended: bool,
        now: u64,
    ) -> InventoryEvent {
        let state = self.clusters.get_mut(name).unwrap();
        (state.exists, state.suspended) = (exists, suspended);
        let open = exists && !suspended;
        state.closed_since = (!open).then(|| state.closed_since.unwrap_or(now));
        self.cluster_event(name)
    }

    /// The event about a policy as it is now.
    pub(super) fn policy_event(&self, name: &str) -> InventoryEvent {
        let state = &self.policies[name];
        if !state.exists {
            return InventoryEvent::Delete(FactKey::Policy(name.to_owned()));
        }
        let rule = |source: Source, to: Option<&str>, mode, takeover| Rule {
            source,
            target: to.map(str::to_owned),
            mode,
            takeover: Some(takeover),
        };
        let rules = match name {
            "zone" => {
                let mode = state.follow.then_some(Mode::Follow);
                rule(Source::Key(ZONE.into()), None, mode, Takeover::IfPlacementMatches)
            }
            "rack" => rule(
                Source::Key("rack.example.com/id".into()),
                None,
                Some(Mode::Follow),
                Takeover::Never,
            ),
            "row" => rule(
                Source::Key("rack.example.com/row".into()),
                Some("virtfleet.io/row"),
                Some(Mode::Follow),
                Takeover::Always,
            ),
            _ => rule(
                Source::Prefix("loc.example.com/".into()),
                Some("place.example.com/"),
                Some(Mode::Follow),
                Takeover::Never,
            ),
        };
        let only = state.only.iter().map(|only| ("name", only.as_str()));
        InventoryEvent::Apply(Fact::Policy(Box::new(LabelPolicy {
            clusters: Selector {
                match_labels: only.collect(),
                ..Selector::default()
            },
            dry_run: state.dry_run,
            ..policy(name, vec![rules])
        })))
    }

    /// Everything that exists.
    pub(super) fn facts(&self) -> Vec<InventoryEvent> {
        let hosts = self.hosts.keys().filter_map(|host| self.host_fact(host));
        let vms = self.vms.keys().filter_map(|id| self.vm_fact(id));
        let moves = self.moves.iter().cloned().map(Fact::VmiMove);
        let facts = hosts.chain(vms).chain(moves).map(InventoryEvent::Apply);
        let clusters = self.clusters.keys().map(|name| self.cluster_event(name));
        let policies = self.policies.keys().map(|name| self.policy_event(name));
        let fixed = fixed_policies().map(|policy| InventoryEvent::Apply(Fact::Policy(Box::new(policy))));
        let all = facts.chain(clusters).chain(policies).chain(fixed);
        all.filter(|event| matches!(event, InventoryEvent::Apply(_)))
            .collect()
    }

    /// Whether a value may be on a VM's Node: it was that of a label of an infra node on which a VM
    /// of this name ran, both not longer ago than the collector may not know it.
    pub(super) fn was_valid(&self, id: &VmId, source: &str, value: &str, now: u64) -> bool {
        let Some((host, key, ended)) = self.values.get(value) else {
            return false;
        };
        let recent = |ended: u64| now.saturating_sub(ended) <= STALENESS_MS;
        let vm = &self.vms[id];
        let past = vm.past.iter().any(|(one, until)| one == host && recent(*until));
        *key == source && ended.is_none_or(recent) && (past || vm.host.as_ref() == Some(host))
    }

    /// The value of a key in the end; `others` is the last action of other writers.
    pub(super) fn expected(
        &self,
        id: &VmId,
        target: &TargetKey,
        others: Option<&Option<String>>,
    ) -> Option<String> {
        let policy = &self.policies[target.policy];
        let selects =
            policy.exists && !policy.dry_run && policy.only.as_ref().is_none_or(|only| *only == id.0);
        let host = self.vms[id].host.as_ref().and_then(|host| self.hosts.get(host));
        let value = host.and_then(|host| host.labels.get(target.source)).cloned();
        let others = others.cloned().flatten();
        match (value.filter(|_| selects), others) {
            (Some(value), Some(_)) if target.takeover == Takeover::Always => Some(value),
            (_, Some(foreign)) => Some(foreign),
            (value, None) => value,
        }
    }
}
