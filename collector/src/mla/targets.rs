//! The labels that a stream stamps on the series of a VM: those of `/sd`, placement, and external
//! labels.

use std::sync::Arc;

use virtfleet_collector_core::{
    index::LocatedVm,
    mla::{
        page_rules::SampleLimits,
        stream::{SeriesLimits, StampLabels, TargetValues},
    },
};
use virtfleet_wire::ids::NodeName;

use super::settings::{PlacementLabel, PlacementValue, StreamSettings};

/// Labels of a target that differ from VM to VM, as `/sd` has them.
const TARGET_LABELS: [&str; 4] = ["cluster", "namespace", "name", "instance"];
/// The label `job` of all VMs, as `/sd` has it.
const JOB: &str = "node";

/// The labels that a stream with these settings stamps.
pub(super) fn stamp(settings: &StreamSettings) -> StampLabels {
    let placement = settings.placement_labels.iter().map(|label| label.name.as_str());
    let external = settings.external_labels.iter();
    StampLabels {
        per_vm: TARGET_LABELS
            .into_iter()
            .chain(placement)
            .map(Arc::from)
            .collect(),
        constant: vec![("job".into(), JOB.into())],
        external: external
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
    }
}

/// Keys of the infra node's labels among placement labels.
pub(super) fn host_label_keys(labels: &[PlacementLabel]) -> Vec<&str> {
    let keys = labels.iter().filter_map(|label| match &label.value {
        PlacementValue::NodeLabel(key) => Some(key.as_str()),
        _ => None,
    });
    keys.collect()
}

/// The values of a VM, in the order of [`StampLabels::per_vm`]. Its `host_labels` are those of
/// [`host_label_keys`].
pub(super) fn values(vm: &LocatedVm, labels: &[PlacementLabel]) -> TargetValues {
    let view = &vm.view;
    let instance = view
        .user_node
        .as_ref()
        .map_or_else(|| view.name.as_str(), |node| node.as_str());
    let mut values: Vec<Arc<str>> = vec![
        view.cluster.as_ref().map_or("", |name| name.as_str()).into(),
        view.namespace.as_str().into(),
        view.name.as_str().into(),
        instance.into(),
    ];
    let mut host_labels = vm.host_labels.iter();
    for label in labels {
        let value = match &label.value {
            PlacementValue::Zone => view.zone.as_deref(),
            PlacementValue::Region => view.region.as_deref(),
            PlacementValue::InfraNode => view.infra_node.as_ref().map(NodeName::as_str),
            PlacementValue::NodeLabel(_) => host_labels.next().and_then(Option::as_deref),
        };
        values.push(value.unwrap_or_default().into());
    }
    values.into()
}

/// Limits on the pages of a stream's VMs. Receivers count the stamped labels, too.
pub(super) fn limits(settings: &StreamSettings) -> SampleLimits {
    let stamp = stamp(settings);
    // And `__name__`.
    let stamped = 1 + stamp.per_vm.len() + stamp.constant.len() + stamp.external.len();
    let limits = &settings.limits;
    SampleLimits {
        samples: limits.samples_per_page,
        labels: limits.label_names.saturating_sub(stamped).max(1),
        label_value_bytes: limits.label_value_bytes,
    }
}

/// Limits on the series of a stream's VMs.
pub(super) fn series_limits(settings: &StreamSettings) -> SeriesLimits {
    let limits = &settings.limits;
    SeriesLimits {
        per_vm: usize::try_from(limits.series_per_vm).unwrap_or(usize::MAX),
        all: usize::try_from(limits.series).unwrap_or(usize::MAX),
    }
}
