//! The fleet shared by all tasks: one index behind a lock, one cached snapshot, one revision to
//! wait for.
//!
//! ```text
//! inventory ─ apply ─▶ ┌───────┐ ─ snapshot, detail, revisions ─▶ API, metrics
//! scrape ── results ──▶ │ Fleet │ ─ can_answer, dial ───────────▶ scrape
//!                      └───────┘
//! ```
//! The lock is held for one event or one read, and never across an await.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use tokio::sync::watch;
use virtfleet_collector_core::{
    access::redact::InfraTerms,
    dial::DialRules,
    facts::{InventoryEvent, Labels},
    index::FleetIndex,
    labels::plan::LabelInput,
    managed::ManagedRules,
    placement::{PlacementFleet, check, placement_findings},
    pull_result::PullResult,
    story::StoryView,
    view::{FleetSnapshot, VmDetail},
};
use virtfleet_wire::{
    finding::Finding,
    ids::{Uid, VmKey},
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

    /// Checks rules between VMs, and updates the findings about them.
    pub fn check_placement(&self) {
        // The check runs without the lock: it takes longer than an event.
        let fleet = self.read(FleetIndex::placement_fleet);
        let found = placement_findings(&check(&fleet));
        self.change(|index| index.set_placement_findings(found));
    }

    /// Returns the result of `read` on the index. `read` runs under the lock, so it must not call
    /// the fleet, which would deadlock.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&FleetIndex) -> T) -> T {
        // A panic under the lock is a bug in one event; the state before that event is still valid.
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        read(&index)
    }

    /// Returns the result of `change` on the index, which has the present time, and notifies of a
    /// new revision. `change` runs under the lock, as in [`Fleet::read`].
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut FleetIndex) -> T) -> T {
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
        self.read(|index| {
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
        })
    }

    fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        self.read(|index| index.detail(key))
    }

    fn findings(&self, key: &VmKey) -> Vec<Finding> {
        self.read(|index| index.findings(key))
    }

    fn stories(&self, keys: &[VmKey]) -> Vec<StoryView> {
        self.read(|index| {
            let stories = keys.iter().map(|key| index.story(key).unwrap_or_default());
            stories.collect()
        })
    }

    fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels> {
        self.read(|index| keys.iter().map(|key| index.vm_labels(key)).collect())
    }

    fn label_inputs(&self) -> Vec<LabelInput> {
        self.read(|index| {
            let keys = index.written();
            keys.iter().filter_map(|key| index.label_input(key)).collect()
        })
    }

    fn infra_terms(&self) -> Arc<InfraTerms> {
        self.read(|index| {
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
        })
    }

    fn placement_fleet(&self) -> PlacementFleet {
        self.read(FleetIndex::placement_fleet)
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
        fleet.change(|index| index.set_inventory_findings(vec![finding]));
        assert_eq!(fleet.snapshot().findings[0].since, "1970-01-01T00:00:00Z");
    }
}
