//! `virtfleetctl labels policy test`: another policy tried on the live fleet, on this side. Nothing is sent.

use std::{fs, path::Path, time::Duration};

use serde_json::json;
use virtfleet_collector_core::{
    labels::{
        plan::{Decision, LabelInput, plan},
        policy::LabelPolicy,
    },
    view::List,
};

use super::{
    client::{Answer, Client},
    fail::Fail,
};
use crate::{api::LabelView, inventory::folder};

/// The decisions that differ with the file's policies, each in the place of the one with its name, as a list of labels.
pub(super) fn test(file: &Path, client: &Client) -> Result<Answer, Fail> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| Fail::Input(format!("{shown}: {error}")))?;
    let policies = folder::policies(&text).map_err(|problem| Fail::Input(format!("{shown}:{problem}")))?;
    let answer = client.get("/api/v1/labels/inputs", &[], Duration::ZERO)?;
    let list: List<LabelInput> = answer.read()?;
    let mut views: Vec<_> = list
        .items
        .into_iter()
        .flat_map(|input| changed(input, &policies))
        .collect();
    views.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(Answer {
        body: json!({ "items": views, "revision": list.revision, "partial": list.partial }),
        ..answer
    })
}

fn changed(mut input: LabelInput, policies: &[LabelPolicy]) -> Vec<LabelView> {
    let before = plan(&input, None).decisions;
    input
        .policies
        .retain(|old| policies.iter().all(|new| new.name != old.name));
    let selecting = policies
        .iter()
        .filter(|policy| policy.clusters.matches(&input.cluster_labels));
    input.policies.extend(selecting.cloned());
    input.policies.sort_by(|a, b| a.name.cmp(&b.name));
    let mut after = plan(&input, None).decisions;
    after.retain(|new| !before.iter().any(|old| same(old, new)));
    LabelView::of(&input, after).collect()
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
