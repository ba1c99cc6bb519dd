//! Checks of `virtfleetctl install check` that query the collector: whether it answers, whether the
//! network lets it connect to agents, and what a drain would not know for lack of rights.

use std::time::Duration;

use serde_json::Value;
use virtfleet_collector_core::fleet_status::FleetStatus;

use super::{client::Client, fail::Fail};
use crate::doctor::CheckResult;

/// Findings about an agent that the network may cause.
const NETWORK: [&str; 2] = ["agent-connect", "agent-timeout"];
/// Maximum findings that are counted.
const MAX_FINDINGS: usize = 1000;

/// A result for the API, and one for the network between collector and agents.
pub(super) fn check(client: &Client, namespace: &str) -> Vec<CheckResult> {
    const WHAT: &str = "API of the collector";
    let status = client.get("/api/v1/status", &[], Duration::ZERO);
    let status: FleetStatus = match status.and_then(|answer| answer.read()) {
        Ok(status) => status,
        Err(fail) => return vec![CheckResult::fail(WHAT, fail.to_string(), next(&fail, namespace))],
    };
    let detail = format!(
        "answers: {} VMs, {} infra nodes, {} user clusters",
        status.vms, status.hosts, status.clusters
    );
    let query = [("scope", "vm".to_owned()), ("limit", MAX_FINDINGS.to_string())];
    let findings = client.get("/api/v1/findings", &query, Duration::ZERO);
    let network = match findings {
        Ok(answer) => agents(status.vms, unreachable(&answer.body)),
        Err(fail) => CheckResult::warn("agents", fail.to_string(), "virtfleetctl findings"),
    };
    let mut results = vec![CheckResult::ok(WHAT, detail), network];
    results.extend(drain(client));
    results
}

/// What a drain of the infra node with the most VMs would not know for lack of rights, also in the
/// user clusters of these VMs (pods, PodDisruptionBudgets): only the collector connects there.
/// Nothing if there is no VM, or if this cannot be read.
fn drain(client: &Client) -> Option<CheckResult> {
    let hosts = client.get("/api/v1/hosts", &[], Duration::ZERO).ok()?;
    let host = fullest(&hosts.body)?;
    let path = format!("/api/v1/hosts/{host}/drain");
    let plan = client.get(&path, &[], Duration::ZERO).ok()?;
    Some(drain_rights(&host, &plan.body))
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

/// Number of agents to which no connection came about.
fn unreachable(findings: &Value) -> usize {
    let items = findings["items"].as_array().into_iter().flatten();
    items
        .filter(|item| {
            // The item is the finding, or has it.
            let id = item["id"].as_str().or_else(|| item["finding"]["id"].as_str());
            id.is_some_and(|id| NETWORK.contains(&id))
        })
        .count()
}

fn agents(vms: usize, unreachable: usize) -> CheckResult {
    const WHAT: &str = "agents";
    const NEXT: &str =
        "virtfleetctl findings --scope vm; docs/network.md has the NetworkPolicies, and relays";
    if vms == 0 {
        return CheckResult::ok(WHAT, "there is no VM yet");
    }
    let detail = format!("{unreachable} of {vms} VMs cannot be connected to");
    match unreachable {
        0 => CheckResult::ok(WHAT, "no VM is unreachable"),
        // The network between collector and VMs, rather than single guests.
        count if count * 2 >= vms => CheckResult::fail(WHAT, detail, NEXT),
        _ => CheckResult::warn(WHAT, detail, NEXT),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckStatus;

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

    #[test]
    fn half_of_the_fleet_unreachable_is_the_network() {
        for (vms, unreachable, expected) in [
            (0, 0, CheckStatus::Ok),
            (9, 0, CheckStatus::Ok),
            (9, 4, CheckStatus::Warn),
            (9, 5, CheckStatus::Fail),
        ] {
            assert_eq!(
                agents(vms, unreachable).status,
                expected,
                "{unreachable} of {vms}"
            );
        }
        let findings =
            json!({ "items": [{ "id": "agent-connect" }, { "id": "agent-tls" }, { "id": "agent-timeout" }] });
        assert_eq!(unreachable(&findings), 2);
    }
}
