//! Checks of `virtfleetctl install check` that query the collector: whether it answers, versions,
//! whether the network lets it connect to agents, how long the credentials of user clusters are
//! valid, whether it may label Nodes, and what a drain would not know for lack of rights.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use virtfleet_collector_core::{findings::USER_CLUSTER_CREDENTIAL_EXPIRING, fleet_status::FleetStatus};

use super::{
    client::Client,
    fail::Fail,
    install_reach::{AGENTS, MAX_FINDINGS, MAX_VMS, agents, is_cut, of_first_vms},
};
use crate::{
    bounded::bounded,
    doctor::{self, CheckResult, CheckStatus},
    labels::NO_WRITES,
};

/// Maximum labels that should be changed and are read: a new policy concerns each Node.
const MAX_LABELS: usize = 10_000;
/// Maximum versions, or user clusters, that a result names.
const MAX_NAMED: usize = 5;
/// Maximum characters of a version, which comes from an agent.
const MAX_VERSION_CHARS: usize = 32;
/// What the checks are called.
const AGENT_VERSIONS: &str = "versions of the agents";
const CREDENTIALS: &str = "credentials";
const LABELS: &str = "labels";
/// Beginning of an error of a write to a Node for lack of a right.
const NOT_ALLOWED: &str = "not allowed";

/// A result for the API, and if it answers, one for each of the others.
pub(super) fn check(client: &Client, namespace: &str) -> Vec<CheckResult> {
    const WHAT: &str = "API of the collector";
    const VERSION: &str = "version of the collector";
    let get = |path: &str, query: &[(&str, String)]| client.get(path, query, Duration::ZERO);
    let missing = |what: &str, fail: &Fail| {
        let detail = format!("cannot be checked: {fail}");
        CheckResult::warn(what, detail, next(fail, namespace))
    };
    let status: FleetStatus = match get("/api/v1/status", &[]).and_then(|answer| answer.read()) {
        Ok(status) => status,
        Err(fail) => return vec![CheckResult::fail(WHAT, fail.to_string(), next(&fail, namespace))],
    };
    let detail = format!(
        "answers: {} VMs, {} infra nodes, {} user clusters",
        status.vms, status.hosts, status.clusters
    );
    let mut results = vec![if status.partial {
        let detail = format!("{detail}; the inventory is not complete");
        CheckResult::warn(WHAT, detail, "virtfleetctl findings --scope inventory")
    } else {
        CheckResult::ok(WHAT, detail)
    }];
    let version = get("/api/v1/openapi.json", &[]).map(|answer| version_of(&answer.body));
    results.push(match &version {
        Ok(Some(version)) => doctor::compare(VERSION, version, upgrade(namespace)),
        Ok(None) => CheckResult::warn(VERSION, "the API does not say it", upgrade(namespace)),
        Err(fail) => missing(VERSION, fail),
    });
    let version = version.as_ref().ok().and_then(Option::as_deref);
    let version = version.unwrap_or(doctor::OWN);
    let vms = get("/api/v1/vms", &[("limit", MAX_VMS.to_string())]);
    results.push(match &vms {
        Ok(answer) => agent_versions(&answer.body, version, namespace),
        Err(fail) => missing(AGENT_VERSIONS, fail),
    });
    let findings = |scope: &str| {
        let query = [("scope", scope.to_owned()), ("limit", MAX_FINDINGS.to_string())];
        get("/api/v1/findings", &query)
    };
    results.push(match (&vms, &findings("vm")) {
        (Ok(vms), Ok(answer)) => agents(status.vms, &vms.body, &answer.body),
        (Err(fail), _) | (_, Err(fail)) => missing(AGENTS, fail),
    });
    match findings("inventory") {
        Ok(answer) => results.extend(credentials(&answer.body, status.clusters)),
        Err(fail) => results.push(missing(CREDENTIALS, &fail)),
    }
    let query = [
        ("action", "set,remove,restore".to_owned()),
        ("limit", MAX_LABELS.to_string()),
    ];
    results.push(match get("/api/v1/labels", &query) {
        Ok(answer) => labels(&answer.body, status.clusters),
        Err(fail) => missing(LABELS, &fail),
    });
    results.extend(drain(client).unwrap_or_else(|fail| Some(missing("drain of an infra node", &fail))));
    results
}

/// The version in the description of the API.
fn version_of(openapi: &Value) -> Option<String> {
    Some(openapi["info"]["version"].as_str()?.to_owned())
}

/// The command that upgrades the collector.
fn upgrade(namespace: &str) -> String {
    format!(
        "helm upgrade virtfleet packaging/helm/virtfleet -n {namespace} --reset-then-reuse-values --set image.tag={}",
        doctor::OWN
    )
}

