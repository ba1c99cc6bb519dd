//! `AgentReporting`: the agent answers; if not, why it is silent.
//!
//! What explains the silence counts first: a VM that does not run, a host that is down, a
//! migration. Then the way in which the connection fails tells a stopped agent from a guest that
//! does not answer at all.

use virtfleet_wire::finding::Severity;

use super::{
    evaluation::{Evaluation, Text},
    facts::{HealthFacts, MAX_REPORT_AGE_MS},
    verdict::HealthCause,
};
use crate::{
    findings::{self, GUEST_PREFIX},
    pull_result::{Failure, FailureClass, FailurePoint},
    reported::ReportedStatus,
    view::{AgentStatus, VmState},
};

/// Reason where no agent is pulled.
pub const NOT_PULLED: &str = "NotPulled";

/// Prefixes of the guest's findings that other conditions evaluate.
const OF_OTHER_CONDITIONS: [&str; 3] = ["disk-", "dns-", "virtio-"];

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    match facts.agent.status {
        AgentStatus::Off => Evaluation::unknown(
            HealthCause::Vm,
            "NotRunning",
            format!("the VM is {}, so its agent cannot answer", facts.state.as_str()),
        ),
        AgentStatus::Disabled => Evaluation::unknown(
            HealthCause::Agent,
            NOT_PULLED,
            "the collector pulls no agents (neither enrolment nor scrape.tls is set), so the guest is unknown",
        ),
        AgentStatus::Waiting if facts.is_first_pull_pending() => waiting(),
        AgentStatus::Waiting => not_pulled_lately(),
        AgentStatus::Up => up(facts),
        AgentStatus::Silent => silent(facts),
    }
}

fn waiting() -> Evaluation {
    Evaluation::unknown(HealthCause::Agent, "Waiting", "the agent has not been pulled yet").undecided()
}

fn not_pulled_lately() -> Evaluation {
    Evaluation::unknown(
        HealthCause::Agent,
        "NotPulledLately",
        "the collector has not pulled the agent for 5 minutes",
    )
    .next("check the log and the load of virtfleet-collector")
}

fn up(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(answer) = facts.fresh_answer() else {
        return not_pulled_lately();
    };
    let is_stranger = facts
        .findings
        .iter()
        .any(|one| one.id == findings::IDENTITY_UUID_MISMATCH && one.severity == Severity::Critical);
    if is_stranger {
        return Evaluation::critical(
            HealthCause::Agent,
            "IdentityDisagrees",
            "the guest that answers has another SMBIOS UUID than the VMI",
        )
        .next(facts.list_findings());
    }
    // Findings of newer agents must not be lost.
    let other = answer.report.findings.iter().find(|one| {
        let id = one.id.strip_prefix(GUEST_PREFIX).unwrap_or_default();
        one.severity == Severity::Critical && !OF_OTHER_CONDITIONS.iter().any(|prefix| id.starts_with(prefix))
    });
    if let Some(finding) = other {
        return Evaluation::degraded(HealthCause::Guest, "GuestProblem", finding.message.clone())
            .measured()
            .next("in the guest: virtfleet-agent doctor");
    }
    Evaluation::holds("Up", "the agent answers")
}

fn silent(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(failure) = facts.agent.failure else {
        return waiting();
    };
    if is_old(facts) {
        return not_pulled_lately();
    }
    if !facts.agent.is_expected {
        return Evaluation::unknown(
            HealthCause::Agent,
            "NoAgentExpected",
            "no agent has ever answered, and no UserCluster selects the VM, so the guest is unknown",
        );
    }
    if facts.is_host_down() {
        return Evaluation::unknown(
            HealthCause::Host,
            "HostDown",
            "the agent does not answer, because the infra node is down or not ready",
        );
    }
    // A contradiction is no question of time.
    let is_transient = matches!(
        failure.class,
        FailureClass::Connect | FailureClass::Timeout | FailureClass::NoAddress | FailureClass::Enrolment
    );
    if facts.may_boot() && is_transient {
        return Evaluation::unknown(
            HealthCause::Agent,
            "NoAnswerYet",
            "the VM may still boot: its agent has not answered yet",
        )
        .undecided();
    }
    match facts.state {
        VmState::Migrating => {
            return Evaluation::unknown(
                HealthCause::Migration,
                "Migrating",
                "the agent does not answer during a live migration",
            );
        }
        VmState::Stopping => {
            return Evaluation::unknown(
                HealthCause::Vm,
                "Stopping",
                "the guest shuts down and has stopped its agent",
            );
        }
        _ => {}
    }
    by_class(facts, failure).next(next_step(facts, failure))
}

