//! `virtfleetctl labels policy test`: plans the labels of the live fleet with other policies,
//! locally. Nothing is sent.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::json;
use virtfleet_collector_core::labels::{
    plan::{Action, Decision, LabelInput, plan},
    policy::LabelPolicy,
};

use super::{
    client::{ApiResponse, Client},
    fail::Fail,
    input,
};
use crate::{
    api::{LabelInputs, LabelView},
    inventory::folder,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyTest<'a> {
    /// YAML with policies, each of which replaces the one with its name.
    pub(super) file: Option<&'a Path>,
    /// Names of policies to remove.
    pub(super) delete: &'a [String],
    /// Remove all present policies.
    pub(super) delete_all: bool,
    /// Show every changed decision, not only those that write a label before or after.
    pub(super) all: bool,
}

/// The changed decisions, as a list of labels.
pub(super) fn test(test_case: &PolicyTest<'_>, client: &Client) -> Result<ApiResponse, Fail> {
    let policies = match test_case.file {
        Some(file) => {
            let shown = input::shown(file);
            let text = input::read(file)?;
            folder::policies(&text).map_err(|problem| Fail::Input(format!("{shown}:{problem}")))?
        }
        None => Vec::new(),
    };
    let mut unknown: BTreeSet<&str> = test_case.delete.iter().map(String::as_str).collect();
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
            views.extend(changed(input, &policies, test_case));
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
        return Ok(ApiResponse {
            body: json!({ "items": views, "revision": revision, "partial": partial }),
            ..answer
        });
    }
}

fn changed(mut input: LabelInput, policies: &[LabelPolicy], test_case: &PolicyTest<'_>) -> Vec<LabelView> {
    let before = plan(&input, None).decisions;
    let stays = |old: &LabelPolicy| {
        let replaced = policies.iter().any(|new| new.name == old.name);
        !(replaced || test_case.delete_all || test_case.delete.contains(&old.name))
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
        differs && (test_case.all || writes(new) || old.is_some_and(writes))
    });
    LabelView::of(&input, after).collect()
}

/// Whether the decision writes a label.
fn writes(decision: &Decision) -> bool {
    matches!(decision.action, Action::Set | Action::Remove | Action::Restore)
}

/// Differences of the message alone are ignored: it names policies.
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
