//! Reads parts of the `status` of VMIs and Nodes: interfaces, migration, conditions.

use std::net::IpAddr;

use virtfleet_collector_core::{
    facts::{Migration, Phase, VmiInterface},
    node_conditions::{NODE_CONDITION_PREFIX, NodeConditionKind},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};

use super::field::{Field, Problem};
use crate::bounded::bounded;

/// Maximum characters kept of a phase that this version does not know.
const MAX_PHASE_CHARS: usize = 64;
/// Maximum characters of a text of a migration.
const MAX_MIGRATION_TEXT_CHARS: usize = 256;

/// `status.interfaces` of a VMI.
pub(super) fn interfaces(status: &Field<'_>) -> Result<Vec<VmiInterface>, Problem> {
    status.get("interfaces")?.items()?.iter().map(interface).collect()
}

fn interface(field: &Field<'_>) -> Result<VmiInterface, Problem> {
    let source = field.get("infoSource")?.text()?.unwrap_or_default();
    let from_guest = has_source(source, GUEST_AGENT);
    let mut addresses: Vec<IpAddr> = Vec::new();
    let first = field.get("ipAddress")?;
    let rest = field.get("ipAddresses")?.items()?;
    for address in std::iter::once(&first).chain(&rest) {
        if let Some(address) = ignore_guest_error(from_guest, address_of(address))?
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    Ok(VmiInterface {
        name: field.get("name")?.text()?.unwrap_or_default().to_owned(),
        mac: ignore_guest_error(from_guest, field.get("mac")?.parsed())?,
        addresses,
        addresses_claimed: from_guest,
        mac_claimed: from_guest && !has_source(source, DOMAIN),
    })
}

/// Ignores an invalid value of an interface that the guest agent described: a guest must not be
/// able to make a file invalid.
fn ignore_guest_error<T>(from_guest: bool, read: Result<Option<T>, Problem>) -> Result<Option<T>, Problem> {
    if from_guest {
        Ok(read.unwrap_or(None))
    } else {
        read
    }
}

/// KubeVirt writes plain addresses; older versions wrote those of the guest agent with a prefix
/// length.
fn address_of(field: &Field<'_>) -> Result<Option<IpAddr>, Problem> {
    let Some(text) = field.text()? else {
        return Ok(None);
    };
    let plain = text.split_once('/').map_or(text, |(address, _)| address);
    let wrong = |_| field.problem(format_args!("{text:?} is not an IP address"));
    plain.parse().map(Some).map_err(wrong)
}

/// The value of `infoSource` for data of the guest agent.
const GUEST_AGENT: &str = "guest-agent";

/// The value of `infoSource` for data of libvirt's domain, which has hardware addresses but no IP
/// addresses.
const DOMAIN: &str = "domain";

/// Whether `infoSource`, a list such as `domain, guest-agent, multus-status`, has an item.
fn has_source(text: &str, wanted: &str) -> bool {
    text.split(',').any(|source| source.trim() == wanted)
}

/// `status.migrationState` of a VMI.
pub(super) fn migration(status: &Field<'_>) -> Result<Option<Migration>, Problem> {
    let state = status.get("migrationState")?;
    let (completed, failed) = (state.get("completed")?.flag()?, state.get("failed")?.flag()?);
    let has_begun = state.get("targetNode")?.is_there() || state.get("startTimestamp")?.is_there();
    // Before a migration between two clusters begins, both VMIs have a state: the source knows its
    // own node, and the target none.
    if !(has_begun || completed || failed) {
        return Ok(None);
    }
    let time = |name| Ok(state.get(name)?.text()?.map(str::to_owned));
    let word = |name| {
        let text = state.get(name)?.text()?;
        Ok(text.map(|text| bounded(text, MAX_MIGRATION_TEXT_CHARS)))
    };
    Ok(Some(Migration {
        source: state.get("sourceNode")?.parsed()?,
        target: state.get("targetNode")?.parsed()?,
        completed,
        failed,
        start: time("startTimestamp")?,
        end: time("endTimestamp")?,
        mode: word("mode")?,
        failure_reason: word("failureReason")?,
        uid: state.get("migrationUid")?.parsed()?,
        start_ms: time_ms(&state.get("startTimestamp")?)?,
        end_ms: time_ms(&state.get("endTimestamp")?)?,
    }))
}

/// A time as milliseconds since 1970. A text that is no time counts as absent: the text itself is
/// shown.
pub(super) fn time_ms(field: &Field<'_>) -> Result<Option<u64>, Problem> {
    let time = field
        .text()?
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    Ok(time.and_then(|time| u64::try_from(time.as_millisecond()).ok()))
}

/// When the VMI became `Running` last: `status.phaseTransitionTimestamps`.
pub(super) fn running_since_ms(status: &Field<'_>) -> Result<Option<u64>, Problem> {
    let mut since = None;
    for transition in status.get("phaseTransitionTimestamps")?.items()? {
        if transition.get("phase")?.text()? == Some("Running") {
            since = since.max(time_ms(&transition.get("phaseTransitionTimestamp")?)?);
        }
    }
    Ok(since)
}

/// Since when the condition `Ready` is `False`; none if it is not.
pub(super) fn not_ready_since_ms(status: &Field<'_>) -> Result<Option<u64>, Problem> {
    for condition in status.get("conditions")?.items()? {
        let kind = condition.get("type")?.text()?;
        let status = condition.get("status")?.text()?;
        if (kind, status) == (Some("Ready"), Some("False")) {
            return time_ms(&condition.get("lastTransitionTime")?);
        }
    }
    Ok(None)
}

/// When the kubelet of a Node has reported last: `lastHeartbeatTime` of `Ready`.
pub(in crate::inventory) fn reported_ms(node: &Field<'_>) -> Result<Option<u64>, Problem> {
    for condition in node.at("status.conditions")?.items()? {
        if condition.get("type")?.text()? == Some("Ready") {
            return time_ms(&condition.get("lastHeartbeatTime")?);
        }
    }
    Ok(None)
}

/// `status.phase` of a VMI, and the text of one that this version does not know.
pub(super) fn phase(status: &Field<'_>) -> Result<(Phase, Option<Box<str>>), Problem> {
    let text = status.get("phase")?.text()?;
    let phase = Phase::of(text);
    let other = text.filter(|_| phase == Phase::Other);
    Ok((phase, other.map(|text| bounded(text, MAX_PHASE_CHARS).into())))
}

/// `status.conditions`, without their times. `is_kept` decides by type and status whether a message
/// is kept: those of healthy conditions say nothing.
pub(super) fn conditions(
    status: &Field<'_>,
    is_kept: impl Fn(&str, ReportedStatus) -> bool,
) -> Result<ReportedConditions, Problem> {
    let mut found = Vec::new();
    for condition in status.get("conditions")?.items()? {
        let kind = condition.get("type")?.text()?.unwrap_or_default();
        let status = ReportedStatus::of(condition.get("status")?.text()?.unwrap_or_default());
        let message = condition.get("message")?.text()?;
        found.push(ReportedCondition::new(
            kind,
            status,
            condition.get("reason")?.text()?,
            message.filter(|_| is_kept(kind, status)),
        ));
    }
    // Those that the collector reads and writes itself come first: a tenant may add any number.
    let known = |one: &ReportedCondition| {
        one.kind
            .strip_prefix(NODE_CONDITION_PREFIX)
            .is_some_and(|name| NodeConditionKind::of(name).is_some())
    };
    found.sort_by_key(|one| (&*one.kind != "Ready", !known(one)));
    Ok(ReportedConditions::new(found))
}

/// `status.conditions` of a Node: `Ready` should be `True`, all others `False`.
pub(super) fn node_conditions(status: &Field<'_>) -> Result<ReportedConditions, Problem> {
    conditions(status, |kind, status| {
        // The writer compares its own messages.
        if kind.starts_with(NODE_CONDITION_PREFIX) {
            return true;
        }
        let healthy = if kind == "Ready" {
            ReportedStatus::True
        } else {
            ReportedStatus::False
        };
        status != healthy
    })
}

/// The condition of this type: `True`, `False`, or none for another value.
pub(super) fn condition(status: &Field<'_>, kind: &str) -> Result<Option<bool>, Problem> {
    for condition in status.get("conditions")?.items()? {
        if condition.get("type")?.text()? == Some(kind) {
            return Ok(match condition.get("status")?.text()? {
                Some("True") => Some(true),
                Some("False") => Some(false),
                _ => None,
            });
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_that_waits_for_another_cluster_is_none() {
        for (state, is_one) in [
            (serde_json::json!({}), false),
            (serde_json::json!({ "migrationUid": "u" }), false),
            (
                serde_json::json!({ "sourceNode": "a", "migrationUid": "u" }),
                false,
            ),
            (
                serde_json::json!({ "sourceNode": "a", "completed": false }),
                false,
            ),
            (serde_json::json!({ "sourceNode": "a", "targetNode": "b" }), true),
            (
                serde_json::json!({ "startTimestamp": "2026-01-01T00:00:00Z" }),
                true,
            ),
            (serde_json::json!({ "sourceNode": "a", "failed": true }), true),
            (serde_json::json!({ "completed": true }), true),
        ] {
            let status = serde_json::json!({ "migrationState": state });
            let nodes = virtfleet_wire::layered::parse_yaml(&status.to_string()).unwrap();
            let found = migration(&Field::top(&nodes[0])).unwrap();
            assert_eq!(found.is_some(), is_one, "{state}");
        }
    }

    #[test]
    fn interfaces_of_the_guest_agent_are_claims() {
        for (source, addresses, mac) in [
            ("guest-agent", true, true),
            (" guest-agent ", true, true),
            ("domain, guest-agent", true, false),
            ("guest-agent,domain", true, false),
            ("guest-agent, multus-status", true, true),
            ("domain", false, false),
            ("domain, multus-status", false, false),
            ("", false, false),
        ] {
            let text =
                serde_json::json!({ "interfaces": [{ "infoSource": source, "ipAddress": "10.0.0.1" }] });
            let nodes = virtfleet_wire::layered::parse_yaml(&text.to_string()).unwrap();
            let found = interfaces(&Field::top(&nodes[0])).unwrap();
            let claims = (found[0].addresses_claimed, found[0].mac_claimed);
            assert_eq!(claims, (addresses, mac), "{source:?}");
        }
    }
}
