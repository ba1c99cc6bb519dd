//! Findings about an agent that should answer and does not, one id per failure class, and about the
//! content and the latency of its answers (`answer`).

mod answer;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use crate::{
    enrolment::EnrolmentReason,
    findings,
    pull_history::Streak,
    pull_result::{Failure, FailureClass},
    store::VmEntry,
    tenant::Tenant,
    view::VmState,
};

pub(crate) use answer::findings as answer_findings;

/// Consecutive failed pulls before an agent gets a finding. A restart of the agent or a live
/// migration causes one or two. `/sd` drops a VM after the same number.
const MIN_FAILED_PULLS: u32 = 3;

/// The finding about the agent of `key`; none while it answers or is not expected to; see
/// [`is_expected`].
pub(crate) fn finding(key: &VmKey, entry: &VmEntry) -> Option<Finding> {
    let (_, failure) = entry.pulls.last_try.as_ref()?;
    let (failure, failing) = (failure.as_ref()?, entry.pulls.failing.as_ref()?);
    // A guest that shuts down stops its agent first.
    let runs = matches!(entry.state(), VmState::Running | VmState::Migrating);
    // Another VM's certificate is never a transient failure, nor is a contradiction.
    let is_due = failing.pulls >= MIN_FAILED_PULLS || texts_of(failure).severity == Severity::Critical;
    (runs && is_due && is_expected(entry, Some(failure))).then(|| make(key, entry, failure, failing))
}

/// Whether this VM should have an agent: a `UserCluster` selects the VM, its agent has answered
/// before, or a server with a certificate of the fleet or an agent without certificate answers now.
/// Other VMs of the infra cluster may have no agent.
pub(crate) fn is_expected(entry: &VmEntry, failure: Option<&Failure>) -> bool {
    let answers = failure.is_some_and(|failure| {
        failure.enrolment.is_some_and(EnrolmentReason::is_contradiction)
            || matches!(
                failure.class,
                FailureClass::WrongVm | FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed
            )
    });
    answers || entry.keys.tenant != Tenant::None || entry.pulls.answer.is_some()
}

/// Texts of the finding about one failure class.
struct ClassTexts {
    id: &'static str,
    severity: Severity,
    reason: &'static str,
    remedy: &'static str,
}

fn texts_of(failure: &Failure) -> ClassTexts {
    let (id, reason, remedy) = match failure.class {
        FailureClass::NoAddress => (
            findings::AGENT_NO_ADDRESS,
            "AgentNoAddress",
            "see status.podIPs of its virt-launcher pod: kubectl -n {namespace} get pod -l kubevirt.io=virt-launcher -o wide",
        ),
        FailureClass::NotAllowed => (
            findings::AGENT_NOT_ALLOWED,
            "AgentNotAllowed",
            "add the VM's network to scrape.allowCIDRs in the collector's settings; if an address is wrongly taken for a service \
            address, set scrape.serviceCIDRs to the infra cluster's service networks",
        ),
        FailureClass::Connect => (
            findings::AGENT_CONNECT,
            "AgentConnect",
            "in the guest: systemctl status virtfleet-agent, then virtfleet-agent doctor; if both are fine, look for a \
             NetworkPolicy or firewall between the collector and port 10911 of the VM",
        ),
        FailureClass::Timeout => (
            findings::AGENT_TIMEOUT,
            "AgentTimeout",
            "look for a NetworkPolicy or firewall that drops packets to port 10911 of the VM, and at the guest's load; if the \
             agent is only slow, raise scrape.timeout in the collector's settings",
        ),
        FailureClass::Tls => (
            findings::AGENT_TLS,
            "AgentTls",
            "in the guest: virtfleet-agent doctor, then journalctl -u virtfleet-agent; compare the issuer and the validity of \
             its certificate with virtfleetctl ca status, or with scrape.tls.ca if the collector's settings have it",
        ),
        FailureClass::WrongVm => (
            findings::AGENT_WRONG_VM,
            "AgentWrongVm",
            "find the machine that has this address; if it is this VM, issue its own certificate: a clone or a \
             re-created VM may have kept an older one",
        ),
        FailureClass::Enrolment => (
            findings::AGENT_ENROLMENT,
            "AgentEnrolment",
            failure.enrolment.map_or(
                "see the collector's log; in the guest: virtfleet-agent doctor",
                EnrolmentReason::remedy,
            ),
        ),
        FailureClass::Http => (
            findings::AGENT_HTTP,
            "AgentHttp",
            "in the guest: journalctl -u virtfleet-agent",
        ),
        FailureClass::TooLarge => (
            findings::AGENT_TOO_LARGE,
            "AgentTooLarge",
            "see what has grown, in the guest: virtfleet-agent report | wc -c, virtfleet-agent metrics | wc -c; then raise \
             scrape.maxReportBytes or scrape.maxMetricsBytes in the collector's settings",
        ),
        FailureClass::Malformed => (
            findings::AGENT_MALFORMED,
            "AgentMalformed",
            "in the guest: virtfleet-agent --version, virtfleet-agent report; upgrade the agent or the collector, if their versions \
             are far apart",
        ),
    };
    let severity = match (failure.class, failure.enrolment) {
        (FailureClass::WrongVm, _) => Severity::Critical,
        (FailureClass::Enrolment, Some(reason)) => reason.severity(),
        _ => Severity::Warning,
    };
    ClassTexts {
        id,
        severity,
        reason,
        remedy,
    }
}

fn make(key: &VmKey, entry: &VmEntry, failure: &Failure, failing: &Streak) -> Finding {
    let class = texts_of(failure);
    let text = failure.message();
    let message = match failure.class {
        FailureClass::Enrolment => format!("the agent of {key} has no certificate: {text}"),
        FailureClass::WrongVm => format!("another agent answers for {key}: {text}"),
        FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed => {
            format!("the answer of the agent of {key} cannot be used: {text}")
        }
        _ => format!("the agent of {key} does not answer: {text}"),
    };
    let answered = if entry.pulls.answer.is_some() { "yes" } else { "no" };
    let found = findings::vm(class.id, class.severity, key, class.reason, message)
        .with("class", failure.class.as_str())
        .with("error", text)
        .with("failedPulls", failing.pulls)
        .with("answeredBefore", answered);
    let found = match failure.enrolment {
        Some(reason) => found.with("reason", reason.as_str()),
        None => found,
    };
    let remedy = class.remedy.replace("{namespace}", key.namespace.as_str());
    let found = found.remedy(remedy.replace("{vm}", &key.to_string()));
    // The class may change while the agent keeps failing.
    Finding {
        since: failing.since.to_string(),
        ..found
    }
}