/// The versions of the agents, with their numbers; a warning if one is newer than the collector,
/// which may then not understand its reports.
fn agent_versions(vms: &Value, collector: &str, namespace: &str) -> CheckResult {
    let mut counts = BTreeMap::<String, usize>::new();
    for vm in vms["items"].as_array().into_iter().flatten() {
        if let Some(version) = vm["agent"]["version"].as_str() {
            *counts.entry(bounded(version, MAX_VERSION_CHARS)).or_default() += 1;
        }
    }
    let mut named: Vec<String> = counts
        .iter()
        .take(MAX_NAMED)
        .map(|(version, count)| format!("{version} ({count})"))
        .collect();
    if counts.len() > MAX_NAMED {
        named.push("…".to_owned());
    }
    let of_first = of_first_vms(vms);
    if counts.is_empty() {
        let detail = format!("{of_first}no agent has answered yet");
        return CheckResult::skip(AGENT_VERSIONS, detail, "virtfleetctl vms");
    }
    let named = format!("{of_first}{}", named.join(", "));
    if counts.keys().any(|version| doctor::is_newer(version, collector)) {
        let detail = format!("{named}: newer than the collector, which is {collector}");
        return CheckResult::warn(AGENT_VERSIONS, detail, upgrade(namespace));
    }
    CheckResult::ok(AGENT_VERSIONS, named)
}

/// The credentials of user clusters that have expired or soon will, as the collector says, which
/// reads them. `clusters` is the number of all user clusters.
fn credentials(findings: &Value, clusters: usize) -> Vec<CheckResult> {
    const NEXT: &str = "virtfleetctl findings --scope inventory";
    let items = findings["items"].as_array().into_iter().flatten();
    let expiring: Vec<&Value> = items
        .filter(|item| item["id"] == USER_CLUSTER_CREDENTIAL_EXPIRING)
        .collect();
    let has_expired = |item: &Value| item["severity"] == "critical";
    let expired = expiring.iter().filter(|item| has_expired(item)).count();
    let mut results = Vec::new();
    for item in &expiring {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = if has_expired(item) {
            doctor::severity_of(expired, clusters)
        } else {
            CheckStatus::Warn
        };
        let what = format!("{CREDENTIALS} of {}", text(&item["subject"]["name"]));
        let remedy = item["remedy"].as_str().unwrap_or(NEXT);
        results.push(CheckResult::new(status, what, text(&item["message"]), remedy));
    }
    if is_cut(findings) {
        let detail = format!("there are more than the {MAX_FINDINGS} findings that were read");
        results.push(CheckResult::skip(CREDENTIALS, detail, NEXT));
    } else if expiring.is_empty() && clusters > 0 {
        let detail = "none of a user cluster expires soon, as far as its kubeconfig says when";
        results.push(CheckResult::ok(CREDENTIALS, detail));
    }
    results
}

/// Whether writes of labels to Nodes were refused; `list` has the labels that should be changed,
/// and `clusters` is the number of all user clusters.
fn labels(list: &Value, clusters: usize) -> CheckResult {
    let mut refused = BTreeMap::<&str, (BTreeSet<&str>, &str)>::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let text = |key: &str| item[key].as_str();
        if let (Some(cluster), Some(node), Some(error)) = (text("cluster"), text("node"), text("error")) {
            let (nodes, shown) = refused.entry(cluster).or_insert((BTreeSet::new(), error));
            nodes.insert(node);
            // A missing right needs an action, whatever else has failed there.
            if error.starts_with(NOT_ALLOWED) {
                *shown = error;
            }
        }
    }
    let of_first = if is_cut(list) {
        format!("of the first {MAX_LABELS} labels that should be changed: ")
    } else {
        String::new()
    };
    if clusters == 0 {
        let next = "virtfleetctl cluster add NAME --kubeconfig FILE";
        return CheckResult::skip(LABELS, "there is no user cluster", next);
    }
    if refused.is_empty() {
        return CheckResult::ok(LABELS, format!("{of_first}no write to a Node was refused"));
    }
    if refused.values().all(|(_, error)| *error == NO_WRITES) {
        return CheckResult::skip(LABELS, NO_WRITES, "virtfleetctl labels diff");
    }
    let denied = refused
        .iter()
        .filter(|(_, (_, error))| error.starts_with(NOT_ALLOWED));
    let denied: Vec<&str> = denied.map(|(cluster, _)| *cluster).collect();
    let mut named: Vec<String> = refused
        .iter()
        .take(MAX_NAMED)
        .map(|(cluster, (nodes, error))| format!("{} Nodes of {cluster}: {error}", nodes.len()))
        .collect();
    if refused.len() > MAX_NAMED {
        named.push(format!(
            "and of {} other user clusters",
            refused.len() - MAX_NAMED
        ));
    }
    let detail = format!("{of_first}not written to {}", named.join("; "));
    match denied.first() {
        Some(cluster) => {
            let next = format!(
                "in the user cluster {cluster}: kubectl apply -f packaging/collector/kubernetes/user-cluster/rbac.yaml"
            );
            CheckResult::new(doctor::severity_of(denied.len(), clusters), LABELS, detail, next)
        }
        None => CheckResult::warn(LABELS, detail, "virtfleetctl labels diff"),
    }
}

