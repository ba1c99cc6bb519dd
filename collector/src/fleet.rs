//! The fleet shared by all tasks: one index behind a lock, one cached snapshot, one revision to
//! wait for.
//!
//! ```text
//! inventory ─ apply ─▶ ┌───────┐ ─ snapshot, detail, revisions ─▶ API, metrics
//! scrape ── results ──▶ │ Fleet │ ─ targets, dial ──────────────▶ scrape
//!                      └───────┘
//! ```
//! The lock is held for one event or one read, and never across an await.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use jiff::Timestamp;
use tokio::sync::watch;
use virtfleet_collector_core::{
    access::redact::InfraTerms,
    budget::BudgetOwner,
    dial::{DialRules, DialTarget},
    enrolment::{EnrolmentSubject, ExpectedNode, NoExpectedNode, VmProof},
    expected::ExpectedIdentity,
    facts::{InventoryEvent, Labels},
    index::{FleetIndex, LocatedVm, NoVmAtAddress, Owners},
    labels::{plan::LabelInput, policy::LabelPolicy},
    managed::ManagedRules,
    mla::delivery::MetricsDelivery,
    node_conditions::NodeConditionInput,
    placement::{PlacementFleet, check, placement_findings},
    pull_result::{Failure, PullResult},
    story::StoryView,
    view::{ClusterStatus, FleetSnapshot, VmDetail},
    volumes::{ReadVolumes, VolumesToRead},
};
use virtfleet_wire::{
    enrolment::EnrolmentEvidence,
    finding::Finding,
    ids::{ClusterName, Uid, Uuid, VmKey},
};

/// Read access for the API. No method blocks for long or changes the fleet.
pub trait FleetRead: Send + Sync {
    /// The whole fleet as of its current revision.
    fn snapshot(&self) -> Arc<FleetSnapshot>;
    /// All details of one VM; none for an unknown VM.
    fn detail(&self, key: &VmKey) -> Option<VmDetail>;
    /// The collector's findings about a VM, then its guest's.
    fn findings(&self, key: &VmKey) -> Vec<Finding>;
    /// Timeline and migrations of each of these VMs; empty for an unknown VM.
    fn stories(&self, keys: &[VmKey]) -> Vec<StoryView>;
    /// The labels by which each of these VMs is selected; none for an unknown VM.
    fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels>;
    /// The label plan input of every VM that has one, by VM.
    fn label_inputs(&self) -> Vec<LabelInput>;
    /// The names of the infra cluster, to hide them from tenants.
    fn infra_terms(&self) -> Arc<InfraTerms>;
    /// Infra nodes and VMs, to check their placement; empty for a part of a fleet.
    fn placement_fleet(&self) -> PlacementFleet {
        PlacementFleet::default()
    }
    /// Notifies of every new revision.
    fn revisions(&self) -> watch::Receiver<u64>;
}

/// Source of the time: [`Timestamp::now`] in the program, a fixed time in tests.
pub type Clock = fn() -> Timestamp;

/// The fleet. Share it as `Arc<Fleet>`.
#[derive(Debug)]
pub struct Fleet {
    index: RwLock<FleetIndex>,
    cached: RwLock<Arc<FleetSnapshot>>,
    /// With the generation of the infra nodes that it was made of.
    terms: RwLock<(u64, Arc<InfraTerms>)>,
    revision: watch::Sender<u64>,
    clock: Clock,
}

impl Fleet {
    /// An empty fleet with dial rules; `clock` gives the time of new findings.
    pub fn new(rules: DialRules, clock: Clock) -> Self {
        let index = FleetIndex::new(rules);
        Self {
            cached: RwLock::new(Arc::new(index.snapshot())),
            terms: RwLock::default(),
            revision: watch::Sender::new(index.revision()),
            index: RwLock::new(index),
            clock,
        }
    }

    /// Sets which VMs have an agent that is pulled; before the first event.
    #[must_use]
    pub fn with_managed_rules(self, rules: ManagedRules) -> Self {
        self.change(|index| index.set_managed_rules(rules));
        self
    }

    /// Applies an event of the inventory; see [`FleetIndex::apply`].
    pub fn apply(&self, event: InventoryEvent) -> Vec<VmKey> {
        self.change(|index| index.apply(event))
    }

