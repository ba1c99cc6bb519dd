//! From what is wanted and what is owned to one step a key, in units of what changes together.

use std::collections::BTreeSet;

use super::{
    decide::{Case, Verdict},
    guard,
    merge::{Conflict, Merged, Wanted, Wish},
    owned::{ANNOTATION, Owned},
    pairs,
    plan::{Action, Decision, LabelInput, Reason},
};
use crate::facts::InfraNode;

/// What changes together: one key, or a topology label and its beta name.
pub(super) type Unit = Vec<Step>;

/// One key.
#[derive(Debug)]
pub(super) struct Step {
    /// What is known of it; what is done comes from the verdict.
    pub(super) decision: Decision,
    /// What becomes of it; none when it is not looked at (a conflict).
    pub(super) verdict: Option<Verdict>,
}

/// What lies open while a Node is planned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Desk<'a> {
    pub(super) input: &'a LabelInput,
    pub(super) host: &'a InfraNode,
    pub(super) owned: &'a Owned,
}

impl Step {
    pub(super) fn changes(&self) -> bool {
        self.verdict.as_ref().is_some_and(Verdict::changes)
    }

    pub(super) fn if_safe(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.if_safe)
    }

    /// The decision, with the verdict in it.
    pub(super) fn decided(self, suspended: bool) -> Decision {
        let changes = self.changes();
        let mut decision = self.decision;
        if let Some(verdict) = self.verdict {
            (decision.action, decision.reason) = (verdict.action, verdict.reason);
            decision.message = verdict.message;
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

impl<'a> Desk<'a> {
    /// What real policies ask for, and what is withdrawn.
    pub(super) fn real(&self, merged: &Merged) -> Vec<Unit> {
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
        let alone = |key: &&&str| pairs::unit(key) == **key || !withdrawn.contains(pairs::unit(key));
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
    pub(super) fn dry(&self, merged: &Merged) -> Vec<Unit> {
        let wanted = merged.dry.iter();
        wanted
            .map(|(target, wanted)| self.unit(target, wanted, true))
            .collect()
    }

    fn unit(&self, target: &str, wanted: &Wanted, dry_run: bool) -> Unit {
        let policy = wanted.policy();
        let wish = match wanted {
            Wanted::Conflict(conflict) => {
                return conflicting(self.input, self.owned, target, conflict, &policy, dry_run);
            }
            Wanted::Wish(wish) => wish,
        };
        let step = |key: &str, verdict| Step {
            decision: Decision {
                dry_run,
                ..wished(self.input, key, wish, &policy)
            },
            verdict: Some(verdict),
        };
        let case = self.case(target);
        let mut ga = case.wanted(wish, &policy);
        let Some(other) = pairs::beta(target) else {
            return vec![step(target, ga)];
        };
        let case_of_beta = self.case(other);
        let ours = case.owned.is_some_and(|entry| case.current == Some(&entry.value));
        if !ga.changes() && !ours && case_of_beta.current.is_none() {
            let left = case_of_beta.owned.filter(|_| !dry_run);
            let mut unit = vec![step(target, ga)];
            unit.extend(left.map(|_| self.withdrawn(other)));
            return unit;
        }
        let mut beta = case_of_beta.wanted(wish, &policy);
        pairs::couple(&mut ga, &mut beta);
        let nothing = case_of_beta.current.is_none() && case_of_beta.owned.is_none() && !beta.changes();
        let mut unit = vec![step(target, ga)];
        unit.extend((!nothing).then(|| step(other, beta)));
        unit
    }

    fn withdrawn(&self, key: &str) -> Step {
        Step {
            decision: bare(self.input, key),
            verdict: Some(self.case(key).withdrawn()),
        }
    }

    fn case<'k>(&self, key: &'k str) -> Case<'k>
    where
        'a: 'k,
    {
        Case {
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
                    Wanted::Wish(wish) => wished(input, key, wish, &wanted.policy()),
                    Wanted::Conflict(_) => Decision {
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
    conflict: &Conflict,
    policy: &str,
    dry_run: bool,
) -> Unit {
    let step = |key: &str| {
        let protected = guard::protected(key);
        Step {
            decision: Decision {
                policy: Some(policy.to_owned()),
                action: Action::Report,
                reason: protected.as_ref().map_or(Reason::Conflict, |_| Reason::Protected),
                message: protected.unwrap_or_else(|| conflict.message.clone()),
                dry_run,
                ..bare(input, key)
            },
            verdict: None,
        }
    };
    members(input, owned, target).map(step).collect()
}

/// The keys of a unit that the Node has or had from us, the first in any case.
fn members<'a>(input: &LabelInput, owned: &Owned, target: &'a str) -> impl Iterator<Item = &'a str> {
    let there = |key: &&str| input.labels.contains_key(key) || owned.contains_key(*key);
    [target].into_iter().chain(pairs::beta(target).filter(there))
}

fn wished(input: &LabelInput, key: &str, wish: &Wish, policy: &str) -> Decision {
    Decision {
        source: Some(wish.source.clone()),
        policy: Some(policy.to_owned()),
        mode: Some(wish.mode),
        desired: wish.desired.clone(),
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
