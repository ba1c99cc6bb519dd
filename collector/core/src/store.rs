//! Data of the index: facts, results of pulls, derived values, and indexes over them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, Namespace, NodeName, Uuid, VmKey, VmName},
};

use crate::{
    abandoned::DeadMigration,
    contention::NeighbourVm,
    dial::DialRules,
    facts::{InfraNode, Labels, LauncherPod, Migration, UserCluster, UserNode, Vm, Vmi, VmiMove},
    health::HealthTrack,
    heartbeats::Heartbeats,
    keys::{Keys, SharedValues, VmsBy},
    label_map::StringInterner,
    labels::policy::LabelPolicy,
    managed::ManagedRules,
    pull_history::PullHistory,
    pull_result::{Failure, UnixMs},
    scheduling::SchedulingInterner,
    selectors::Selectors,
    shared_nodes::SharedNodes,
    small_set::SmallSet,
    state::vm_state,
    story::VmStory,
    view::{AgentStatus, VmState, VmView},
    volumes::{ClaimReads, ReadVolumes, SeenPlugging},
    way::{AgentWay, RelayWay},
};

/// A VM: its VMI, its VirtualMachine, or both.
#[derive(Debug, Default)]
pub(crate) struct VmEntry {
    pub(crate) vmi: Option<Box<Vmi>>,
    pub(crate) vm: Option<Vm>,
    pub(crate) pulls: PullHistory,
    pub(crate) keys: Keys,
    /// None only until the end of the event that added the VM.
    pub(crate) view: Option<Arc<VmView>>,
    /// The collector's findings; the agent's findings are in its report.
    pub(crate) findings: Vec<Finding>,
    /// None only until the end of the event that added the VM.
    pub(crate) health: Option<Box<HealthTrack>>,
    /// What happened to it since the collector started.
    pub(crate) story: Box<VmStory>,
    /// Its volumes, as read while it waits for them, or while one is lost; none for all other VMs.
    pub(crate) volumes: Option<Box<ReadVolumes>>,
    /// Since when its migration is one that KubeVirt has forgotten.
    pub(crate) dead_migration: DeadMigration,
    /// Reads of its claims while it runs.
    pub(crate) claims: ClaimReads,
    /// Its hot-plugged volumes that are not ready.
    pub(crate) plugging: Box<[SeenPlugging]>,
}

/// Age of an answer, in milliseconds, after which its usage is no evidence any more.
const MAX_USAGE_AGE_MS: u64 = 300_000;

impl VmEntry {
    pub(crate) fn state(&self) -> VmState {
        match vm_state(self.vmi.as_deref(), self.vm.as_ref()) {
            VmState::Migrating if self.dead_migration.is_abandoned() => VmState::Running,
            state => state,
        }
    }

    /// The last migration of its VMI. One that KubeVirt has forgotten has ended.
    pub(crate) fn migration(&self) -> Option<Cow<'_, Migration>> {
        self.dead_migration.migration_of(self.vmi.as_deref()?)
    }

    /// Whether its agent is pulled: it runs, and is managed.
    pub(crate) fn is_dialled(&self) -> bool {
        let view = self.view.as_ref();
        view.is_some_and(|view| view.state.can_answer() && view.agent.status != AgentStatus::Unmanaged)
    }

    /// The VM as others on its infra node see it. A guest cannot claim more CPUs than its VMI has.
    pub(crate) fn as_neighbour<'a>(&self, key: &'a VmKey, now_ms: UnixMs) -> NeighbourVm<'a> {
        let given = self
            .vmi
            .as_ref()
            .and_then(|vmi| vmi.scheduling.vcpus)
            .map(u64::from);
        let answer = self.pulls.answer.as_ref();
        let is_fresh = answer.is_some_and(|(at, _)| now_ms.saturating_sub(*at) <= MAX_USAGE_AGE_MS);
        NeighbourVm {
            key,
            vcpus: given.unwrap_or_else(|| answer.map_or(0, |(_, answer)| answer.metrics.cpus)),
            usage: self.pulls.usage.filter(|_| is_fresh),
        }
    }
}