/// What a drain of the infra node with the most VMs would not know for lack of rights, also in the
/// user clusters of these VMs (pods, PodDisruptionBudgets): only the collector connects there.
/// Nothing if there is no VM.
///
/// # Errors
/// It cannot be read.
fn drain(client: &Client) -> Result<Option<CheckResult>, Fail> {
    let hosts = client.get("/api/v1/hosts", &[], Duration::ZERO)?;
    let Some(host) = fullest(&hosts.body) else {
        return Ok(None);
    };
    let path = format!("/api/v1/hosts/{host}/drain");
    let plan = client.get(&path, &[], Duration::ZERO)?;
    Ok(Some(drain_rights(&host, &plan.body)))
}

/// The infra node with the most VMs.
fn fullest(hosts: &Value) -> Option<String> {
    let items = hosts["items"].as_array()?.iter();
    let host = items
        .filter(|host| host["vms"].as_u64().is_some_and(|vms| vms > 0))
        .max_by_key(|host| host["vms"].as_u64())?;
    Some(host["name"].as_str()?.to_owned())
}

fn drain_rights(host: &str, plan: &Value) -> CheckResult {
    let what = format!("drain of {host}");
    let unknown = plan["notKnown"].as_array().into_iter().flatten();
    let denied = unknown.filter_map(Value::as_str).filter_map(|text| {
        // `WHAT: the collector may not RIGHT; in CLUSTER: COMMAND`
        text.contains(": the collector may not ")
            .then(|| text.split_once("; "))?
    });
    let denied: Vec<(&str, &str)> = denied.collect();
    match denied.first() {
        None => CheckResult::ok(
            what,
            "granted: volumes in the infra cluster, pods and PodDisruptionBudgets in the user clusters there",
        ),
        Some((_, next)) => {
            let gaps: Vec<&str> = denied.iter().map(|(gap, _)| *gap).collect();
            let detail = format!("virtfleetctl drain does not know {}", gaps.join(", "));
            CheckResult::warn(what, detail, *next)
        }
    }
}

