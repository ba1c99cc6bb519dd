//! Findings about an agent's last answer.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use crate::{enrolment::EnrolmentReason, findings, pull_history::PullHistory};

/// Consecutive slow answers before an agent gets a finding: a live migration may delay one.
const MIN_SLOW_PULLS: u32 = 3;

/// Findings about the content and the latency of the last answer; none before the first answer.
pub(crate) fn findings(key: &VmKey, pulls: &PullHistory) -> impl Iterator<Item = Finding> {
    slow(key, pulls)
        .into_iter()
        .chain(reserved(key, pulls))
        .chain(expiring(key, pulls))
}

/// A certificate that nothing has renewed in time.
fn expiring(key: &VmKey, pulls: &PullHistory) -> Option<Finding> {
    let (at, answer) = pulls.answer.as_ref()?;
    let (certificate, now) = (answer.certificate?, at / 1000);
    if !certificate.life.is_expiring(now) {
        return None;
    }
    let minutes = certificate.life.not_after.saturating_sub(now) / 60;
    let why = certificate.renewal.map_or("none", EnrolmentReason::as_str);
    let message =
        format!("the certificate of the agent of {key} ends in {minutes} minutes and was not renewed");
    let found = findings::vm(
        findings::AGENT_CERTIFICATE_EXPIRING,
        Severity::Warning,
        key,
        "AgentCertificateExpiring",
        message,
    );
    let remedy = certificate.renewal.map_or(
        "a certificate that this collector did not issue: renew it where it was issued; otherwise see the collector's \
         log for its authority and its Lease",
        EnrolmentReason::remedy,
    );
    Some(
        found
            .with("notAfter", certificate.life.not_after)
            .with("renewal", why)
            .remedy(remedy.replace("{vm}", &key.to_string())),
    )
}

/// Slow answers: pulls of this VM share the concurrency limit of unhealthy VMs.
fn slow(key: &VmKey, pulls: &PullHistory) -> Option<Finding> {
    let (_, answer) = pulls.answer.as_ref()?;
    let streak = pulls.slow.as_ref()?;
    // A failing agent has its own finding.
    if streak.pulls < MIN_SLOW_PULLS || pulls.failing.is_some() {
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

/// Series with which a guest could imitate the platform's own.
fn reserved(key: &VmKey, pulls: &PullHistory) -> Option<Finding> {
    let (_, answer) = pulls.answer.as_ref()?;
    let samples = answer.metrics.reserved_samples;
    if samples == 0 {
        return None;
    }
    let message = format!(
        "the page of the agent of {key} has {samples} samples that a guest must not export, of families of the collector, of a \
         Prometheus or of its rules, or with a label that begins with `__`; the collector drops them"
    );
    let found = findings::vm(
        findings::AGENT_RESERVED_SERIES,
        Severity::Warning,
        key,
        "AgentReservedSeries",
        message,
    );
    Some(found.with("samples", samples).remedy(
        "in the guest: virtfleet-agent metrics | grep -E \
         '^(virtfleet_(vm|host|cluster|label|inventory|collector|relay|gardener)_|ALERTS|scrape_|up[ {]|[^ {]*:)|[{,]__', then \
         remove the file of metrics.textfile.directories that has them; where there is none, another program answers instead \
         of the agent",
    ))
}
