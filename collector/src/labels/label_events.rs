//! Kubernetes Events about a VM's labels: moves that a Node followed, and problems when they first
//! appear.

use virtfleet_collector_core::labels::plan::{Action, Decision, LabelInput, Reason};
use virtfleet_wire::ids::VmKey;

use super::{draft::Draft, reconciler::LabelReconciler, status_store::LabelStatus};
use crate::events::{EventObject, NewEvent};

impl<W> LabelReconciler<W> {
    /// Records the labels that followed the VM to its infra node.
    pub(super) fn record_moves(&self, key: &VmKey, draft: &Draft) {
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
            let event = NewEvent::normal(about(key, &draft.input), "LabelsMoved", note);
            self.parts.events.record(event);
        }
    }

    /// Records the problems that the last plan did not have and that need an admin.
    pub(super) fn record_problems(
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
            let Some(reason) = event_reason(one.reason) else {
                continue;
            };
            let note = format!("Node {}, {}: {}", input.node, one.key, one.message);
            let event = NewEvent::warning(about(key, input), reason, note);
            self.parts.events.record(event);
            if one.reason == Reason::Conflict {
                // `policy` has all names, joined by commas.
                for policy in one.policy.iter().flat_map(|names| names.split(", ")) {
                    let policy = EventObject::Policy(policy.to_owned());
                    let note = format!("{}: {}", one.key, one.message);
                    self.parts.events.record(NewEvent::warning(policy, reason, note));
                }
            }
        }
        for one in after
            .contested
            .iter()
            .filter(|one| before.is_none_or(|old| !old.contested.contains(*one)))
        {
            let note = format!(
                "Node {}, {one}: another writer keeps changing it; not written for ten minutes. Find the other writer, or remove the key from the LabelPropagation",
                input.node
            );
            let event = NewEvent::warning(about(key, input), "LabelContested", note);
            self.parts.events.record(event);
        }
    }
}

fn about(key: &VmKey, input: &LabelInput) -> EventObject {
    EventObject::Vm {
        key: key.clone(),
        uid: input.vmi_uid.clone(),
        cluster: Some(input.cluster.clone()),
    }
}

fn event_reason(reason: Reason) -> Option<&'static str> {
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
