//! Builds the state file's content from the remaining plan and from what was done.

use std::{collections::BTreeMap, net::IpAddr};

use virtfleet_agent_core::dns::{
    effective::effective,
    findings::findings,
    ours,
    plan::DnsStep,
    seen::Kubelet,
    state::{DnsState, DnsStatus, FORMAT},
};
use virtfleet_agent_host::{clock, dns::Applied};
use virtfleet_agent_state::settings::dns::Wanted;
use virtfleet_wire::finding::{Finding, Severity};

use super::{DnsProvisioner, Observed};

/// What a run did and found, besides its plan.
#[derive(Debug, Clone, Default)]
pub(super) struct DnsOutcome {
    pub(super) standing: DnsStatus,
    pub(super) applied: Applied,
    pub(super) changed: bool,
    pub(super) rollbacks: u32,
    pub(super) error: Option<String>,
    pub(super) milliseconds: u64,
    pub(super) put_back: Vec<DnsStep>,
    pub(super) put_back_at: u64,
    /// Number of probes sent to each nameserver.
    pub(super) questions: BTreeMap<IpAddr, u32>,
    /// Kubelet's drop-in, if this run changed it.
    pub(super) kubelet_told: bool,
}

pub(super) fn state(
    provisioner: &DnsProvisioner<'_>,
    wanted: &Wanted,
    observed: &Observed,
    previous: &DnsState,
    outcome: &DnsOutcome,
) -> DnsState {
    let Observed { seen, plan } = observed;
    let now = clock();
    // The nameserver in use answers and collides with nothing. It need not be the requested one.
    let answers = matches!(outcome.standing, DnsStatus::Verified | DnsStatus::Differs);
    let told_at = if outcome.kubelet_told {
        now.boottime_ns
    } else {
        previous.kubelet_told_at_boottime_ns
    };
    let waits = |kubelet: &&Kubelet| kubelet.started_ns.is_some_and(|started| started < told_at);
    let mut state = DnsState {
        v: FORMAT,
        boot_id: provisioner.boot_id.to_owned(),
        at_boottime_ns: now.boottime_ns,
        at_ns: now.realtime_ns,
        questions: outcome.questions.clone(),
        kubelet_told_at_boottime_ns: told_at,
        kubelet_waits_for: seen
            .kubelet
            .as_ref()
            .filter(waits)
            .and_then(ours::kubelet_drop_in),
        manage: wanted.asked.manage,
        standing: outcome.standing,
        owner: seen.owner,
        owner_because: seen.owner_because.clone(),
        effective: effective(seen),
        asked: plan.asked.clone(),
        fallback: plan.is_fallback(),
        ours: ours::paths(seen),
        links: seen.links.clone(),
        judged: plan.judged.clone(),
        collisions: plan.collisions.clone(),
        refusals: plan.refusals.clone(),
        done: outcome.applied.done.clone(),
        reloaded: outcome.applied.reloaded.clone(),
        error: outcome.error.clone(),
        verified_after_ms: answers.then_some(outcome.milliseconds),
        verified_at_boottime_ms: previous
            .verified_at_boottime_ms
            .or_else(|| answers.then_some(now.boottime_ns / 1_000_000)),
        changes: previous.changes + u32::from(outcome.changed),
        rollbacks: previous.rollbacks + outcome.rollbacks,
        put_back: outcome.put_back.clone(),
        put_back_at_boottime_ns: outcome.put_back_at,
        findings: Vec::new(),
    };
    state.findings = findings(&state, &wanted.asked, plan);
    if let Some(error) = state
        .error
        .clone()
        .filter(|_| state.standing != DnsStatus::RolledBack)
    {
        state.findings.push(failure(&error));
    }
    state
}

/// The state if nothing could be observed: that of the last run, with the reason.
pub(super) fn failed(
    provisioner: &DnsProvisioner<'_>,
    wanted: &Wanted,
    previous: &DnsState,
    reason: &str,
) -> DnsState {
    let now = clock();
    let mut state = DnsState {
        v: FORMAT,
        boot_id: provisioner.boot_id.to_owned(),
        at_boottime_ns: now.boottime_ns,
        at_ns: now.realtime_ns,
        manage: wanted.asked.manage,
        standing: DnsStatus::Unknown,
        error: Some(reason.to_owned()),
        ..previous.clone()
    };
    state.findings = vec![failure(reason)];
    state
}

fn failure(error: &str) -> Finding {
    Finding::new(
        "dns-pass-failed",
        Severity::Warning,
        ("DNS", "resolver"),
        "PassFailed",
        error.to_owned(),
    )
    .remedy("journalctl -b -u virtfleet-dns.service -u virtfleet-reconcile.service")
}
