//! What people are told of a VM's labels: moves that were followed, and troubles when they are first seen.

use virtfleet_collector_core::labels::plan::{Action, Decision, LabelInput, Reason};
use virtfleet_wire::ids::VmKey;

use super::{
    book::LabelStatus,
    shared::{Drafted, Shared},
};
use crate::events::{About, Notice};

impl<W> Shared<W> {
    pub(super) fn tell_moved(&self, key: &VmKey, draft: &Drafted) {
        let moved = draft.decisions.iter().filter(|one| one.reason == Reason::Moved);
        let changes = moved
            .filter(|one| one.action == Action::Set && !one.dry_run)
            .map(|one| {
                let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
                format!("{}: {} → {}", one.key, value(&one.current), value(&one.desired))
            });
        let changes: Vec<_> = changes.collect();
        if !changes.is_empty() {
            let host = draft.input.host.as_ref().map_or("-", |host| host.name.as_str());
            let note = format!(
                "Node {} follows to {host}: {}",
                draft.input.node,
                changes.join(", ")
            );
            self.events
                .tell(Notice::normal(about(key, &draft.input), "LabelsMoved", note));
        }
    }

    /// What is new since the last plan, and what a person should do something about.
    pub(super) fn tell_troubles(
        &self,
        key: &VmKey,
        input: &LabelInput,
        before: Option<&LabelStatus>,
        after: &LabelStatus,
    ) {
        let known = |one: &Decision| {
            let known = before.iter().flat_map(|before| &before.plan.decisions);
            known
                .into_iter()
                .any(|old| (&old.key, old.reason) == (&one.key, one.reason))
        };
        for one in after
            .plan
            .decisions
            .iter()
            .filter(|one| !one.dry_run && !known(one))
        {
            let Some(reason) = trouble(one.reason) else {
                continue;
            };
            let note = format!("Node {}, {}: {}", input.node, one.key, one.message);
            self.events
                .tell(Notice::warning(about(key, input), reason, note.clone()));
            if one.reason == Reason::Conflict {
                // Their names, all in one text.
                for policy in one.policy.iter().flat_map(|names| names.split(", ")) {
                    let note = format!("{}: {}", one.key, one.message);
                    self.events
                        .tell(Notice::warning(About::Policy(policy.to_owned()), reason, note));
                }
            }
        }
        for one in after
            .contested
            .iter()
            .filter(|one| before.is_none_or(|old| !old.contested.contains(*one)))
        {
            let note = format!(
                "Node {}, {one}: somebody else keeps changing it; left alone for ten minutes. Find out who writes it, or take it out of the LabelPropagation",
                input.node
            );
            self.events
                .tell(Notice::warning(about(key, input), "LabelContested", note));
        }
    }
}

fn about(key: &VmKey, input: &LabelInput) -> About {
    About::Vm(key.clone(), input.vmi_uid.clone())
}

fn trouble(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Drift => Some("LabelDrift"),
        Reason::Unsafe => Some("LabelUnsafe"),
        Reason::Foreign => Some("LabelForeign"),
        Reason::KubeletImposes => Some("LabelKubeletImposes"),
        Reason::Conflict => Some("LabelConflict"),
        Reason::InvalidValue => Some("LabelInvalid"),
        Reason::AnnotationBroken => Some("LabelAnnotationBroken"),
        _ => None,
    }
}
