//! `LabelsInSync`: the labels of the VM's Node have their desired values.
//!
//! Only the leader compares labels, for which it reads objects of the user cluster. The condition
//! is not part of the verdict: a VM whose Node has a wrong label is not sick.

use std::collections::BTreeSet;

use super::{
    evaluation::{Evaluation, HealthCondition},
    track::view,
    verdict::{HealthCause, HealthConditionView},
};
use crate::labels::plan::{Action, Decision, NodePlan, Reason};

/// State of a VM's labels.
#[derive(Debug, Clone, Copy)]
pub struct LabelPlanStatus<'a> {
    /// The last plan.
    pub plan: &'a NodePlan,
    /// Error of the last attempt to write.
    pub error: Option<&'a str>,
    /// Keys that another writer keeps changing.
    pub contested: &'a BTreeSet<String>,
}

/// The condition of a VM, which is a Node of a user cluster if `has_node`; `labels` is none until
/// the leader has planned them.
pub fn labels_in_sync(has_node: bool, labels: Option<LabelPlanStatus<'_>>) -> HealthConditionView {
    view(HealthCondition::LabelsInSync, &evaluate(has_node, labels), 0)
}

fn evaluate(has_node: bool, labels: Option<LabelPlanStatus<'_>>) -> Evaluation {
    if !has_node {
        return Evaluation::not_required("NoNode", "the VM is not a Node of a user cluster");
    }
    let Some(LabelPlanStatus {
        plan,
        error,
        contested,
    }) = labels
    else {
        return Evaluation::not_required("NotPlanned", "the labels have not been planned yet").undecided();
    };
    let is_off = |one: &&Decision| one.action != Action::Keep && !one.dry_run;
    let off: Vec<&Decision> = plan.decisions.iter().filter(is_off).collect();
    let Some(first) = off.first() else {
        return Evaluation::holds("InLine", "every label has its desired value");
    };
    let is_contested = |one: &&&Decision| contested.contains(&one.key);
    let reason = match off.iter().find(is_contested) {
        Some(_) => Reason::Contested,
        None => first.reason,
    };
    let line = |one: &&Decision| {
        let message = if contested.contains(&one.key) {
            "another writer keeps changing it, so it is not written for ten minutes"
        } else {
            &one.message
        };
        format!("{}: {message}", one.key)
    };
    let lines: Vec<_> = off.iter().map(line).collect();
    let mut message = lines.join("; ");
    if let Some(error) = error {
        message = format!("{error}; {message}");
    }
    Evaluation::notice(HealthCause::Labels, reason.as_str(), message).next("virtfleetctl labels diff")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthConditionStatus;

    #[test]
    fn labels_are_true_when_only_dry_runs_differ() {
        let one = |action, dry_run| Decision {
            key: "zone".into(),
            source: None,
            policy: None,
            mode: None,
            current: None,
            desired: None,
            action,
            reason: Reason::Unsafe,
            message: "a volume is bound".into(),
            dry_run,
        };
        let mut plan = NodePlan {
            decisions: vec![one(Action::Keep, false), one(Action::Set, true)],
            ..NodePlan::default()
        };
        let described_with = |plan: &NodePlan, contested: &[&str]| {
            let contested = contested.iter().map(|key| (*key).to_owned()).collect();
            let labels = LabelPlanStatus {
                plan,
                error: None,
                contested: &contested,
            };
            let labels = labels_in_sync(true, Some(labels));
            (labels.status, labels.reason, labels.message)
        };
        let described = |plan: &NodePlan| described_with(plan, &[]);
        assert_eq!(described(&plan).0, HealthConditionStatus::True);
        plan.decisions.push(one(Action::Report, false));
        assert_eq!(
            described(&plan),
            (
                HealthConditionStatus::False,
                "Unsafe".into(),
                "zone: a volume is bound".into()
            )
        );
        let (_, reason, message) = described_with(&plan, &["zone"]);
        assert_eq!(reason, "Contested");
        assert!(message.contains("another writer"), "{message}");
        assert_eq!(labels_in_sync(false, None).reason, "NoNode");
        assert!(labels_in_sync(true, None).is_undecided);
    }
}
