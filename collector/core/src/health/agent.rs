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
    heartbeats::Hearing,
    managed::ExcludedBy,
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
        AgentStatus::Off => {
            let message = format!("the VM is {}, so its agent cannot answer", facts.state.as_str());
            let found = Evaluation::unknown(HealthCause::Vm, "NotRunning", message);
            // What it answered was another VMI.
            if facts.vmi.is_none() {
                found.immediate()
            } else {
                found
            }
        }
        AgentStatus::Disabled => Evaluation::unknown(
            HealthCause::Agent,
            NOT_PULLED,
            "the collector pulls no agents (neither enrolment nor scrape.tls is set), so the guest is unknown",
        ),
        AgentStatus::Unmanaged => {
            let why = facts
                .agent
                .excluded_by
                .map_or("it is excluded", ExcludedBy::as_str);
            let text = format!("the agent of this VM is not dialled: {why}");
            Evaluation::unknown(HealthCause::Agent, NOT_PULLED, text)
        }
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
    if facts.is_launcher_gone() {
        return Evaluation::unknown(
            HealthCause::Vm,
            "NotRunning",
            "no virt-launcher pod carries the VMI, so its agent cannot answer",
        );
    }
    if facts.is_host_down() {
        return Evaluation::unknown(
            HealthCause::Host,
            "HostDown",
            "the agent does not answer, because the infra node is down, not ready or silent",
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
        FailureClass::Timeout => timeout(facts, failure.point == Some(FailurePoint::Agent)),
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
        (FailureClass::Timeout, Some(FailurePoint::Agent)) => {
            "in the guest: systemctl status virtfleet-agent, then top".into()
        }
        (FailureClass::Connect | FailureClass::Timeout, None) => format!(
            "{}; if the guest lives: kubectl -n {namespace} get networkpolicy",
            facts.open_console()
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
        (FailureClass::WrongVm | FailureClass::Enrolment, _)
        | (_, Some(FailurePoint::Refused | FailurePoint::Agent)) => facts.list_findings().into(),
    }
}

/// No answer in time. What tells a guest that hangs from one that is not reached:
/// - whether its kernel accepts connections (`is_accepted`);
/// - its kubelet, which connects to the user cluster by itself;
/// - KubeVirt's probe through the QEMU guest agent, which needs no network.
///
/// KubeVirt's `AgentConnected` does not tell: it stays `True` while a guest hangs.
fn timeout(facts: &HealthFacts<'_>, is_accepted: bool) -> Evaluation {
    let node = facts.user_node.filter(|_| facts.is_cluster_read());
    let ready = node.and_then(|node| node.conditions.status("Ready"));
    // Without a controller manager, a Node stays ready.
    let is_kubelet_silent = ready == Some(ReportedStatus::Unknown) || facts.node_hearing() == Hearing::Silent;
    let are_both_silent = node.is_some() && is_kubelet_silent;
    let lives = ready == Some(ReportedStatus::True) && facts.node_hearing() == Hearing::Heard;
    let spec = facts.vmi.and_then(|vmi| vmi.spec.as_deref());
    match (is_accepted, are_both_silent) {
        (true, true) => Evaluation::critical(
            HealthCause::Guest,
            "GuestHung",
            "the guest's kernel accepts connections, and neither the agent nor the kubelet answers: its programs hang",
        ),
        (true, false) => Evaluation::degraded(
            HealthCause::Agent,
            "AgentHung",
            "the guest accepts the connection, and its agent does not answer in time: it hangs, or the guest is overloaded",
        ),
        (false, _) if spec.is_some_and(|spec| spec.has_links_down) => Evaluation::critical(
            HealthCause::Vm,
            "LinkDown",
            "each interface of the VMI has state down, so the guest has no network",
        )
        .next(facts.describe()),
        (false, true) => both_silent(facts),
        (false, false) if lives => Evaluation::degraded(
            HealthCause::Network,
            "AddressFiltered",
            "the guest lives, and its agent does not answer in time: a firewall or NetworkPolicy may drop the packets",
        ),
        (false, false) => Evaluation::degraded(
            HealthCause::Network,
            "NoAnswer",
            "the agent does not answer in time: the guest hangs, or packets to it are dropped",
        ),
    }
}

/// Neither agent nor kubelet answers, and the guest does not accept connections.
fn both_silent(facts: &HealthFacts<'_>) -> Evaluation {
    match facts.guest_ping() {
        Some(true) => Evaluation::critical(
            HealthCause::Network,
            "GuestNetworkLost",
            "the QEMU guest agent answers KubeVirt's probe, and neither the agent nor the kubelet is reached: the guest runs and has no network",
        ),
        Some(false) => guest_hung(),
        None => Evaluation::critical(
            HealthCause::Guest,
            "GuestSilent",
            "neither the agent nor the kubelet answers, and the infra node is ready: the guest hangs or has no network",
        ),
    }
}

/// A guest that answers neither by its network nor by its QEMU guest agent.
pub(super) fn guest_hung() -> Evaluation {
    Evaluation::critical(
        HealthCause::Guest,
        "GuestHung",
        "neither the agent nor the QEMU guest agent, which KubeVirt probes without a network, answers: the guest hangs",
    )
}