fn is_old(facts: &HealthFacts<'_>) -> bool {
    let last = facts.agent.last_try_ms;
    last.is_some_and(|last| facts.now_ms.saturating_sub(last) > MAX_REPORT_AGE_MS)
}

fn by_class(facts: &HealthFacts<'_>, failure: &Failure) -> Evaluation {
    let degraded = Evaluation::degraded;
    if failure.point == Some(FailurePoint::Relay) {
        return degraded(
            HealthCause::Network,
            "RelayDown",
            "the relay of the user cluster does not work, so the agent cannot be reached",
        );
    }
    match failure.class {
        FailureClass::Connect if failure.point == Some(FailurePoint::Refused) => degraded(
            HealthCause::Agent,
            "AgentStopped",
            "the guest refuses the connection: it runs, and its agent does not",
        ),
        FailureClass::Connect => degraded(
            HealthCause::Network,
            "Unreachable",
            "the agent's address cannot be reached, or the connection is lost",
        ),
        FailureClass::Timeout => timeout(facts),
        FailureClass::Tls => degraded(
            HealthCause::Agent,
            "CertificateRefused",
            "the TLS handshake fails: the certificate of the agent or of the collector is refused",
        ),
        FailureClass::WrongVm => Evaluation::critical(
            HealthCause::Agent,
            "WrongVm",
            "something with the certificate of another VM answers at the VM's address",
        )
        .immediate(),
        FailureClass::Enrolment => degraded(
            HealthCause::Agent,
            "NotEnrolled",
            "the agent has no certificate, and the collector issues none",
        ),
        FailureClass::NoAddress => degraded(
            HealthCause::Network,
            "NoAddress",
            "the VM runs and has no address",
        ),
        FailureClass::NotAllowed => degraded(
            HealthCause::Agent,
            "AddressNotAllowed",
            "the settings of the collector, or of the relay, do not allow the VM's address",
        ),
        FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed => degraded(
            HealthCause::Agent,
            "AnswerUnusable",
            "the agent answers, and its answer cannot be used",
        ),
    }
}

/// What to do about an agent that is silent.
fn next_step(facts: &HealthFacts<'_>, failure: &Failure) -> Text {
    let namespace = &facts.key.namespace;
    match (failure.class, failure.point) {
        (_, Some(FailurePoint::Relay)) => {
            "check the relay that spec.relay.address of the UserCluster names, and its log".into()
        }
        (FailureClass::Connect, Some(FailurePoint::Refused)) => {
            "in the guest: systemctl status virtfleet-agent, then virtfleet-agent doctor".into()
        }
        (FailureClass::Connect | FailureClass::Timeout, None) => format!(
            "virtctl -n {namespace} console {}; if the guest lives: kubectl -n {namespace} get networkpolicy",
            facts.key.name
        )
        .into(),
        (FailureClass::Tls, _) => "in the guest: virtfleet-agent doctor".into(),
        (FailureClass::NoAddress, _) => {
            format!("kubectl -n {namespace} get pod -l kubevirt.io=virt-launcher -o wide").into()
        }
        (FailureClass::NotAllowed, _) => {
            "add the VM's network to scrape.allowCIDRs in the collector's settings, or to the relay's".into()
        }
        (FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed, _) => {
            "in the guest: journalctl -u virtfleet-agent".into()
        }
        (FailureClass::WrongVm | FailureClass::Enrolment, _) | (_, Some(FailurePoint::Refused)) => {
            facts.list_findings().into()
        }
    }
}

/// Nothing answers at the address: the packets are dropped, or the guest hangs. Its kubelet tells
/// which. KubeVirt's `AgentConnected` does not: it stays `True` while a guest hangs.
fn timeout(facts: &HealthFacts<'_>) -> Evaluation {
    let node = facts.user_node.and_then(|node| node.conditions.status("Ready"));
    match node {
        Some(ReportedStatus::True) => Evaluation::degraded(
            HealthCause::Network,
            "AddressFiltered",
            "the guest lives, and its agent does not answer in time: a firewall or NetworkPolicy may drop the packets",
        ),
        Some(ReportedStatus::Unknown) => Evaluation::critical(
            HealthCause::Guest,
            "GuestHung",
            "neither the agent nor the kubelet answers, and the infra node is ready: the guest hangs or has no network",
        ),
        Some(ReportedStatus::False) | None => Evaluation::degraded(
            HealthCause::Network,
            "NoAnswer",
            "the agent does not answer in time: the guest hangs, or packets to it are dropped",
        ),
    }
}
