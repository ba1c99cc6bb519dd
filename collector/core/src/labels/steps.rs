//! Builds one step per key from desired and owned labels, grouped by what changes together.

use std::collections::BTreeSet;

use super::{
    action::Action,
    decide::{LabelOutcome, LabelState},
    decision::Decision,
    guard,
    input::{LabelInput, Reason},
    merge::{AgreedRule, Merged, MergedRule, RuleConflict},
    owned::{ANNOTATION, Owned},
    pairs,
};
use crate::facts::InfraNode;

/// Keys that change together: one key, or a topology label and its beta name.
pub(super) type LabelGroup = Vec<LabelStep>;

/// One key and its planned change.
#[derive(Debug)]
pub(super) struct LabelStep {
    /// The decision, without the outcome.
    pub(super) decision: Decision,
    /// The outcome; none for a conflict, which is not planned.
    pub(super) outcome: Option<LabelOutcome>,
}

/// Input of all steps of one Node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeContext<'a> {
    pub(super) input: &'a LabelInput,
    pub(super) host: &'a InfraNode,
    pub(super) owned: &'a Owned,
}

impl LabelStep {
    pub(super) fn changes(&self) -> bool {
        self.outcome.as_ref().is_some_and(LabelOutcome::changes)
    }

    pub(super) fn if_safe(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.if_safe)
    }

    /// The decision including the outcome.
    pub(super) fn decided(self, suspended: bool) -> Decision {
        let changes = self.changes();
        let mut decision = self.decision;
        if let Some(outcome) = self.outcome {
            (decision.action, decision.reason) = (outcome.action, outcome.reason);
            decision.message = outcome.message;
        }
        if decision.dry_run {
            decision.message.push_str("; dry run: nothing is sent");
        } else if suspended && changes {
            decision.reason = Reason::Suspended;
            decision
                .message
                .push_str("; the UserCluster is suspended: nothing is sent");
        }
        decision
    }
}

impl<'a> NodeContext<'a> {
    /// Keys that policies without `dryRun` select, and withdrawn keys.
    pub(super) fn real(&self, merged: &Merged) -> Vec<LabelGroup> {
        let desired = merged.real.iter();
        let mut units: Vec<_> = desired
            .map(|(target, desired)| self.group(target, desired, false))
            .collect();
        let seen = |key: &&String| units.iter().flatten().any(|step| step.decision.key == **key);
        let withdrawn: BTreeSet<&str> = self
            .owned
            .keys()
            .filter(|key| !seen(key))
            .map(String::as_str)
            .collect();
        let alone =
            |key: &&&str| pairs::group_key(key) == **key || !withdrawn.contains(pairs::group_key(key));
        for key in withdrawn.iter().filter(alone) {
            let beta = pairs::beta(key).filter(|beta| withdrawn.contains(beta));
            units.push(
                [Some(*key), beta]
                    .into_iter()
                    .flatten()
                    .map(|key| self.withdrawn(key))
                    .collect(),
            );
        }
        units
    }

    /// Keys that only policies with `dryRun` select.
    pub(super) fn dry(&self, merged: &Merged) -> Vec<LabelGroup> {
        let desired = merged.dry.iter();
        desired
            .map(|(target, desired)| self.group(target, desired, true))
            .collect()
    }

    fn group(&self, target: &str, desired: &MergedRule, dry_run: bool) -> LabelGroup {
        let policy = desired.policy();
        let rule = match desired {
            MergedRule::Conflict(conflict) => {
                return conflicting(self.input, self.owned, target, conflict, &policy, dry_run);
            }
            MergedRule::Agreed(rule) => rule,
        };
        let step = |key: &str, outcome| LabelStep {
            decision: Decision {
                dry_run,
                ..desired_decision(self.input, key, rule, &policy)
            },
            outcome: Some(outcome),
        };
        let state = self.state(target);
        let mut ga = state.required(rule, &policy);
        let Some(other) = pairs::beta(target) else {
            return vec![step(target, ga)];
        };
        let beta_state = self.state(other);
        let ours = state
            .owned
            .is_some_and(|entry| state.current == Some(&entry.value));
        if !ga.changes() && !ours && beta_state.current.is_none() {
            let left = beta_state.owned.filter(|_| !dry_run);
            let mut group = vec![step(target, ga)];
            group.extend(left.map(|_| self.withdrawn(other)));
            return group;
        }
        let mut beta = beta_state.required(rule, &policy);
        pairs::hold_both(&mut ga, &mut beta);
        let nothing = beta_state.current.is_none() && beta_state.owned.is_none() && !beta.changes();
        let mut group = vec![step(target, ga)];
        group.extend((!nothing).then(|| step(other, beta)));
        group
    }