/// Data of the index. Large values are boxed, because the leaves of a B-tree are often only half
/// full.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) delivery: crate::mla::delivery::MetricsDelivery,
    pub(crate) rules: DialRules,
    pub(crate) managed: ManagedRules,
    pub(crate) ignored_namespaces: BTreeSet<Namespace>,
    pub(crate) vms: BTreeMap<VmKey, Box<VmEntry>>,
    pub(crate) infra_nodes: BTreeMap<NodeName, InfraNode>,
    pub(crate) clusters: BTreeMap<ClusterName, UserCluster>,
    pub(crate) user_nodes: BTreeMap<ClusterName, BTreeMap<NodeName, Box<UserNode>>>,
    pub(crate) policies: BTreeMap<String, LabelPolicy>,
    pub(crate) moves: BTreeMap<(Namespace, String), VmiMove>,
    pub(crate) moves_by_vm: BTreeMap<VmKey, BTreeSet<String>>,
    pub(crate) launchers: BTreeMap<(Namespace, String), LauncherPod>,
    launchers_by_vm: HashMap<VmKey, SmallSet<String>>,
    launchers_by_address: HashMap<IpAddr, SmallSet<(Namespace, String)>>,
    pub(crate) shared_values: SharedValues,
    pub(crate) vms_by_host: VmsBy<NodeName>,
    pub(crate) vms_by_namespace: VmsBy<Namespace>,
    /// VMs that no `UserCluster` selects, by the cluster that their labels name.
    pub(crate) vms_by_cluster_label: VmsBy<ClusterName>,
    clusters_by_namespace: HashMap<Namespace, Selectors>,
    nodes_by_provider: HashMap<(ClusterName, VmName), SmallSet<NodeName>>,
    /// Nodes by `systemUUID`.
    nodes_by_machine: HashMap<(ClusterName, Uuid), SmallSet<NodeName>>,
    pub(crate) shared_nodes: SharedNodes,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) strings: StringInterner,
    pub(crate) scheduling: SchedulingInterner,
    /// Number of selector evaluations, for tests of the cost.
    #[cfg(test)]
    pub(crate) selections: std::sync::atomic::AtomicUsize,
}

