//! Whether the collector connects to the agents, for `virtfleetctl install check`.

use serde_json::Value;
use virtfleet_collector_core::view::AgentStatus;

use crate::doctor::{self, CheckResult};

/// Maximum findings that are read of each kind: of VMs, and of the inventory.
pub(super) const MAX_FINDINGS: usize = 10_000;
/// Maximum VMs that are read: versions and states of their agents are counted.
pub(super) const MAX_VMS: usize = 1000;
/// What the check is called.
pub(super) const AGENTS: &str = "agents";
/// Findings about an agent that the network may cause.
const NETWORK: [&str; 2] = ["agent-connect", "agent-timeout"];

/// Whether a list is not complete.
pub(super) fn is_cut(list: &Value) -> bool {
    list["continue"].is_string()
}

/// Beginning of a result about a list of VMs that may not be complete.
pub(super) fn of_first_vms(vms: &Value) -> String {
    if is_cut(vms) {
        format!("of the first {MAX_VMS} VMs: ")
    } else {
        String::new()
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

/// Number of VMs whose agents have one of these states.
fn count_of(vms: &Value, statuses: &[AgentStatus]) -> usize {
    let items = vms["items"].as_array().into_iter().flatten();
    let words = items.filter_map(|vm| vm["agent"]["status"].as_str());
    words
        .filter(|word| statuses.iter().any(|status| status.as_str() == *word))
        .count()
}

/// Why it is not known yet whether agents can be reached; none after the first pull.
fn before_first_pull(vms: &Value) -> Option<String> {
    let has = |statuses: &[AgentStatus]| count_of(vms, statuses) > 0;
    if has(&[AgentStatus::Up, AgentStatus::Silent]) {
        return None;
    }
    let why = if has(&[AgentStatus::Waiting]) {
        "no pull of an agent has ended yet"
    } else if has(&[AgentStatus::Disabled]) {
        "the collector pulls no agent: neither enrolment nor scrape.tls is set"
    } else {
        "no VM runs whose agent is pulled"
    };
    Some(format!("{}{why}", of_first_vms(vms)))
}

/// `count` is the number of VMs whose agents are pulled. `vms` and `findings` are the first VMs,
/// and the first findings about VMs.
pub(super) fn agents(count: usize, vms: &Value, findings: &Value) -> CheckResult {
    const NEXT: &str =
        "virtfleetctl findings --scope vm; docs/network.md has the NetworkPolicies, and relays";
    if count == 0 {
        return CheckResult::skip(AGENTS, "there is no VM yet", "virtfleetctl vms --all");
    }
    let of_first = if is_cut(findings) {
        format!("by the first {MAX_FINDINGS} findings: ")
    } else {
        String::new()
    };
    let unreachable = unreachable(findings);
    if unreachable > 0 {
        let detail = format!("{of_first}{unreachable} of {count} VMs cannot be connected to");
        // From half on it is the network between collector and VMs, rather than single guests.
        return CheckResult::new(doctor::severity_of(unreachable, count), AGENTS, detail, NEXT);
    }
    if let Some(why) = before_first_pull(vms) {
        return CheckResult::skip(AGENTS, why, "virtfleetctl vms");
    }
    let waiting = match count_of(vms, &[AgentStatus::Waiting]) {
        0 => String::new(),
        waiting => format!("; {waiting} wait for their first pull"),
    };
    CheckResult::ok(AGENTS, format!("{of_first}no VM is unreachable{waiting}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckStatus;

    fn vms(statuses: &[&str]) -> Value {
        let vm = |status: &&str| json!({ "agent": { "status": status } });
        let items: Vec<Value> = statuses.iter().map(vm).collect();
        json!({ "items": items })
    }

    fn findings(unreachable: usize) -> Value {
        json!({ "items": vec![json!({ "id": "agent-connect" }); unreachable] })
    }

    #[test]
    fn half_of_the_fleet_unreachable_is_the_network() {
        let vms = vms(&["up", "silent", "off"]);
        for (count, unreachable, expected) in [
            (0, 0, CheckStatus::Skip),
            (9, 0, CheckStatus::Ok),
            (9, 4, CheckStatus::Warn),
            (9, 5, CheckStatus::Fail),
        ] {
            assert_eq!(
                agents(count, &vms, &findings(unreachable)).status,
                expected,
                "{unreachable} of {count}"
            );
        }
        let cut = json!({ "items": [{ "id": "agent-connect" }], "continue": "a/b" });
        let cut = agents(9, &vms, &cut);
        assert!(cut.detail.starts_with("by the first 10000 findings: "), "{cut:?}");
        let findings =
            json!({ "items": [{ "id": "agent-connect" }, { "id": "agent-tls" }, { "id": "agent-timeout" }] });
        assert_eq!(unreachable(&findings), 2);
    }

    #[test]
    fn nothing_is_known_before_the_first_pull() {
        let found = |statuses: &[&str]| agents(2, &vms(statuses), &findings(0));
        for (statuses, why) in [
            (&["waiting", "waiting"][..], "no pull of an agent has ended yet"),
            (&["off", "waiting"], "no pull of an agent has ended yet"),
            (
                &["disabled"],
                "the collector pulls no agent: neither enrolment nor scrape.tls is set",
            ),
            (&["off", "unmanaged"], "no VM runs whose agent is pulled"),
        ] {
            let found = found(statuses);
            assert_eq!((found.status, found.detail.as_str()), (CheckStatus::Skip, why));
            assert!(!found.next.is_empty());
        }
        let some = found(&["up", "waiting"]);
        assert_eq!(
            (some.status, some.detail.as_str()),
            (
                CheckStatus::Ok,
                "no VM is unreachable; 1 wait for their first pull"
            )
        );
        let mut cut = vms(&["waiting"]);
        cut["continue"] = "a/b".into();
        let cut = agents(2000, &cut, &findings(0));
        assert_eq!(cut.status, CheckStatus::Skip);
        assert!(cut.detail.starts_with("of the first 1000 VMs: "), "{cut:?}");
    }
}
