//! Stamps the labels of the target on a guest's series. A guest cannot set or override them: its
//! own label of such a name becomes `exported_…`, as in Prometheus with `honor_labels: false`.

use std::sync::Arc;

use super::{
    guest_labels::GuestLabels,
    relabel::{LabelValue, WorkingLabels},
};

/// Maximum number of labels that differ from VM to VM.
pub const MAX_TARGET_LABELS: usize = 32;

/// Prefix of a guest's label whose name the target has.
const EXPORTED: &str = "exported_";

/// The labels that a stream stamps on its series. The names are unique over all three fields; an
/// earlier field has precedence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StampLabels {
    /// Names of labels whose values differ from VM to VM; at most [`MAX_TARGET_LABELS`] are used.
    /// The names are withheld from guests even if a VM has no value.
    pub per_vm: Vec<Arc<str>>,
    /// Labels that all series of VMs get.
    pub constant: Vec<(Arc<str>, Arc<str>)>,
    /// Labels that all series get, those of the platform included (Prometheus' `external_labels`).
    pub external: Vec<(Arc<str>, Arc<str>)>,
}

impl StampLabels {
    /// The same labels with unique names, and without `__name__`.
    pub(super) fn unique(mut self) -> Self {
        let mut seen: Vec<Arc<str>> = vec!["__name__".into()];
        let mut first = |name: &Arc<str>| {
            let is_first = !seen.contains(name);
            if is_first {
                seen.push(Arc::clone(name));
            }
            is_first
        };
        self.per_vm.truncate(MAX_TARGET_LABELS);
        self.per_vm.retain(&mut first);
        self.constant.retain(|(name, _)| first(name));
        self.external.retain(|(name, _)| first(name));
        self
    }

    fn is_reserved(&self, name: &str) -> bool {
        let constant = self.constant.iter().chain(&self.external);
        self.per_vm.iter().any(|one| **one == *name) || constant.into_iter().any(|(one, _)| **one == *name)
    }

    /// The labels of a VM's series. `value` returns the value of a label that differs from VM to
    /// VM, by its index; none if the VM has none.
    pub(super) fn vm(
        &self,
        labels: &GuestLabels<'_>,
        value: impl Fn(usize) -> Option<LabelValue>,
    ) -> WorkingLabels {
        let mut stamped: Vec<(Arc<str>, LabelValue)> = Vec::new();
        let mut conflicts = Vec::new();
        for (name, value) in labels.iter() {
            if self.is_reserved(name) {
                conflicts.push((name, value));
            } else {
                stamped.push((name.into(), LabelValue::Text(value.into())));
            }
        }
        for (index, name) in self.per_vm.iter().enumerate() {
            if let Some(value) = value(index) {
                stamped.push((Arc::clone(name), value));
            }
        }
        for (name, value) in self.constant.iter().chain(&self.external) {
            stamped.push((Arc::clone(name), LabelValue::Text(Arc::clone(value))));
        }
        // In this order, as Prometheus does: `cluster` before `exported_cluster`.
        conflicts.sort_by_key(|(name, _)| name.len());
        for (name, value) in conflicts {
            let mut exported = format!("{EXPORTED}{name}");
            while self.is_reserved(&exported) || stamped.iter().any(|(name, _)| **name == *exported) {
                exported.insert_str(0, EXPORTED);
            }
            stamped.push((exported.into(), LabelValue::Text(value.into())));
        }
        WorkingLabels::new(stamped)
    }

    /// The labels of a series that the platform writes: only external ones are added, unless the
    /// series has them.
    pub(super) fn platform(&self, labels: &GuestLabels<'_>) -> WorkingLabels {
        let own = labels.iter();
        let mut stamped: Vec<_> = own
            .map(|(name, value)| (Arc::from(name), LabelValue::Text(value.into())))
            .collect();
        for (name, value) in &self.external {
            if stamped.iter().all(|(own, _)| own != name) {
                stamped.push((Arc::clone(name), LabelValue::Text(Arc::clone(value))));
            }
        }
        WorkingLabels::new(stamped)
    }
}