fn next(fail: &Fail, namespace: &str) -> String {
    match fail {
        Fail::Access(_) => "virtfleetctl status --service-account virtfleetctl".to_owned(),
        // A Deployment or a StatefulSet.
        _ => format!("kubectl -n {namespace} logs -l app.kubernetes.io/name=virtfleet-collector"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_of_agents_are_counted_and_newer_ones_are_a_warning() {
        let vms = |versions: &[Option<&str>]| {
            let items: Vec<Value> = versions
                .iter()
                .map(|version| json!({ "agent": { "version": version } }))
                .collect();
            agent_versions(&json!({ "items": items }), "0.2.0", "fleet")
        };
        let silent = vms(&[None]);
        assert_eq!(
            (silent.status, silent.detail.as_str()),
            (CheckStatus::Skip, "no agent has answered yet")
        );
        let older = vms(&[Some("0.1.0"), Some("0.2.0"), None, Some("0.1.0")]);
        assert_eq!(
            (older.status, older.detail.as_str()),
            (CheckStatus::Ok, "0.1.0 (2), 0.2.0 (1)")
        );
        let cut = json!({ "items": [{ "agent": { "version": "0.1.0" } }], "continue": "a/b" });
        let cut = agent_versions(&cut, "0.2.0", "fleet").detail;
        assert_eq!(cut, "of the first 1000 VMs: 0.1.0 (1)");
        let newer = vms(&[Some("0.1.0"), Some("0.3.0")]);
        assert_eq!(newer.status, CheckStatus::Warn);
        assert!(newer.next.contains("-n fleet"), "{newer:?}");
        let long = "9".repeat(200);
        let hostile: Vec<String> = (0..9).map(|number| format!("{number}{long}")).collect();
        let hostile: Vec<Option<&str>> = hostile.iter().map(|text| Some(text.as_str())).collect();
        assert!(vms(&hostile).detail.len() < 300);
        assert_eq!(
            version_of(&json!({ "info": { "version": "1.2.3" } })).as_deref(),
            Some("1.2.3")
        );
    }

    #[test]
    fn refused_writes_of_labels_name_the_cluster_and_the_right() {
        let item = |cluster: &str, node: &str, error: Option<&str>| json!({ "cluster": cluster, "node": node, "key": "zone", "error": error });
        let of = |items: &[Value]| labels(&json!({ "items": items }), 4);
        assert_eq!(of(&[item("blue", "a", None)]).status, CheckStatus::Ok);
        assert_eq!(labels(&json!({ "items": [] }), 0).status, CheckStatus::Skip);
        let off = of(&[item("blue", "a", Some(NO_WRITES))]);
        assert_eq!(off.status, CheckStatus::Skip, "{off:?}");
        let busy = of(&[item("blue", "a", Some("503 busy"))]);
        assert_eq!(busy.status, CheckStatus::Warn);
        let denied = Some("not allowed: nodes is forbidden");
        let found = of(&[
            item("blue", "a", Some("503 busy")),
            item("green", "a", Some("503 busy")),
            item("green", "b", denied),
            item("green", "b", denied),
        ]);
        assert_eq!(found.status, CheckStatus::Warn, "one tenant of four");
        assert!(
            found.detail.contains("2 Nodes of green: not allowed"),
            "{found:?}"
        );
        assert!(
            found
                .next
                .starts_with("in the user cluster green: kubectl apply -f "),
            "{found:?}"
        );
        let half = of(&[item("blue", "a", denied), item("green", "b", denied)]);
        assert_eq!(half.status, CheckStatus::Fail);
        let list = json!({ "items": [item("blue", "a", None)], "continue": "a/b" });
        let cut = labels(&list, 4);
        assert!(cut.detail.starts_with("of the first 10000 labels"), "{cut:?}");
        let many: Vec<String> = (0..7).map(|number| format!("c{number}")).collect();
        let many: Vec<Value> = many.iter().map(|name| item(name, "a", denied)).collect();
        let found = of(&many);
        assert!(
            found.detail.ends_with("; and of 2 other user clusters"),
            "{found:?}"
        );
    }

    #[test]
    fn credentials_that_expire_are_those_of_which_the_collector_says_so() {
        let item = |id: &str, name: &str, severity: &str| {
            json!({
                "id": id, "severity": severity, "subject": { "kind": "UserCluster", "name": name },
                "message": "they expire", "remedy": "virtfleetctl cluster rotate",
            })
        };
        let of = |items: &[Value], clusters: usize| {
            let results = credentials(&json!({ "items": items }), clusters);
            let line = |result: CheckResult| {
                assert!(result.status == CheckStatus::Ok || !result.next.is_empty());
                format!("{:?} {}", result.status, result.what)
            };
            results.into_iter().map(line).collect::<Vec<_>>()
        };
        let id = USER_CLUSTER_CREDENTIAL_EXPIRING;
        let other = item("user-cluster-unreachable", "blue", "warning");
        assert_eq!(of(std::slice::from_ref(&other), 3), ["Ok credentials"]);
        assert_eq!(of(&[], 0), [""; 0]);
        let soon = item(id, "green", "warning");
        let expired = item(id, "red", "critical");
        assert_eq!(
            of(&[other, soon.clone(), expired.clone()], 3),
            ["Warn credentials of green", "Warn credentials of red"]
        );
        assert_eq!(of(&[expired], 2), ["Fail credentials of red"]);
        assert_eq!(
            of(&[soon], 1),
            ["Warn credentials of green"],
            "they work until then"
        );
        let cut = credentials(&json!({ "items": [], "continue": "a/b" }), 3);
        assert_eq!((cut.len(), cut[0].status), (1, CheckStatus::Skip));
    }

    #[test]
    fn rights_that_a_drain_lacks_are_named_with_what_grants_them() {
        let hosts = json!({ "items": [
            { "name": "a", "vms": 1 }, { "name": "b", "vms": 3 }, { "name": "c", "vms": 0 },
        ] });
        assert_eq!(fullest(&hosts), Some("b".to_owned()));
        assert_eq!(fullest(&json!({ "items": [{ "name": "c", "vms": 0 }] })), None);

        let estimated = "virt-launcher pods of 2 VMs: their requests are estimated";
        let ok = drain_rights("b", &json!({ "notKnown": [estimated] }));
        assert_eq!((ok.status, ok.what.as_str()), (CheckStatus::Ok, "drain of b"));
        let gap = "PodDisruptionBudgets of the user cluster green: the collector may not list \
                   poddisruptionbudgets.policy; in the user cluster green: kubectl apply -f \
                   packaging/collector/kubernetes/user-cluster/rbac.yaml";
        let warned = drain_rights("b", &json!({ "notKnown": [estimated, gap] }));
        assert_eq!(warned.status, CheckStatus::Warn);
        assert!(
            warned
                .detail
                .ends_with("the collector may not list poddisruptionbudgets.policy"),
            "{warned:?}"
        );
        assert!(
            warned
                .next
                .starts_with("in the user cluster green: kubectl apply -f packaging/"),
            "{warned:?}"
        );
    }
}