    /// Records the result of a pull from the VMI with UID `dialled`. A result for a VM that was
    /// replaced meanwhile is dropped. Returns whether it was recorded.
    pub fn record_pull_of(&self, dialled: Option<&Uid>, result: PullResult) -> bool {
        self.change(|index| index.record_pull_of(dialled, result))
    }

    /// As [`Fleet::record_pull_of`], for a VMI with any UID.
    pub fn record_pull(&self, result: PullResult) -> bool {
        self.change(|index| index.record_pull(result))
    }

    /// Replaces the findings of the inventory's reader.
    pub fn set_inventory_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_inventory_findings(findings));
    }

    /// Replaces the findings about the fleet's authority.
    pub fn set_authority_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_authority_findings(findings));
    }

    /// Replaces the findings about join tokens.
    pub(crate) fn set_join_token_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_join_token_findings(findings));
    }

    /// Replaces the findings about conditions that cannot be written to Nodes.
    pub(crate) fn set_node_condition_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_node_condition_findings(findings));
    }

    /// Replaces the findings about labels of Nodes.
    pub(crate) fn set_label_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_label_findings(findings));
    }

    /// Replaces the findings about sources of user clusters.
    pub(crate) fn set_cluster_source_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_cluster_source_findings(findings));
    }

    /// Replaces the findings about settings of streams that cannot be used.
    pub(crate) fn set_mla_settings_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_mla_settings_findings(findings));
    }

    /// Replaces the findings about streams of samples.
    pub(crate) fn set_mla_findings(&self, findings: Vec<Finding>) {
        self.change(|index| index.set_mla_findings(findings));
    }

    /// Replaces what is known of the delivery of VMs' metrics.
    pub(crate) fn set_metrics_delivery(&self, delivery: MetricsDelivery) {
        self.change(|index| index.set_metrics_delivery(delivery));
    }

    /// Takes the VMs whose conditions may have to be written to their Nodes; see
    /// [`FleetIndex::take_changed_conditions`].
    pub(crate) fn take_changed_conditions(&self) -> Vec<VmKey> {
        self.change(FleetIndex::take_changed_conditions)
    }

    /// Input of the plan of the conditions of a VM's Node; see
    /// [`FleetIndex::node_condition_input`].
    pub fn node_condition_input(&self, key: &VmKey) -> Option<NodeConditionInput> {
        self.read().node_condition_input(key)
    }

    /// Sets the status of each user cluster; see [`FleetIndex::set_cluster_statuses`].
    pub fn set_cluster_statuses(&self, statuses: BTreeMap<ClusterName, ClusterStatus>) {
        self.change(|index| index.set_cluster_statuses(statuses));
    }

    /// Updates the health of the VMs for which the time changes something; see
    /// [`FleetIndex::settle`].
    pub fn settle(&self) {
        self.change(FleetIndex::settle);
    }

    /// The VMs whose volumes are to be read now; see [`FleetIndex::take_volumes_to_read`].
    pub(crate) fn take_volumes_to_read(&self, max_requests: usize, leads: bool) -> Vec<VolumesToRead> {
        self.change(|index| index.take_volumes_to_read(max_requests, leads))
    }

    /// Records what was read of a VM's volumes.
    pub(crate) fn record_volumes(&self, vm: &VmKey, read: ReadVolumes) {
        self.change(|index| index.record_volumes(vm, read));
    }

    /// Checks rules between VMs, and updates the findings about them.
    pub fn check_placement(&self) {
        // The check runs without the lock: it takes longer than an event.
        let fleet = self.read().placement_fleet();
        let found = placement_findings(&check(&fleet));
        self.change(|index| index.set_placement_findings(found));
    }

    /// The dial target of a VM's agent.
    ///
    /// # Errors
    /// Why it cannot be dialled.
    pub fn dial(&self, key: &VmKey) -> Result<DialTarget, Failure> {
        self.read().dial(key)
    }

    /// The target of a VM's agent that has connected from `peer`.
    ///
    /// # Errors
    /// The VM is unknown, or does not run.
    pub fn pushed_target(&self, key: &VmKey, peer: SocketAddr) -> Result<DialTarget, Failure> {
        self.read().pushed_target(key, peer)
    }

    /// The only VM with this address; see [`FleetIndex::vm_at`].
    ///
    /// # Errors
    /// There is no such VM, or more than one.
    pub fn vm_at(&self, address: IpAddr) -> Result<VmKey, NoVmAtAddress> {
        self.read().vm_at(address)
    }

    /// Number of VMs in the inventory.
    pub(crate) fn vm_count(&self) -> usize {
        self.read().vm_count()
    }

    /// Whether an address is that of a VM's own running virt-launcher pod.
    pub fn is_at(&self, key: &VmKey, address: IpAddr) -> bool {
        self.read().is_at(key, address)
    }

    /// The only VM of a user cluster with this firmware UUID; see [`FleetIndex::vm_with_uuid`].
    pub fn vm_with_uuid(&self, cluster: &ClusterName, uuid: Uuid) -> Option<VmKey> {
        self.read().vm_with_uuid(cluster, uuid)
    }

    /// The VMs with this firmware UUID; see [`FleetIndex::vms_with_uuid`].
    pub(crate) fn vms_with_uuid(&self, uuid: Uuid, max: usize) -> Vec<VmKey> {
        self.read().vms_with_uuid(uuid, max)
    }

    /// The Node whose kubelet may vouch for a VM's agent; see [`FleetIndex::expected_node`].
    pub(crate) fn expected_node(&self, key: &VmKey) -> Result<ExpectedNode, NoExpectedNode> {
        self.read().expected_node(key)
    }

    /// Whether a node proof of a VM's agent can be checked; see
    /// [`FleetIndex::has_node_authority`].
    pub(crate) fn has_node_authority(&self, key: &VmKey) -> bool {
        self.read().has_node_authority(key)
    }

    /// What the guests of the other VMs that a guest may be must show; see
    /// [`FleetIndex::others_like`].
    pub fn others_like(&self, evidence: &EnrolmentEvidence, vm: &VmKey) -> Vec<ExpectedIdentity> {
        self.read().others_like(evidence, vm)
    }

    /// What enrolment must know of a VM; see [`FleetIndex::enrolment_subject`].
    pub fn enrolment_subject(&self, target: &DialTarget, proof: VmProof) -> Option<EnrolmentSubject> {
        self.read().enrolment_subject(target, proof)
    }

    /// Whether the inventory has a VM of this name.
    pub fn has_vm(&self, key: &VmKey) -> bool {
        self.read().has_vm(key)
    }

    /// Whether a VM runs, so that its agent can answer.
    pub fn can_answer(&self, key: &VmKey) -> bool {
        self.read().can_answer(key)
    }

    /// Every VM whose agent can answer, sorted.
    pub fn targets(&self) -> Vec<VmKey> {
        self.read().targets()
    }

    /// The tenant to which a VM's resource usage counts.
    pub fn budget_owner(&self, key: &VmKey) -> BudgetOwner {
        self.read().budget_owner(key)
    }

    /// One VM with labels of its infra node; see [`FleetIndex::located_vm`].
    pub fn located_vm(&self, key: &VmKey, label_keys: &[&str]) -> Option<LocatedVm> {
        self.read().located_vm(key, label_keys)
    }

    /// Whether the inventory has been read completely at least once.
    pub fn synced(&self) -> bool {
        self.read().synced()
    }

    /// Input of the label plan for a VM's Node; see [`FleetIndex::label_input`].
    pub fn label_input(&self, key: &VmKey) -> Option<LabelInput> {
        self.read().label_input(key)
    }

    /// The user cluster in which a VM has a Node that may be written to; see
    /// [`FleetIndex::written_cluster`].
    pub fn written_cluster(&self, key: &VmKey) -> Option<ClusterName> {
        self.read().written_cluster(key)
    }

    /// Every VM whose Node may be written to, sorted; see [`FleetIndex::written`].
    pub fn written(&self) -> Vec<VmKey> {
        self.read().written()
    }

    /// The UIDs of a VM and its VMI; see [`FleetIndex::owners`].
    pub fn owners(&self, key: &VmKey) -> Owners {
        self.read().owners(key)
    }

    /// All policies, by name.
    pub fn policies(&self) -> Vec<LabelPolicy> {
        self.read().policies().cloned().collect()
    }

    /// The labels of every `UserCluster`, which policies select by.
    pub fn cluster_labels(&self) -> Vec<Labels> {
        self.read().cluster_labels().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, FleetIndex> {
        // A panic under the lock is a bug in one event; the state before that event is still valid.
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut FleetIndex) -> T) -> T {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        let now_ms = u64::try_from(now.as_millisecond()).unwrap_or_default();
        index.set_time(format!("{now:.0}"), now_ms);
        let out = change(&mut index);
        let revision = index.revision();
        // Send under the lock, so that revisions never decrease for receivers.
        self.revision
            .send_if_modified(|known| std::mem::replace(known, revision) != revision);
        out
    }
}

