//! Policies × the infra node's labels → which keys are wanted on the user cluster's Node, and by whom.
//!
//! - Within one policy an exact key beats a prefix and a longer prefix a shorter one; rules of the same reach all apply, so one
//!   label may be copied to two keys.
//! - Policies that ask for the same compose. When source, mode or takeover differ for one target, none of them applies: nothing
//!   is written and nothing removed until the admin has decided.
//! - A policy with `dryRun` never conflicts with a real one, and says nothing about a key that a real one asks for.
//! - A topology label and its beta name are one target, named by the former, and one source (see [`super::pairs`]).

use std::collections::{BTreeMap, BTreeSet};

use super::{
    pairs,
    policy::{LabelPolicy, Mode, Rule, Source, Takeover},
};
use crate::facts::Labels;

/// What is wanted, by target key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// By policies that count.
    pub real: BTreeMap<String, MergedRule>,
    /// By policies with `dryRun`, where no other asks.
    pub dry: BTreeMap<String, MergedRule>,
}

/// What the policies say about one target key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is its type")]
pub enum MergedRule {
    Agreed(AgreedRule),
    Conflict(RuleConflict),
}

/// One thing that all policies that speak of the key agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreedRule {
    /// The policies, by name.
    pub policies: Vec<String>,
    /// The key on the infra node.
    pub source: String,
    /// What the infra node has there.
    pub desired: Option<String>,
    /// What happens when it changes.
    pub mode: Mode,
    /// What happens to values of others.
    pub takeover: Takeover,
}

/// Different things that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConflict {
    /// The policies, by name; one when it contradicts itself.
    pub policies: Vec<String>,
    /// Which, and what each asks for.
    pub message: String,
}

impl MergedRule {
    /// The policies that ask, joined by `, ` (which no object's name contains).
    pub fn policy(&self) -> String {
        let (Self::Agreed(AgreedRule { policies, .. }) | Self::Conflict(RuleConflict { policies, .. })) =
            self;
        policies.join(", ")
    }
}

/// What one rule asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RuleRequest {
    source: String,
    mode: Mode,
    takeover: Takeover,
}

/// By target, who asks for what.
type RuleRequests<'a> = BTreeMap<String, BTreeMap<&'a str, BTreeSet<RuleRequest>>>;

/// Merges the policies that select a cluster. `host`: the infra node's labels. `owned`: keys that we wrote before; a key that a
/// prefix rule led to stays wanted when its source goes, so that the rule's mode decides what becomes of it.
pub fn merge<'a>(
    policies: impl IntoIterator<Item = &'a LabelPolicy>,
    host: &Labels,
    owned: impl IntoIterator<Item = &'a String>,
) -> Merged {
    let (dry, real): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| policy.dry_run);
    let mut wanted = forward(&real, host);
    for key in owned {
        let unit = pairs::group_key(key);
        if !wanted.contains_key(unit) {
            let asked = backward(&real, key, unit);
            if !asked.is_empty() {
                wanted.insert(unit.to_owned(), asked);
            }
        }
    }
    let mut only_dry = forward(&dry, host);
    only_dry.retain(|key, _| !wanted.contains_key(key));
    let settle = |asks: RuleRequests<'_>| {
        let settled = asks.into_iter().map(|(target, by)| {
            let wanted = settle(&target, &by, host);
            (target, wanted)
        });
        settled.collect()
    };
    Merged {
        real: settle(wanted),
        dry: settle(only_dry),
    }
}

/// From the labels that the infra node has, and the keys that rules name, to targets.
fn forward<'a>(policies: &[&'a LabelPolicy], host: &Labels) -> RuleRequests<'a> {
    let mut asks = RuleRequests::new();
    for policy in policies {
        let named = policy.rules.iter().filter_map(|rule| match &rule.source {
            Source::Key(key) => Some(key.as_str()),
            Source::Prefix(_) => None,
        });
        let sources: BTreeSet<&str> = host.keys().chain(named).collect();
        for source in sources {
            for rule in rules_for(policy, source) {
                let target = target(rule, source);
                let unit = pairs::group_key(&target);
                let by = asks.entry(unit.to_owned()).or_default();
                by.entry(policy.name.as_str())
                    .or_default()
                    .insert(ask(rule, source, &target));
            }
        }
    }
    asks
}

