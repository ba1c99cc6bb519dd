//! Findings about the last answer of an agent.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use crate::{findings, store::Memory};

/// Consecutive slow answers before an agent gets a finding: one may be a live migration's pause.
const MIN_SLOW_PULLS: u32 = 3;

/// The findings about what the agent of `key` answered last, or how; none when it has not answered.
pub(crate) fn findings(key: &VmKey, memory: &Memory) -> impl Iterator<Item = Finding> {
    slow(key, memory).into_iter().chain(reserved(key, memory))
}

/// Answers that come, each late: pulls of this VM share the places of sick ones.
fn slow(key: &VmKey, memory: &Memory) -> Option<Finding> {
    let (_, answer) = memory.answer.as_ref()?;
    let streak = memory.slow.as_ref()?;
    // Of one that fails now there is another finding.
    if streak.pulls < MIN_SLOW_PULLS || memory.failing.is_some() {
        return None;
    }
    let message = format!(
        "the agent of {key} answers slowly: the last answer took {:.1} s",
        answer.took_ms as f64 / 1000.0
    );
    let found = findings::vm(findings::AGENT_SLOW, Severity::Info, key, "AgentSlow", message)
        .with("tookMs", answer.took_ms)
        .with("slowPulls", streak.pulls)
        .remedy(
            "in the guest: load and memory (uptime, free), then systemctl status virtfleet-agent; if the guest is idle, inspect \
             the network between the collector and the VM",
        );
    Some(Finding {
        since: streak.since.to_string(),
        ..found
    })
}

/// Series by which a guest would pass for the platform.
fn reserved(key: &VmKey, memory: &Memory) -> Option<Finding> {
    let (_, answer) = memory.answer.as_ref()?;
    let samples = answer.metrics.reserved_samples;
    if samples == 0 {
        return None;
    }
    let message = format!(
        "the page of the agent of {key} has {samples} samples of families that only the collector exports; the collector drops \
         them"
    );
    let found = findings::vm(
        findings::AGENT_RESERVED_SERIES,
        Severity::Warning,
        key,
        "AgentReservedSeries",
        message,
    );
    Some(found.with("samples", samples).remedy(
        "in the guest: virtfleet-agent metrics | grep -E '^virtfleet_(vm|host|cluster|label|inventory)_', then remove the file of \
         metrics.textfile.directories that has them; where there is none, another program answers instead of the agent",
    ))
}