impl FleetRead for Fleet {
    fn snapshot(&self) -> Arc<FleetSnapshot> {
        let index = self.read();
        {
            let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
            if cached.revision == index.revision() {
                return Arc::clone(&cached);
            }
        }
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        // Another reader may have built the snapshot while this one waited.
        if cached.revision != index.revision() {
            *cached = Arc::new(index.snapshot());
        }
        Arc::clone(&cached)
    }

    fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        self.read().detail(key)
    }

    fn findings(&self, key: &VmKey) -> Vec<Finding> {
        self.read().findings(key)
    }

    fn stories(&self, keys: &[VmKey]) -> Vec<StoryView> {
        let index = self.read();
        keys.iter()
            .map(|key| index.story(key).unwrap_or_default())
            .collect()
    }

    fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels> {
        let index = self.read();
        keys.iter().map(|key| index.vm_labels(key)).collect()
    }

    fn label_inputs(&self) -> Vec<LabelInput> {
        let index = self.read();
        let keys = index.written();
        keys.iter().filter_map(|key| index.label_input(key)).collect()
    }

    fn infra_terms(&self) -> Arc<InfraTerms> {
        let index = self.read();
        let generation = index.infra_generation();
        {
            let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
            if terms.0 == generation {
                return Arc::clone(&terms.1);
            }
        }
        let made = Arc::new(InfraTerms::new(index.infra_nodes()));
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        *terms = (generation, Arc::clone(&made));
        made
    }

    fn placement_fleet(&self) -> PlacementFleet {
        self.read().placement_fleet()
    }

    fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::{
        facts::{Fact, UserCluster},
        findings,
    };
    use virtfleet_wire::finding::Severity;

    use super::*;

    fn cluster(name: &str) -> InventoryEvent {
        InventoryEvent::Apply(Fact::UserCluster(UserCluster {
            name: name.parse().unwrap(),
            namespace: "ns".parse().unwrap(),
            selector: virtfleet_collector_core::facts::Selector::default(),
            labels: Labels::new(),
            suspend: false,
            relay: None,
            node_authorities: None,
            node_conditions: std::collections::BTreeSet::new(),
        }))
    }

    #[test]
    fn one_snapshot_per_revision_and_changes_are_notified() {
        let fleet = Fleet::new(DialRules::default(), || Timestamp::UNIX_EPOCH);
        let mut revisions = fleet.revisions();
        assert!(!revisions.has_changed().unwrap());
        fleet.apply(cluster("a"));
        assert!(revisions.has_changed().unwrap());
        let reported = *revisions.borrow_and_update();
        let first = fleet.snapshot();
        assert_eq!((first.clusters.len(), first.revision), (1, reported));
        assert!(Arc::ptr_eq(&first, &fleet.snapshot()));
        fleet.apply(cluster("a"));
        assert!(!revisions.has_changed().unwrap(), "an equal event is no change");
        assert!(Arc::ptr_eq(&first, &fleet.snapshot()));
        fleet.apply(cluster("b"));
        assert_eq!(fleet.snapshot().clusters.len(), 2);
    }

    #[test]
    fn findings_have_the_time_of_the_clock() {
        let fleet = Fleet::new(DialRules::default(), || Timestamp::UNIX_EPOCH);
        let finding = Finding::new(
            findings::MANIFEST_BROKEN,
            Severity::Warning,
            ("Manifest", "f"),
            "R",
            "m",
        );
        fleet.set_inventory_findings(vec![finding]);
        assert_eq!(fleet.snapshot().findings[0].since, "1970-01-01T00:00:00Z");
    }
}
