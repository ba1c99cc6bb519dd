//! The time limit of a run and of its probes: one deadline, which is passed to every tool, wait and
//! probe.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::answers::{Answer, Question};
use virtfleet_agent_host::{CommandError, CommandOutput, Commands, Tool, dns::DnsClient};

/// Limit of the DNS stage of the boot. Together with what runs before and after, it is less than
/// the start timeout of its unit (90 s, `virtfleet-dns.service`).
pub(super) const STAGE_BUDGET: Duration = Duration::from_secs(80);
/// Part of the limit that is reserved for a rollback and for writing the state.
const ROLLBACK_RESERVE: Duration = Duration::from_secs(30);
/// With less time left, no change is begun.
const MIN_CHANGE_TIME: Duration = Duration::from_secs(10);
/// Shortest timeout of a probe.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Deadline of a run; none: unlimited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunDeadline {
    all: Option<Instant>,
}

impl RunDeadline {
    pub(super) const UNBOUNDED: Self = Self { all: None };

    pub(super) fn within(all: Duration) -> Self {
        Self {
            all: Some(Instant::now() + all),
        }
    }

    /// Deadline of a change. After it the change is rolled back.
    pub(super) fn change(self) -> Option<Instant> {
        self.all
            .map(|all| all.checked_sub(ROLLBACK_RESERVE).unwrap_or_else(Instant::now))
    }

    /// Deadline of the run, with its rollback.
    pub(super) fn all(self) -> Option<Instant> {
        self.all
    }

    /// True if there is time to begin a change.
    pub(super) fn for_a_change(self) -> bool {
        left(self.change()).is_none_or(|left| left >= MIN_CHANGE_TIME)
    }

    /// The longest wait, up to `longest`, that leaves time for a change.
    pub(super) fn wait(self, longest: Duration) -> Duration {
        let most = left(self.change()).map(|left| left.saturating_sub(MIN_CHANGE_TIME * 2));
        most.map_or(longest, |most| most.min(longest))
    }

    /// `settle`, cut to the deadline of a change.
    pub(super) fn settle(self, settle: Duration) -> Duration {
        left(self.change()).map_or(settle, |left| left.min(settle))
    }
}

fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

/// Runs commands before a deadline. Each command gets half of the time left, so that one that hangs
/// leaves time for those after it.
pub(super) struct BoundedCommands<'a> {
    pub(super) commands: &'a dyn Commands,
    pub(super) until: Option<Instant>,
}

impl Commands for BoundedCommands<'_> {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        let Some(left) = self.left() else {
            return self.commands.run(tool);
        };
        let tool = tool.clone().deadline(tool.deadline.min(left / 2));
        if left.is_zero() {
            let stderr = "there was no time left for it".to_owned();
            return Err(CommandError::Late { tool, stderr });
        }
        self.commands.run(&tool)
    }

    fn left(&self) -> Option<Duration> {
        left(self.until)
    }
}

/// Sends probes before a deadline, and counts them per nameserver.
pub(super) struct CountingAsker<'a> {
    pub(super) dns_client: &'a dyn DnsClient,
    pub(super) until: Option<Instant>,
    pub(super) asked: RefCell<BTreeMap<IpAddr, u32>>,
}

impl DnsClient for CountingAsker<'_> {
    fn query(&self, questions: &[Question], timeout: Duration) -> Vec<Answer> {
        for question in questions {
            *self.asked.borrow_mut().entry(question.nameserver).or_default() += 1;
        }
        let most = left(self.until).map_or(timeout, |left| left.max(MIN_PROBE_TIMEOUT));
        self.dns_client.query(questions, timeout.min(most))
    }
}

#[cfg(test)]
mod tests;
