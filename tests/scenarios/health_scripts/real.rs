//! The result of a pull as a real collector's API shows it, for a stage with another time.

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use virtfleet_collector_core::{
    pull_result::{Answer, Failure, MetricsSummary},
    report::KeptReport,
    usage::UsageCounters,
    view::{AgentStatus, VmDetail},
};
use virtfleet_wire::report::GuestReport;

/// The result of the last pull of a VM.
#[derive(Debug, Clone)]
pub(crate) enum RealPull {
    /// The agent has answered.
    Answered(Box<RealAnswer>),
    /// The pull has failed.
    Failed(Failure),
    /// The collector does not pull the agent, because the VM does not run.
    NotPulled,
}

/// What the agent has answered.
#[derive(Debug, Clone)]
pub(crate) struct RealAnswer {
    report: GuestReport,
    metrics: MetricsSummary,
    took_ms: u64,
    /// Time of the guest's clock in the report after the end of the pull, in milliseconds.
    offset_ms: i64,
}

impl RealPull {
    /// Reads the details of a VM.
    pub(crate) fn of(vm: &VmDetail) -> Result<Self> {
        let agent = &vm.vm.agent;
        match agent.status {
            AgentStatus::Up => {}
            AgentStatus::Off => return Ok(Self::NotPulled),
            AgentStatus::Silent => {
                let failure = agent
                    .failure
                    .clone()
                    .context("a silent agent without a failure")?;
                return Ok(Self::Failed(failure));
            }
            AgentStatus::Waiting | AgentStatus::Disabled | AgentStatus::Unmanaged => {
                bail!("no pull yet: {agent:?}")
            }
        }
        let report = vm.report.clone().context("no report of an agent that answers")?;
        let guest_ms = report.clock.realtime_ns / 1_000_000;
        let seen_ms = agent.last_seen_ms.context("no time of the answer")?;
        Ok(Self::Answered(Box::new(RealAnswer {
            offset_ms: guest_ms.cast_signed() - seen_ms.cast_signed(),
            metrics: vm.vm.guest.as_ref().context("no summary of the guest")?.metrics,
            took_ms: agent.took_ms.context("no duration of the pull")?,
            report,
        })))
    }

    /// The same result of a pull that ends at this time; none without a pull.
    pub(crate) fn outcome(&self, now_ms: u64) -> Option<Result<Answer, Failure>> {
        match self {
            Self::NotPulled => None,
            Self::Failed(failure) => Some(Err(failure.clone())),
            Self::Answered(answer) => Some(Ok(answer.at(now_ms))),
        }
    }
}

impl RealAnswer {
    fn at(&self, now_ms: u64) -> Answer {
        let guest_ms = now_ms.checked_add_signed(self.offset_ms).unwrap();
        let mut report = json!(self.report);
        report["clock"]["realtimeNs"] = json!(guest_ms * 1_000_000);
        Answer {
            report: Box::new(KeptReport::read(report.to_string().as_bytes()).unwrap()),
            metrics: self.metrics,
            counters: UsageCounters::default(),
            queues: Box::default(),
            took_ms: self.took_ms,
            slow: false,
            certificate: None,
        }
    }
}
