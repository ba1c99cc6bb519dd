//! `virtfleetctl labels policy test`: another policy tried on the live fleet, on this side. Nothing is sent.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::json;
use virtfleet_collector_core::labels::{
    plan::{Action, Decision, LabelInput, plan},
    policy::LabelPolicy,
};

use super::{
    client::{Answer, Client},
    fail::Fail,
    input,
};
use crate::{
    api::{LabelInputs, LabelView},
    inventory::folder,
};

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial<'a> {
    /// YAML with policies, each of which takes the place of the one with its name.
    pub(super) file: Option<&'a Path>,
    /// Policies that are gone.
    pub(super) delete: &'a [String],
    /// All policies that there are now are gone.
    pub(super) delete_all: bool,
    /// Every decision that differs, not only those by which a label is written, removed or left alone instead.
    pub(super) all: bool,
}

/// The decisions that differ, as a list of labels.
pub(super) fn test(trial: &Trial<'_>, client: &Client) -> Result<Answer, Fail> {
    let policies = match trial.file {
        Some(file) => {
            let shown = input::shown(file);
            let text = input::read(file)?;
            folder::policies(&text).map_err(|problem| Fail::Input(format!("{shown}:{problem}")))?
        }
        None => Vec::new(),
    };
    let mut unknown: BTreeSet<&str> = trial.delete.iter().map(String::as_str).collect();
    let (mut views, mut query, mut partial) = (Vec::new(), Vec::new(), false);
    loop {
        let answer = client.get("/api/v1/labels/inputs", &query, Duration::ZERO)?;
        let page: LabelInputs = answer.read()?;
        let (revision, next) = (page.revision, page.continue_token.clone());
        partial |= page.partial;
        for input in page.into_inputs() {
            for policy in &input.policies {
                unknown.remove(policy.name.as_str());
            }
            views.extend(changed(input, &policies, trial));
        }
        if let Some(next) = next {
            query = vec![("continue", next)];
            continue;
        }
        if let Some(name) = unknown.first() {
            let why = format!(
                "no LabelPropagation named {name:?} selects a UserCluster that has Nodes: kubectl get labelpropagations lists all"
            );
            return Err(Fail::NotFound(why));
        }
        views.sort_by(|a, b| a.key().cmp(&b.key()));
        return Ok(Answer {
            body: json!({ "items": views, "revision": revision, "partial": partial }),
            ..answer
        });
    }
}

fn changed(mut input: LabelInput, policies: &[LabelPolicy], trial: &Trial<'_>) -> Vec<LabelView> {
    let before = plan(&input, None).decisions;
    let stays = |old: &LabelPolicy| {
        let replaced = policies.iter().any(|new| new.name == old.name);
        !(replaced || trial.delete_all || trial.delete.contains(&old.name))
    };
    input.policies.retain(stays);
    let selecting = policies
        .iter()
        .filter(|policy| policy.clusters.matches(&input.cluster_labels));
    input.policies.extend(selecting.cloned());
    input.policies.sort_by(|a, b| a.name.cmp(&b.name));
    let mut after = plan(&input, None).decisions;
    after.retain(|new| {
        let old = before
            .iter()
            .find(|old| old.key == new.key && old.dry_run == new.dry_run);
        let differs = old.is_none_or(|old| !same(old, new));
        differs && (trial.all || writes(new) || old.is_some_and(writes))
    });
    LabelView::of(&input, after).collect()
}

/// Whether it changes a label.
fn writes(decision: &Decision) -> bool {
    matches!(decision.action, Action::Set | Action::Remove | Action::Restore)
}

/// The message names policies and is no difference of its own.
fn same(old: &Decision, new: &Decision) -> bool {
    let what = |one: &Decision| {
        let Decision {
            key,
            source,
            policy: _,
            mode,
            current,
            desired,
            action,
            reason,
            message: _,
            dry_run,
        } = one.clone();
        (key, source, mode, current, desired, action, reason, dry_run)
    };
    what(old) == what(new)
}
