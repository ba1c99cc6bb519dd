//! Checks of a VM's specification.

use virtfleet_collector_core::spec_view::{SpecCheckView, SpecResult};

/// One check of each result.
pub(super) fn all() -> Vec<SpecCheckView> {
    vec![
        SpecCheckView {
            path: "spec.domain.cpu".to_owned(),
            asked: "4".to_owned(),
            seen: Some("2".to_owned()),
            result: SpecResult::Differs,
            matters: true,
            why: "the guest has less computing power than the VM was given".to_owned(),
        },
        SpecCheckView {
            path: "spec.domain.memory.guest".to_owned(),
            asked: "4096 MiB".to_owned(),
            seen: Some("3911 MiB".to_owned()),
            result: SpecResult::Agrees,
            matters: true,
            why: String::new(),
        },
        SpecCheckView {
            path: "spec.domain.ioThreadsPolicy".to_owned(),
            asked: "auto".to_owned(),
            seen: None,
            result: SpecResult::NotSeen,
            matters: false,
            why: "a property of the infra node that no guest can see".to_owned(),
        },
    ]
}