    fn withdrawn(&self, key: &str) -> LabelStep {
        LabelStep {
            decision: empty_decision(self.input, key),
            outcome: Some(self.state(key).withdrawn()),
        }
    }

    fn state<'k>(&self, key: &'k str) -> LabelState<'k>
    where
        'a: 'k,
    {
        LabelState {
            key,
            current: self.input.labels.get(key),
            owned: self.owned.get(key),
            input: self.input,
            host: self.host,
        }
    }
}

/// Decisions for all desired or owned keys, without any change.
pub(super) fn frozen(
    input: &LabelInput,
    owned: &Owned,
    merged: &Merged,
    (action, reason, message): (Action, Reason, &str),
) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for (all, dry_run) in [(&merged.real, false), (&merged.dry, true)] {
        for (target, desired) in all {
            for key in members(input, owned, target) {
                let known = match desired {
                    MergedRule::Agreed(rule) => desired_decision(input, key, rule, &desired.policy()),
                    MergedRule::Conflict(_) => Decision {
                        policy: Some(desired.policy()),
                        ..empty_decision(input, key)
                    },
                };
                decisions.push(Decision { dry_run, ..known });
            }
        }
    }
    let seen = |key: &&String| {
        let mut real = decisions.iter().filter(|decision| !decision.dry_run);
        real.any(|decision| decision.key == **key)
    };
    let rest: Vec<_> = owned.keys().filter(|key| !seen(key)).collect();
    decisions.extend(rest.into_iter().map(|key| empty_decision(input, key)));
    // The annotation cannot be read: labels that the collector wrote may be left there, so report
    // it.
    if decisions.is_empty() && reason == Reason::AnnotationBroken {
        decisions.push(empty_decision(input, ANNOTATION));
    }
    for decision in &mut decisions {
        (decision.action, decision.reason) = (action, reason);
        message.clone_into(&mut decision.message);
    }
    decisions.sort_by(|a, b| (&a.key, a.dry_run).cmp(&(&b.key, b.dry_run)));
    decisions
}

fn conflicting(
    input: &LabelInput,
    owned: &Owned,
    target: &str,
    conflict: &RuleConflict,
    policy: &str,
    dry_run: bool,
) -> LabelGroup {
    let step = |key: &str| {
        let protected = guard::protected(key);
        LabelStep {
            decision: Decision {
                policy: Some(policy.to_owned()),
                action: Action::Report,
                reason: protected.as_ref().map_or(Reason::Conflict, |_| Reason::Protected),
                message: protected.unwrap_or_else(|| conflict.message.clone()),
                dry_run,
                ..empty_decision(input, key)
            },
            outcome: None,
        }
    };
    members(input, owned, target).map(step).collect()
}

/// The keys of a group that are on the Node or in the annotation, and always the first.
fn members<'a>(input: &LabelInput, owned: &Owned, target: &'a str) -> impl Iterator<Item = &'a str> {
    let there = |key: &&str| input.labels.contains_key(key) || owned.contains_key(*key);
    [target].into_iter().chain(pairs::beta(target).filter(there))
}

fn desired_decision(input: &LabelInput, key: &str, rule: &AgreedRule, policy: &str) -> Decision {
    Decision {
        source: Some(rule.source.clone()),
        policy: Some(policy.to_owned()),
        mode: Some(rule.mode),
        desired: rule.desired.clone(),
        ..empty_decision(input, key)
    }
}

fn empty_decision(input: &LabelInput, key: &str) -> Decision {
    Decision {
        key: key.to_owned(),
        source: None,
        policy: None,
        mode: None,
        current: input.labels.get(key).map(str::to_owned),
        desired: None,
        action: Action::Keep,
        reason: Reason::InLine,
        message: String::new(),
        dry_run: false,
    }
}