impl Store {
    pub(crate) fn new(rules: DialRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// The clusters of a namespace whose selectors may match these labels, by name.
    pub(crate) fn clusters_for(
        &self,
        namespace: &Namespace,
        labels: &Labels,
    ) -> impl Iterator<Item = &UserCluster> {
        let selectors = self.clusters_by_namespace.get(namespace);
        let names = selectors.map(|all| all.candidates(labels)).unwrap_or_default();
        let found = names.into_iter().filter_map(|name| self.clusters.get(name));
        found.inspect(|_| self.count_selection())
    }

    /// Whether a cluster selects a VM, by the labels of the VMI and those that only its
    /// VirtualMachine has.
    pub(crate) fn selects(&self, cluster: &UserCluster, entry: &VmEntry) -> bool {
        self.count_selection();
        let vmi = entry.vmi.as_ref().map(|vmi| &vmi.labels);
        let vm = entry.vm.as_ref().map(|vm| &vm.labels);
        let either = vmi.into_iter().chain(vm);
        // The labels are not merged, because this runs for every VM of a namespace.
        cluster
            .selector
            .matches_with(|key| either.clone().find_map(|labels| labels.get(key)))
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "counts in tests only"))]
    fn count_selection(&self) {
        #[cfg(test)]
        self.selections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// The Nodes of a cluster whose `providerID` names a VM.
    pub(crate) fn nodes_of_provider(
        &self,
        cluster: &ClusterName,
        vm: &VmName,
    ) -> impl Iterator<Item = &NodeName> {
        let key = (cluster.clone(), vm.clone());
        self.nodes_by_provider.get(&key).into_iter().flatten()
    }

    /// The Nodes of a cluster with this `systemUUID`.
    pub(crate) fn nodes_of_machine(
        &self,
        cluster: &ClusterName,
        uuid: Uuid,
    ) -> impl Iterator<Item = &NodeName> {
        let key = (cluster.clone(), uuid);
        self.nodes_by_machine.get(&key).into_iter().flatten()
    }

    pub(crate) fn user_node(&self, cluster: &ClusterName, name: &NodeName) -> Option<&UserNode> {
        self.user_nodes.get(cluster)?.get(name).map(Box::as_ref)
    }

    /// Stores or removes a virt-launcher pod; returns the previous one.
    pub(crate) fn set_launcher(
        &mut self,
        namespace: &Namespace,
        name: &str,
        new: Option<LauncherPod>,
    ) -> Option<LauncherPod> {
        let key = (namespace.clone(), name.to_owned());
        let added = new.as_ref().and_then(LauncherPod::key);
        let addresses = |pod: &LauncherPod| pod.addresses.iter().map(IpAddr::to_canonical).collect();
        let new_addresses: Vec<IpAddr> = new.as_ref().map(addresses).unwrap_or_default();
        let old = match new {
            Some(pod) => self.launchers.insert(key.clone(), pod),
            None => self.launchers.remove(&key),
        };
        let old_addresses: Vec<IpAddr> = old.as_ref().map(addresses).unwrap_or_default();
        for address in old_addresses {
            if let Some(pods) = self.launchers_by_address.get_mut(&address) {
                pods.remove(&key);
                if pods.is_empty() {
                    self.launchers_by_address.remove(&address);
                }
            }
        }
        for address in new_addresses {
            self.launchers_by_address
                .entry(address)
                .or_default()
                .insert(key.clone());
        }
        if let Some(vm) = old.as_ref().and_then(LauncherPod::key)
            && let Some(names) = self.launchers_by_vm.get_mut(&vm)
        {
            names.remove(&name.to_owned());
            if names.is_empty() {
                self.launchers_by_vm.remove(&vm);
            }
        }
        if let Some(vm) = added {
            self.launchers_by_vm
                .entry(vm)
                .or_default()
                .insert(name.to_owned());
        }
        old
    }

    /// The virt-launcher pod in which a VMI runs: the newest, if there are several on its node.
    pub(crate) fn launcher(&self, vmi: &Vmi) -> Option<&LauncherPod> {
        let names = self.launchers_by_vm.get(&vmi.key).into_iter().flatten();
        let pods = names.filter_map(|name| self.launchers.get(&(vmi.key.namespace.clone(), name.clone())));
        pods.filter(|pod| pod.carries(vmi))
            .max_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)))
    }

    /// Whether any virt-launcher pod of a namespace is known. In a folder without the manifests of
    /// pods, none is.
    pub(crate) fn has_launchers(&self, namespace: &Namespace) -> bool {
        let from = (namespace.clone(), String::new());
        let first = self.launchers.range(from..).next();
        first.is_some_and(|((found, _), _)| found == namespace)
    }

    /// The virt-launcher pods with this address, whatever their state.
    pub(crate) fn launchers_at(&self, address: IpAddr) -> impl Iterator<Item = &LauncherPod> {
        let keys = self.launchers_by_address.get(&address.to_canonical());
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.launchers.get(key))
    }

    /// The address at which the agent of a VMI is dialled, or why there is none.
    pub(crate) fn address_of(&self, vmi: &Vmi) -> Result<SocketAddr, Failure> {
        self.rules.choose(vmi, self.launcher(vmi))
    }

    /// How the agent of a VM is reached: through the relay of its user cluster, if that has one.
    pub(crate) fn way_of(&self, entry: &VmEntry) -> AgentWay {
        let cluster = entry.keys.tenant.cluster();
        let relay = cluster.and_then(|name| self.clusters.get(name)?.relay.as_ref().zip(Some(name)));
        relay.map_or(AgentWay::Direct, |(address, cluster)| {
            AgentWay::Relay(RelayWay {
                cluster: cluster.clone(),
                address: address.clone(),
                allow: Arc::clone(self.rules.allowed()),
                pull_interval: self.rules.pull_interval(),
            })
        })
    }

    /// The VM of this name in the namespace of a cluster.
    pub(crate) fn vm_in(&self, cluster: &ClusterName, name: &str) -> Option<VmKey> {
        let namespace = self.clusters.get(cluster)?.namespace.clone();
        Some(VmKey {
            namespace,
            name: name.parse().ok()?,
        })
    }

    /// Whether a VM of this name belongs to the cluster.
    pub(crate) fn is_vm_of(&self, cluster: &ClusterName, name: &NodeName) -> bool {
        self.vm_in(cluster, name.as_str())
            .and_then(|key| self.vms.get(&key))
            .is_some_and(|entry| entry.keys.tenant.cluster() == Some(cluster))
    }

    /// Stores or removes a `UserCluster`; returns the previous one.
    pub(crate) fn set_cluster(
        &mut self,
        name: &ClusterName,
        new: Option<UserCluster>,
    ) -> Option<UserCluster> {
        let old = match &new {
            Some(cluster) => self.clusters.insert(name.clone(), cluster.clone()),
            None => self.clusters.remove(name),
        };
        if let Some(old) = &old
            && let Some(selectors) = self.clusters_by_namespace.get_mut(&old.namespace)
        {
            selectors.remove(name);
            if selectors.is_empty() {
                self.clusters_by_namespace.remove(&old.namespace);
            }
        }
        if let Some(new) = new {
            let selectors = self.clusters_by_namespace.entry(new.namespace).or_default();
            selectors.insert(name, &new.selector);
        }
        old
    }

    /// Stores or removes a user-cluster Node; returns the previous one.
    pub(crate) fn set_user_node(
        &mut self,
        cluster: &ClusterName,
        name: &NodeName,
        new: Option<UserNode>,
    ) -> Option<UserNode> {
        let provider = |node: &UserNode| node.provider_vm().map(|vm| (cluster.clone(), vm));
        let machine = |node: &UserNode| node.system_uuid.map(|uuid| (cluster.clone(), uuid));
        let added = new.as_ref().and_then(provider);
        let added_machine = new.as_ref().and_then(machine);
        let nodes = self.user_nodes.entry(cluster.clone()).or_default();
        let old = match new {
            Some(node) => nodes.insert(name.clone(), Box::new(node)),
            None => nodes.remove(name),
        };
        let old = old.map(|node| *node);
        if nodes.is_empty() {
            self.user_nodes.remove(cluster);
        }
        let removed = old.as_ref().and_then(provider);
        move_name(&mut self.nodes_by_provider, name, removed, added);
        let removed = old.as_ref().and_then(machine);
        move_name(&mut self.nodes_by_machine, name, removed, added_machine);
        old
    }
}

