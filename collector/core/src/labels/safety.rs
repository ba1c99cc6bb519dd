//! `FollowIfSafe`: which of the changes may be made, all things considered (decision 8).
//!
//! Changes are judged together first, because a term of a node affinity may hold by either of two keys; when that is not safe,
//! one unit after the other, until no more can follow. What is left is unsafe alone and together, so planning again with the
//! result leaves it where it is.

use super::{
    evidence::{Evidence, Safety, check_safety},
    plan::{Action, Reason},
    steps::LabelGroup,
};
use crate::facts::Labels;

/// Holds back what is not safe. Returns whether nobody has looked and a real change waits for it.
pub(super) fn apply(
    real: &mut [LabelGroup],
    dry: &mut [LabelGroup],
    labels: &Labels,
    evidence: Option<&Evidence>,
) -> bool {
    let mut state = labels.clone();
    for unit in real.iter().filter(|unit| !needs_check(unit)) {
        state = after(&state, unit);
    }
    let mut open: Vec<&mut LabelGroup> = real.iter_mut().filter(|unit| needs_check(unit)).collect();
    let Some(evidence) = evidence else {
        let asked = !open.is_empty();
        let waiting = open
            .into_iter()
            .chain(dry.iter_mut().filter(|unit| needs_check(unit)));
        for unit in waiting {
            let message = "it follows if that is safe, and what depends on the Node's labels has not been looked at yet";
            hold(unit, Reason::SafetyUnknown, message);
        }
        return asked;
    };
    loop {
        let all = open.iter().fold(state.clone(), |state, unit| after(&state, unit));
        if check_safety(&state, &all, evidence) == Safety::Safe {
            state = all;
            open.clear();
            break;
        }
        let safe =
            |unit: &&mut LabelGroup| check_safety(&state, &after(&state, unit), evidence) == Safety::Safe;
        let Some(at) = open.iter().position(safe) else {
            break;
        };
        let unit = open.remove(at);
        state = after(&state, unit);
    }
    let waiting = open
        .into_iter()
        .chain(dry.iter_mut().filter(|unit| needs_check(unit)));
    for unit in waiting {
        if let Safety::Unsafe(reasons) = check_safety(&state, &after(&state, unit), evidence) {
            let message = format!(
                "it follows if that is safe, and it is not: {}; it follows when that has gone",
                summary(&reasons)
            );
            hold(unit, Reason::Unsafe, &message);
        }
    }
    false
}

fn needs_check(unit: &LabelGroup) -> bool {
    unit.iter().any(|step| step.if_safe() && step.changes())
}

fn after(labels: &Labels, unit: &LabelGroup) -> Labels {
    let mut labels = labels.clone();
    for step in unit.iter().filter(|step| step.changes()) {
        let key = step.decision.key.clone();
        match step.outcome.as_ref().and_then(|outcome| outcome.value.clone()) {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    labels
}

fn hold(unit: &mut LabelGroup, reason: Reason, message: &str) {
    for outcome in unit.iter_mut().filter_map(|step| step.outcome.as_mut()) {
        if outcome.changes() {
            outcome.hold(Action::Report, reason, message.to_owned());
        }
    }
}

/// A node may carry hundreds of pods; a message is one line.
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
