//! `FollowIfSafe`: selects the changes that are safe (decision 8).
//!
//! All changes are checked together first, because a term of a node affinity may match by either of
//! two keys. If that is not safe, the groups are checked one by one until no further one is safe.
//! The remaining changes are unsafe alone and together, so planning again with the result gives the
//! same.

use super::{
    evidence::{Evidence, Safety, check_safety},
    plan::{Action, Reason},
    steps::LabelGroup,
};
use crate::facts::Labels;

/// Drops unsafe changes. Returns whether there is no evidence and a real change waits for it.
pub(super) fn apply(
    real: &mut [LabelGroup],
    dry: &mut [LabelGroup],
    labels: &Labels,
    evidence: Option<&Evidence>,
) -> bool {
    let mut state = labels.clone();
    for group in real.iter().filter(|group| !needs_check(group)) {
        state = after(&state, group);
    }
    let mut open: Vec<&mut LabelGroup> = real.iter_mut().filter(|group| needs_check(group)).collect();
    let Some(evidence) = evidence else {
        let requested = !open.is_empty();
        let waiting = open
            .into_iter()
            .chain(dry.iter_mut().filter(|group| needs_check(group)));
        for group in waiting {
            let message = "it follows if that is safe, and the objects that depend on the Node's labels have not been read yet";
            hold(group, Reason::SafetyUnknown, message);
        }
        return requested;
    };
    loop {
        let all = open
            .iter()
            .fold(state.clone(), |state, group| after(&state, group));
        if check_safety(&state, &all, evidence) == Safety::Safe {
            state = all;
            open.clear();
            break;
        }
        let safe =
            |group: &&mut LabelGroup| check_safety(&state, &after(&state, group), evidence) == Safety::Safe;
        let Some(at) = open.iter().position(safe) else {
            break;
        };
        let group = open.remove(at);
        state = after(&state, group);
    }
    let waiting = open
        .into_iter()
        .chain(dry.iter_mut().filter(|group| needs_check(group)));
    for group in waiting {
        if let Safety::Unsafe(reasons) = check_safety(&state, &after(&state, group), evidence) {
            let message = format!(
                "it is not safe to follow now: {}; it follows when that no longer holds",
                summary(&reasons)
            );
            hold(group, Reason::Unsafe, &message);
        }
    }
    false
}

fn needs_check(group: &LabelGroup) -> bool {
    group.iter().any(|step| step.if_safe() && step.changes())
}

fn after(labels: &Labels, group: &LabelGroup) -> Labels {
    let mut labels = labels.clone();
    for step in group.iter().filter(|step| step.changes()) {
        let key = step.decision.key.clone();
        match step.outcome.as_ref().and_then(|outcome| outcome.value.clone()) {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    labels
}

fn hold(group: &mut LabelGroup, reason: Reason, message: &str) {
    for outcome in group.iter_mut().filter_map(|step| step.outcome.as_mut()) {
        if outcome.changes() {
            outcome.hold(Action::Report, reason, message.to_owned());
        }
    }
}

/// The first reasons and the number of the others: a node may run hundreds of pods.
fn summary(reasons: &[String]) -> String {
    const MAX_REASONS: usize = 3;
    let named = reasons
        .iter()
        .take(MAX_REASONS)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    match reasons.len().saturating_sub(MAX_REASONS) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}