/// Takes the name of a Node from under `old` to under `new`.
fn move_name<K: Eq + Hash>(
    index: &mut HashMap<K, SmallSet<NodeName>>,
    name: &NodeName,
    old: Option<K>,
    new: Option<K>,
) {
    if old == new {
        return;
    }
    if let Some(key) = old
        && let Some(nodes) = index.get_mut(&key)
    {
        nodes.remove(name);
        if nodes.is_empty() {
            index.remove(&key);
        }
    }
    if let Some(key) = new {
        index.entry(key).or_default().insert(name.clone());
    }
}

/// Small facts for the tests of this crate.
#[cfg(test)]
pub(crate) mod tests {
    use std::hash::{DefaultHasher, Hasher as _};

    use super::*;
    use crate::{
        facts::{Phase, Selector, VmiInterface},
        reported::ReportedConditions,
    };

    pub(crate) fn key(namespace: &str, name: &str) -> VmKey {
        VmKey {
            namespace: namespace.parse().unwrap(),
            name: name.parse().unwrap(),
        }
    }
    /// The UUID of the machine of the VM or Node with this name; as in KubeVirt before 1.5, equal
    /// names give equal UUIDs.
    pub(crate) fn machine(name: &str) -> Uuid {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        let uuid = format!("{:08x}-0000-4000-8000-{:012x}", hash >> 32, hash & 0xffff_ffff);
        uuid.parse().unwrap()
    }
    pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }
    /// A running VMI without node, with the address 10.0.0.1.
    pub(crate) fn vmi(namespace: &str, name: &str) -> Vmi {
        Vmi {
            uid: Some(format!("uid-{name}").parse().unwrap()),
            firmware_uuid: Some(machine(name)),
            has_status: true,
            phase: Phase::Running,
            interfaces: vec![VmiInterface {
                name: "default".into(),
                mac: None,
                addresses: vec!["10.0.0.1".parse().unwrap()],
                addresses_claimed: false,
                mac_claimed: false,
            }],
            ..Vmi::new(key(namespace, name))
        }
    }
    /// The running pod of the VMI that [`vmi`] makes, on no node.
    pub(crate) fn launcher(namespace: &str, vm: &str, addresses: &[&str]) -> LauncherPod {
        LauncherPod {
            namespace: namespace.parse().unwrap(),
            name: format!("virt-launcher-{vm}-abcde"),
            vm: Some(vm.parse().unwrap()),
            vmi_uid: Some(format!("uid-{vm}").parse().unwrap()),
            node: None,
            running: true,
            created: String::new(),
            started_ms: None,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            requests: None,
        }
    }

    pub(crate) fn vm(namespace: &str, name: &str) -> Vm {
        Vm::new(key(namespace, name))
    }
    pub(crate) fn infra_node(name: &str, zone: &str) -> InfraNode {
        InfraNode {
            name: name.parse().unwrap(),
            uid: None,
            labels: labels(&[
                ("topology.kubernetes.io/zone", zone),
                ("topology.kubernetes.io/region", "r"),
            ]),
            ready: Some(true),
            conditions: ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Vec::new(),
            allocatable: None,
        }
    }
    pub(crate) fn cluster(name: &str, namespace: &str, select: &[(&str, &str)]) -> UserCluster {
        UserCluster {
            name: name.parse().unwrap(),
            namespace: namespace.parse().unwrap(),
            selector: Selector {
                match_labels: labels(select),
                match_expressions: vec![],
            },
            labels: Labels::new(),
            suspend: false,
            relay: None,
            node_authorities: None,
            node_conditions: BTreeSet::new(),
        }
    }
    pub(crate) fn user_node(cluster: &str, name: &str, provider: Option<&str>) -> UserNode {
        UserNode {
            provider_id: provider.map(str::to_owned),
            system_uuid: Some(machine(
                provider
                    .and_then(|id| id.strip_prefix("kubevirt://"))
                    .unwrap_or(name),
            )),
            ready: Some(true),
            ..UserNode::new(cluster.parse().unwrap(), name.parse().unwrap())
        }
    }
}
