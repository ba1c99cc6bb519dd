//! Merges policies with the infra node's labels: the desired keys on the user cluster's Node, and
//! the policies that require them.
//!
//! - Within one policy an exact key takes precedence over a prefix, and a longer prefix over a
//!   shorter one. Rules of equal precedence all apply, so one label may be copied to two keys.
//! - Policies with equal rules compose. If source, mode or takeover differ for one target, none of
//!   them applies: nothing is written or removed until the admin resolves the conflict.
//! - A policy with `dryRun` never conflicts with a real one, and is ignored for keys that a real
//!   one selects.
//! - A topology label and its beta name are one target, under the name of the former, and one
//!   source (see [`super::pairs`]).

use std::collections::{BTreeMap, BTreeSet};

use super::{
    pairs,
    policy::{LabelPolicy, Mode, Rule, Source, Takeover},
};
use crate::facts::Labels;

/// Desired keys, by target key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// By policies without `dryRun`.
    pub real: BTreeMap<String, MergedRule>,
    /// By policies with `dryRun`, for keys that no other policy selects.
    pub dry: BTreeMap<String, MergedRule>,
}

/// Result of the merge for one target key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedRule {
    Agreed(AgreedRule),
    Conflict(RuleConflict),
}

/// A rule on which all policies with this target key agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreedRule {
    /// The policies, by name.
    pub policies: Vec<String>,
    /// The key on the infra node.
    pub source: String,
    /// The infra node's value of that key.
    pub desired: Option<String>,
    /// What happens when the value changes.
    pub mode: Mode,
    /// What happens to values of other writers.
    pub takeover: Takeover,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConflict {
    /// The policies, by name; one if it contradicts itself.
    pub policies: Vec<String>,
    /// The contradiction, for display: what each policy requires.
    pub message: String,
}

impl MergedRule {
    /// The policies, joined by `, ` (which no object's name contains).
    pub fn policy(&self) -> String {
        let (Self::Agreed(AgreedRule { policies, .. }) | Self::Conflict(RuleConflict { policies, .. })) =
            self;
        policies.join(", ")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RuleRequest {
    source: String,
    mode: Mode,
    takeover: Takeover,
}

/// By target: the requests of each policy.
type RuleRequests<'a> = BTreeMap<String, BTreeMap<&'a str, BTreeSet<RuleRequest>>>;

/// Merges the policies that select a cluster. `host`: the infra node's labels. `owned`: keys that
/// the collector wrote before. A key written for a prefix rule is still desired when its source is
/// gone, so that the rule's mode decides what happens to it.
pub fn merge<'a>(
    policies: impl IntoIterator<Item = &'a LabelPolicy>,
    host: &Labels,
    owned: impl IntoIterator<Item = &'a String>,
) -> Merged {
    let (dry, real): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| policy.dry_run);
    let mut desired_keys = forward(&real, host);
    for key in owned {
        let group = pairs::group_key(key);
        if !desired_keys.contains_key(group) {
            let requests = backward(&real, key, group);
            if !requests.is_empty() {
                desired_keys.insert(group.to_owned(), requests);
            }
        }
    }
    let mut only_dry = forward(&dry, host);
    only_dry.retain(|key, _| !desired_keys.contains_key(key));
    let resolve_all = |requests: RuleRequests<'_>| {
        let rules = requests.into_iter().map(|(target, by)| {
            let rule = resolve(&target, &by, host);
            (target, rule)
        });
        rules.collect()
    };
    Merged {
        real: resolve_all(desired_keys),
        dry: resolve_all(only_dry),
    }
}

/// Maps the labels of the infra node, and the keys that rules name, to targets.
fn forward<'a>(policies: &[&'a LabelPolicy], host: &Labels) -> RuleRequests<'a> {
    let mut requests = RuleRequests::new();
    for policy in policies {
        let named = policy.rules.iter().filter_map(|rule| match &rule.source {
            Source::Key(key) => Some(key.as_str()),
            Source::Prefix(_) => None,
        });
        let sources: BTreeSet<&str> = host.keys().chain(named).collect();
        for source in sources {
            for rule in rules_for(policy, source) {
                let target = target(rule, source);
                let group = pairs::group_key(&target);
                let by = requests.entry(group.to_owned()).or_default();
                by.entry(policy.name.as_str())
                    .or_default()
                    .insert(request(rule, source, &target));
            }
        }
    }
    requests
}

/// Maps a target to the sources under a prefix that would lead to it if the infra node had them.
fn backward<'a>(
    policies: &[&'a LabelPolicy],
    key: &str,
    group: &str,
) -> BTreeMap<&'a str, BTreeSet<RuleRequest>> {
    let mut requests: BTreeMap<&str, BTreeSet<RuleRequest>> = BTreeMap::new();
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
                requests
                    .entry(policy.name.as_str())
                    .or_default()
                    .insert(request(rule, &source, group));
            }
        }
    }
    requests
}

/// The rules of a policy that apply to a label of the infra node: those with the highest
/// precedence.
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

fn request(rule: &Rule, source: &str, target: &str) -> RuleRequest {
    let group = pairs::group_key(target);
    let source = if pairs::group_key(source) == group {
        group
    } else {
        source
    };
    RuleRequest {
        source: source.to_owned(),
        mode: rule.mode.unwrap_or_default(),
        takeover: rule.takeover.unwrap_or_default(),
    }
}

fn resolve(target: &str, by: &BTreeMap<&str, BTreeSet<RuleRequest>>, host: &Labels) -> MergedRule {
    let policies = by.keys().map(|name| (*name).to_owned()).collect();
    let requests: BTreeSet<&RuleRequest> = by.values().flatten().collect();
    match requests.iter().next() {
        Some(request) if requests.len() == 1 => MergedRule::Agreed(AgreedRule {
            policies,
            source: request.source.clone(),
            desired: pairs::value(host, &request.source, target).map(str::to_owned),
            mode: request.mode,
            takeover: request.takeover,
        }),
        _ => MergedRule::Conflict(RuleConflict {
            message: describe(target, by),
            policies,
        }),
    }
}

fn describe(target: &str, by: &BTreeMap<&str, BTreeSet<RuleRequest>>) -> String {
    let shown = |(name, requests): (&&str, &BTreeSet<RuleRequest>)| {
        let requests = requests.iter().map(|request| {
            let RuleRequest {
                source,
                mode,
                takeover,
            } = request;
            format!("{source} with {mode:?} and takeover {takeover:?}")
        });
        format!("{name} ({})", requests.collect::<Vec<_>>().join("; "))
    };
    let all = by.iter().map(shown).collect::<Vec<_>>().join(" and ");
    let who = if by.len() == 1 {
        "one LabelPropagation has"
    } else {
        "LabelPropagations have"
    };
    format!(
        "{who} contradicting rules for {target}: {all}; nothing is written or removed until they agree or only one is left"
    )
}

#[cfg(test)]
mod tests;
