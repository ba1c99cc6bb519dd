//! The fleet for callers that may see a part of it. Handlers of the API read it as they read the
//! whole fleet.

use std::sync::Arc;

use tokio::sync::watch;
use virtfleet_collector_core::{
    access::{
        AccessScope, VisibleFleet,
        redact::{InfraTerms, KeyedHash, Redactor},
        tenant_detail, tenant_failure, tenant_findings, tenant_label_input, tenant_snapshot, tenant_story,
    },
    facts::Labels,
    labels::plan::LabelInput,
    pull_result::Failure,
    story::StoryView,
    view::{FleetSnapshot, VmDetail},
};
use virtfleet_wire::{finding::Finding, ids::VmKey};

use crate::fleet::FleetRead;

/// A part of a fleet.
pub struct TenantView {
    fleet: Arc<dyn FleetRead>,
    scope: AccessScope,
    /// Key of the pseudonyms of infra names; none if they are not hidden.
    hash: Option<KeyedHash>,
}

impl TenantView {
    /// The part of `fleet` that `scope` has.
    pub fn new(fleet: Arc<dyn FleetRead>, scope: AccessScope, hash: Option<KeyedHash>) -> Self {
        Self { fleet, scope, hash }
    }

    /// Replaces infra names; none if they are not hidden.
    pub fn redactor(&self) -> Option<Redactor> {
        self.redactor_for(&self.fleet.snapshot())
    }

    /// A failed pull of a VM in the scope.
    pub fn failure(&self, failure: Failure) -> Failure {
        let failure = tenant_failure(failure);
        match self.redactor() {
            Some(redactor) => redactor.failure(&failure),
            None => failure,
        }
    }

    fn redactor_for(&self, whole: &FleetSnapshot) -> Option<Redactor> {
        let hash = Arc::clone(self.hash.as_ref()?);
        let mut terms = self.fleet.infra_terms();
        // A VMI may name a node that the inventory lacks.
        for host in whole.hosts.iter().filter(|host| !host.known) {
            Arc::make_mut(&mut terms).add_node(host.name.as_str());
        }
        Some(Redactor::new(hash, terms))
    }
}

impl FleetRead for TenantView {
    fn snapshot(&self) -> Arc<FleetSnapshot> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        let part = tenant_snapshot(&visible, &|key| self.fleet.findings(key));
        Arc::new(match self.redactor_for(&whole) {
            Some(redactor) => redactor.snapshot(part),
            None => part,
        })
    }

    fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        // Before the details are made: a hidden VM must take as long as one that does not exist.
        if !visible.has_vm(key) {
            return None;
        }
        let detail = tenant_detail(&visible, self.fleet.detail(key)?)?;
        Some(match self.redactor_for(&whole) {
            Some(redactor) => redactor.detail(detail),
            None => detail,
        })
    }

    fn findings(&self, key: &VmKey) -> Vec<Finding> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        let Some(vm) = whole.vms.get(key).filter(|vm| self.scope.has_vm(vm)) else {
            return Vec::new();
        };
        let found = tenant_findings(&visible, vm, self.fleet.findings(key));
        match self.redactor_for(&whole) {
            Some(redactor) => found
                .into_iter()
                .map(|finding| redactor.finding(finding))
                .collect(),
            None => found,
        }
    }

    fn stories(&self, keys: &[VmKey]) -> Vec<StoryView> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        let redactor = self.redactor_for(&whole);
        let stories = keys.iter().zip(self.fleet.stories(keys));
        let part = stories.map(|(key, story)| {
            let story = tenant_story(&visible, whole.vms.get(key)?, story)?;
            Some(match &redactor {
                Some(redactor) => redactor.story(story),
                None => story,
            })
        });
        part.map(Option::unwrap_or_default).collect()
    }

    fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        let redactor = self.redactor_for(&whole);
        let labels = keys.iter().zip(self.fleet.vm_labels(keys));
        let part = labels.map(|(key, labels)| match &redactor {
            _ if !visible.has_vm(key) => Labels::new(),
            Some(redactor) => redactor.vm_labels(&labels),
            None => labels,
        });
        part.collect()
    }

    fn label_inputs(&self) -> Vec<LabelInput> {
        let whole = self.fleet.snapshot();
        let visible = VisibleFleet::new(&whole, &self.scope);
        let inputs = self.fleet.label_inputs().into_iter();
        let inputs = inputs.filter_map(|input| tenant_label_input(&visible, input));
        match self.redactor_for(&whole) {
            Some(redactor) => inputs.map(|input| redactor.label_input(input)).collect(),
            None => inputs.collect(),
        }
    }

    fn infra_terms(&self) -> Arc<InfraTerms> {
        self.fleet.infra_terms()
    }

    fn revisions(&self) -> watch::Receiver<u64> {
        self.fleet.revisions()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{access::two_tenants, fleet::Fleet};

    /// Records of which VMs anything was requested.
    struct RecordingFleet {
        fleet: Arc<Fleet>,
        requested: Mutex<Vec<VmKey>>,
    }

    impl RecordingFleet {
        fn record(&self, keys: &[VmKey]) {
            self.requested.lock().unwrap().extend_from_slice(keys);
        }
    }

    impl FleetRead for RecordingFleet {
        fn snapshot(&self) -> Arc<FleetSnapshot> {
            self.fleet.snapshot()
        }
        fn detail(&self, key: &VmKey) -> Option<VmDetail> {
            self.record(std::slice::from_ref(key));
            self.fleet.detail(key)
        }
        fn findings(&self, key: &VmKey) -> Vec<Finding> {
            self.record(std::slice::from_ref(key));
            self.fleet.findings(key)
        }
        fn stories(&self, keys: &[VmKey]) -> Vec<StoryView> {
            self.record(keys);
            self.fleet.stories(keys)
        }
        fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels> {
            self.record(keys);
            self.fleet.vm_labels(keys)
        }
        fn label_inputs(&self) -> Vec<LabelInput> {
            self.fleet.label_inputs()
        }
        fn infra_terms(&self) -> Arc<InfraTerms> {
            self.fleet.infra_terms()
        }
        fn revisions(&self) -> watch::Receiver<u64> {
            self.fleet.revisions()
        }
    }

    /// Otherwise the time of an answer would show that another tenant has a VM of this name.
    #[test]
    fn nothing_is_made_of_a_hidden_vm_as_of_one_that_does_not_exist() {
        let fleet = Arc::new(RecordingFleet {
            fleet: two_tenants::fleet(true),
            requested: Mutex::default(),
        });
        let key = |namespace: &str, name: &str| VmKey {
            namespace: namespace.parse().unwrap(),
            name: name.parse().unwrap(),
        };
        let scope = AccessScope::of_namespaces(["ns-alpha".parse().unwrap()]);
        let view = TenantView::new(fleet.clone(), scope, None);
        for (namespace, name) in [
            ("ns-beta", "vm-beta-1"),
            ("ns-beta", "no-such"),
            ("ns-alpha", "no-such"),
        ] {
            let key = key(namespace, name);
            assert!(view.detail(&key).is_none() && view.findings(&key).is_empty());
            assert_eq!(*fleet.requested.lock().unwrap(), [], "{key}");
        }
        let own = key("ns-alpha", "vm-alpha-1");
        assert!(view.detail(&own).is_some());
        assert_eq!(*fleet.requested.lock().unwrap(), [own]);
    }
}
