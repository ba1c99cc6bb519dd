//! What must hold: at each patch, at each request, and in the end.

use virtfleet_collector_core::labels::{owned, policy::Takeover};

use super::{
    api_server::{MetadataPatch, SimApiServer, SimNode},
    truth::{FOREIGN, STALENESS_MS, TARGETS, Truth, UNTOUCHED, VmId, ZONE},
};

/// What is wrong with a patch that the API server is about to apply to `node`.
pub(super) fn check_patch(
    truth: &Truth,
    id: &VmId,
    node: &SimNode,
    patch: &MetadataPatch,
    now: u64,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let closed = truth.clusters[&id.0].closed_since;
    if closed.is_some_and(|since| now - since > STALENESS_MS) {
        wrong.push("the user cluster is gone or suspended".to_owned());
    }
    for (key, value) in &patch.labels {
        let Some(target) = TARGETS.iter().find(|target| target.key == key) else {
            wrong.push(format!("{key} must never be written"));
            continue;
        };
        let current = node.labels.get(key);
        let is_foreign = current.is_some() && !node.ours.contains(key);
        if is_foreign && (target.takeover != Takeover::Always || value.is_none()) {
            wrong.push(format!(
                "{key}: changes {current:?} of another writer to {value:?}"
            ));
        }
        match value.as_deref() {
            Some(FOREIGN) => {
                let others = node.others.get(key).cloned().flatten();
                if others.as_deref() != Some(FOREIGN) {
                    wrong.push(format!("{key}: restores a value that another writer removed"));
                }
            }
            Some(value) if !truth.was_valid(id, target.source, value, now) => {
                wrong.push(format!("{key}: {value} belongs to another VM or infra node"));
            }
            _ => {}
        }
        let required = node.required_zone.as_ref().filter(|_| key == ZONE);
        if let Some((zone, since)) = required
            && current == Some(zone)
            && !truth.zone_followed
            && now - since > STALENESS_MS
        {
            wrong.push(format!("{key}: a pod has required {zone} since {since} ms"));
        }
    }
    wrong
}

/// What is wrong with the Nodes after everything has settled.
pub(super) fn check_end(truth: &Truth, cluster: &str, server: &SimApiServer) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in server.nodes.values() {
        let id = (cluster.to_owned(), node.name.clone());
        let mut compare = |key: &str, expected: Option<&String>| {
            let found = node.labels.get(key);
            if found != expected {
                wrong.push(format!(
                    "{cluster}/{}: {key} is {found:?} instead of {expected:?}",
                    node.name
                ));
            }
        };
        for target in &TARGETS {
            let expected = truth.expected(&id, target, node.others.get(target.key));
            compare(target.key, expected.as_ref());
        }
        for key in UNTOUCHED {
            compare(key, node.others.get(key).and_then(Option::as_ref));
        }
        match owned::read(node.owned.as_deref()) {
            Err(error) => wrong.push(format!("{cluster}/{}: {error}", node.name)),
            Ok(entries) => {
                let listed = entries.keys();
                if !listed.eq(&node.ours) {
                    wrong.push(format!(
                        "{cluster}/{}: the annotation lists {:?}, written were {:?}",
                        node.name,
                        entries.keys(),
                        node.ours
                    ));
                }
            }
        }
    }
    wrong
}
