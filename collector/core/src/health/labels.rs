//! `LabelsInSync`: the labels of the VM's Node have their desired values.
//!
//! Only the leader compares labels, for which it reads objects of the user cluster. The condition
//! is not part of the verdict: a VM whose Node has a wrong label is not sick.

use super::{
    evaluation::{Evaluation, HealthCondition},
    track::view,
    verdict::{HealthCause, HealthConditionView},
};
use crate::labels::plan::{Action, Decision, NodePlan};

/// State of a VM's labels.
#[derive(Debug, Clone, Copy)]
pub struct LabelPlanStatus<'a> {
    /// The last plan.
    pub plan: &'a NodePlan,
    /// Error of the last attempt to write.
    pub error: Option<&'a str>,
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
    let Some(LabelPlanStatus { plan, error }) = labels else {
        return Evaluation::not_required("NotPlanned", "the labels have not been planned yet").undecided();
    };
    let is_off = |one: &&Decision| one.action != Action::Keep && !one.dry_run;
    let off: Vec<&Decision> = plan.decisions.iter().filter(is_off).collect();
    let Some(first) = off.first() else {
        return Evaluation::holds("InLine", "every label has its desired value");
    };
    let lines: Vec<_> = off
        .iter()
        .map(|one| format!("{}: {}", one.key, one.message))
        .collect();
    let mut message = lines.join("; ");
    if let Some(error) = error {
        message = format!("{error}; {message}");
    }
    Evaluation::notice(HealthCause::Labels, first.reason.as_str(), message).next("virtfleetctl labels diff")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{health::HealthConditionStatus, labels::plan::Reason};

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
        let described = |plan: &NodePlan| {
            let labels = labels_in_sync(true, Some(LabelPlanStatus { plan, error: None }));
            (labels.status, labels.reason, labels.message)
        };
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
        assert_eq!(labels_in_sync(false, None).reason, "NoNode");
        assert!(labels_in_sync(true, None).is_undecided);
    }
}