/// From a target to the sources under a prefix that would lead to it, did the infra node have them.
fn backward<'a>(
    policies: &[&'a LabelPolicy],
    key: &str,
    unit: &str,
) -> BTreeMap<&'a str, BTreeSet<RuleRequest>> {
    let mut asked: BTreeMap<&str, BTreeSet<RuleRequest>> = BTreeMap::new();
    for policy in policies {
        for rule in &policy.rules {
            let Source::Prefix(prefix) = &rule.source else {
                continue;
            };
            let Some(rest) = key.strip_prefix(rule.target.as_deref().unwrap_or(prefix)) else {
                continue;
            };
            let source = format!("{prefix}{rest}");
            if rules_for(policy, &source).any(|one| std::ptr::eq(one, rule)) {
                asked
                    .entry(policy.name.as_str())
                    .or_default()
                    .insert(ask(rule, &source, unit));
            }
        }
    }
    asked
}

/// The rules of a policy that count for a label of the infra node: those with the longest reach.
fn rules_for<'a>(policy: &'a LabelPolicy, source: &str) -> impl Iterator<Item = &'a Rule> + use<'a> {
    let reach = |rule: &Rule| match &rule.source {
        Source::Key(key) => (key == source).then_some(usize::MAX),
        Source::Prefix(prefix) => source.starts_with(prefix.as_str()).then_some(prefix.len()),
    };
    let best = policy.rules.iter().filter_map(reach).max();
    let rules = policy
        .rules
        .iter()
        .filter(|rule| best.is_some() && reach(rule) == best);
    rules.collect::<Vec<_>>().into_iter()
}

fn target(rule: &Rule, source: &str) -> String {
    match (&rule.source, &rule.target) {
        (_, None) => source.to_owned(),
        (Source::Key(_), Some(target)) => target.clone(),
        (Source::Prefix(prefix), Some(target)) => {
            format!(
                "{target}{}",
                source.strip_prefix(prefix.as_str()).unwrap_or(source)
            )
        }
    }
}

fn ask(rule: &Rule, source: &str, target: &str) -> RuleRequest {
    let unit = pairs::group_key(target);
    let source = if pairs::group_key(source) == unit {
        unit
    } else {
        source
    };
    RuleRequest {
        source: source.to_owned(),
        mode: rule.mode.unwrap_or_default(),
        takeover: rule.takeover.unwrap_or_default(),
    }
}

fn settle(target: &str, by: &BTreeMap<&str, BTreeSet<RuleRequest>>, host: &Labels) -> MergedRule {
    let policies = by.keys().map(|name| (*name).to_owned()).collect();
    let asks: BTreeSet<&RuleRequest> = by.values().flatten().collect();
    match asks.iter().next() {
        Some(ask) if asks.len() == 1 => MergedRule::Agreed(AgreedRule {
            policies,
            source: ask.source.clone(),
            desired: pairs::value(host, &ask.source, target).map(str::to_owned),
            mode: ask.mode,
            takeover: ask.takeover,
        }),
        _ => MergedRule::Conflict(RuleConflict {
            message: describe(target, by),
            policies,
        }),
    }
}

fn describe(target: &str, by: &BTreeMap<&str, BTreeSet<RuleRequest>>) -> String {
    let shown = |(name, asks): (&&str, &BTreeSet<RuleRequest>)| {
        let asks = asks.iter().map(|ask| {
            let RuleRequest {
                source,
                mode,
                takeover,
            } = ask;
            format!("{source} with {mode:?} and takeover {takeover:?}")
        });
        format!("{name} ({})", asks.collect::<Vec<_>>().join("; "))
    };
    let all = by.iter().map(shown).collect::<Vec<_>>().join(" and ");
    let who = if by.len() == 1 {
        "one LabelPropagation asks"
    } else {
        "LabelPropagations ask"
    };
    format!(
        "{who} for different things for {target}: {all}; nothing is written or removed until they agree or one rule is left"
    )
}

#[cfg(test)]
mod tests;
