//! From what is wanted and what is owned to one step a key, in units of what changes together.

use std::collections::BTreeSet;

use super::{
    decide::{LabelOutcome, LabelState},
    guard,
    merge::{AgreedRule, Merged, MergedRule, RuleConflict},
    owned::{ANNOTATION, Owned},
    pairs,
    plan::{Action, Decision, LabelInput, Reason},
};
use crate::facts::InfraNode;

/// What changes together: one key, or a topology label and its beta name.
pub(super) type LabelGroup = Vec<LabelStep>;

/// One key.
#[derive(Debug)]
pub(super) struct LabelStep {
    /// What is known of it; what is done comes from the outcome.
    pub(super) decision: Decision,
    /// What becomes of it; none when it is not looked at (a conflict).
    pub(super) outcome: Option<LabelOutcome>,
}

/// What lies open while a Node is planned.
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

    /// The decision, with the outcome in it.
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
    /// What real policies ask for, and what is withdrawn.
    pub(super) fn real(&self, merged: &Merged) -> Vec<LabelGroup> {
        let wanted = merged.real.iter();
        let mut units: Vec<_> = wanted
            .map(|(target, wanted)| self.unit(target, wanted, false))
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

    /// What only policies with `dryRun` ask for.
    pub(super) fn dry(&self, merged: &Merged) -> Vec<LabelGroup> {
        let wanted = merged.dry.iter();
        wanted
            .map(|(target, wanted)| self.unit(target, wanted, true))
            .collect()
    }

    fn unit(&self, target: &str, wanted: &MergedRule, dry_run: bool) -> LabelGroup {
        let policy = wanted.policy();
        let rule = match wanted {
            MergedRule::Conflict(conflict) => {
                return conflicting(self.input, self.owned, target, conflict, &policy, dry_run);
            }
            MergedRule::Agreed(rule) => rule,
        };
        let step = |key: &str, outcome| LabelStep {
            decision: Decision {
                dry_run,
                ..wished(self.input, key, rule, &policy)
            },
            outcome: Some(outcome),
        };
        let state = self.state(target);
        let mut ga = state.wanted(rule, &policy);
        let Some(other) = pairs::beta(target) else {
            return vec![step(target, ga)];
        };
        let case_of_beta = self.state(other);
        let ours = state
            .owned
            .is_some_and(|entry| state.current == Some(&entry.value));
        if !ga.changes() && !ours && case_of_beta.current.is_none() {
            let left = case_of_beta.owned.filter(|_| !dry_run);
            let mut unit = vec![step(target, ga)];
            unit.extend(left.map(|_| self.withdrawn(other)));
            return unit;
        }
        let mut beta = case_of_beta.wanted(rule, &policy);
        pairs::hold_both(&mut ga, &mut beta);
        let nothing = case_of_beta.current.is_none() && case_of_beta.owned.is_none() && !beta.changes();
        let mut unit = vec![step(target, ga)];
        unit.extend((!nothing).then(|| step(other, beta)));
        unit
    }

    fn withdrawn(&self, key: &str) -> LabelStep {
        LabelStep {
            decision: bare(self.input, key),
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

/// Decisions for all that is wanted or owned, none of which changes.
pub(super) fn frozen(
    input: &LabelInput,
    owned: &Owned,
    merged: &Merged,
    (action, reason, message): (Action, Reason, &str),
) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for (all, dry_run) in [(&merged.real, false), (&merged.dry, true)] {
        for (target, wanted) in all {
            for key in members(input, owned, target) {
                let known = match wanted {
                    MergedRule::Agreed(rule) => wished(input, key, rule, &wanted.policy()),
                    MergedRule::Conflict(_) => Decision {
                        policy: Some(wanted.policy()),
                        ..bare(input, key)
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
    decisions.extend(rest.into_iter().map(|key| bare(input, key)));
    // Labels that we wrote may be left there, and nobody would hear of it.
    if decisions.is_empty() && reason == Reason::AnnotationBroken {
        decisions.push(bare(input, ANNOTATION));
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
                ..bare(input, key)
            },
            outcome: None,
        }
    };
    members(input, owned, target).map(step).collect()
}

/// The keys of a unit that the Node has or had from us, the first in any state.
fn members<'a>(input: &LabelInput, owned: &Owned, target: &'a str) -> impl Iterator<Item = &'a str> {
    let there = |key: &&str| input.labels.contains_key(key) || owned.contains_key(*key);
    [target].into_iter().chain(pairs::beta(target).filter(there))
}

fn wished(input: &LabelInput, key: &str, rule: &AgreedRule, policy: &str) -> Decision {
    Decision {
        source: Some(rule.source.clone()),
        policy: Some(policy.to_owned()),
        mode: Some(rule.mode),
        desired: rule.desired.clone(),
        ..bare(input, key)
    }
}

fn bare(input: &LabelInput, key: &str) -> Decision {
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
