//! `FollowIfSafe`: which of the changes may be made, all things considered (decision 8).
//!
//! Changes are judged together first, because a term of a node affinity may hold by either of two keys; when that is not safe,
//! one unit after the other, until no more can follow. What is left is unsafe alone and together, so planning again with the
//! result leaves it where it is.

use super::{
    evidence::{Evidence, Safety, judge},
    plan::{Action, Reason},
    steps::Unit,
};
use crate::facts::Labels;

/// Holds back what is not safe. Returns whether nobody has looked and a real change waits for it.
pub(super) fn settle(
    real: &mut [Unit],
    dry: &mut [Unit],
    labels: &Labels,
    evidence: Option<&Evidence>,
) -> bool {
    let mut state = labels.clone();
    for unit in real.iter().filter(|unit| !waits(unit)) {
        state = with(&state, unit);
    }
    let mut open: Vec<&mut Unit> = real.iter_mut().filter(|unit| waits(unit)).collect();
    let Some(evidence) = evidence else {
        let asked = !open.is_empty();
        let waiting = open.into_iter().chain(dry.iter_mut().filter(|unit| waits(unit)));
        for unit in waiting {
            let message = "it follows if that is safe, and what depends on the Node's labels has not been looked at yet";
            hold(unit, Reason::SafetyUnknown, message);
        }
        return asked;
    };
    loop {
        let all = open.iter().fold(state.clone(), |state, unit| with(&state, unit));
        if judge(&state, &all, evidence) == Safety::Safe {
            state = all;
            open.clear();
            break;
        }
        let safe = |unit: &&mut Unit| judge(&state, &with(&state, unit), evidence) == Safety::Safe;
        let Some(at) = open.iter().position(safe) else {
            break;
        };
        let unit = open.remove(at);
        state = with(&state, unit);
    }
    let waiting = open.into_iter().chain(dry.iter_mut().filter(|unit| waits(unit)));
    for unit in waiting {
        if let Safety::Unsafe(reasons) = judge(&state, &with(&state, unit), evidence) {
            let message = format!(
                "it follows if that is safe, and it is not: {}; it follows when that has gone",
                summary(&reasons)
            );
            hold(unit, Reason::Unsafe, &message);
        }
    }
    false
}

fn waits(unit: &Unit) -> bool {
    unit.iter().any(|step| step.if_safe() && step.changes())
}

fn with(labels: &Labels, unit: &Unit) -> Labels {
    let mut labels = labels.clone();
    for step in unit.iter().filter(|step| step.changes()) {
        let key = step.decision.key.clone();
        match step.verdict.as_ref().and_then(|verdict| verdict.value.clone()) {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    labels
}

fn hold(unit: &mut Unit, reason: Reason, message: &str) {
    for verdict in unit.iter_mut().filter_map(|step| step.verdict.as_mut()) {
        if verdict.changes() {
            verdict.hold(Action::Report, reason, message.to_owned());
        }
    }
}

/// A node may carry hundreds of pods; a message is one line.
fn summary(reasons: &[String]) -> String {
    const MOST: usize = 3;
    let named = reasons.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(MOST) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}
