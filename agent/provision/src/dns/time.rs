//! The time that a pass has, and the questions that it asks: one deadline that is handed down to every tool, every wait and every question.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::answers::{Answer, Question};
use virtfleet_agent_host::{CommandError, CommandOutput, Commands, Tool, dns::DnsClient};

/// How long the DNS stage of the boot may take in all: less than the start timeout of its unit (90 s, `virtfleet-dns.service`), with what comes before and after.
pub(super) const STAGE_BUDGET: Duration = Duration::from_secs(80);
/// What of it is kept for putting back, and for writing down how DNS stands.
const PUT_BACK: Duration = Duration::from_secs(30);
/// With less than this no change is begun.
const CHANGE: Duration = Duration::from_secs(10);
/// A question is not cut shorter.
const QUESTION: Duration = Duration::from_millis(500);

/// Until when.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Until {
    all: Option<Instant>,
}

impl Until {
    /// As long as it takes.
    pub(super) const UNBOUNDED: Self = Self { all: None };

    pub(super) fn within(all: Duration) -> Self {
        Self {
            all: Some(Instant::now() + all),
        }
    }

    /// Until when what was begun may go on: afterwards it is put back.
    pub(super) fn change(self) -> Option<Instant> {
        self.all
            .map(|all| all.checked_sub(PUT_BACK).unwrap_or_else(Instant::now))
    }

    /// Until when all must have ended, with what was put back.
    pub(super) fn all(self) -> Option<Instant> {
        self.all
    }

    /// Whether there is time enough to begin a change.
    pub(super) fn for_a_change(self) -> bool {
        left(self.change()).is_none_or(|left| left >= CHANGE)
    }

    /// As long a wait as leaves time for a change.
    pub(super) fn wait(self, patience: Duration) -> Duration {
        let most = left(self.change()).map(|left| left.saturating_sub(CHANGE * 2));
        most.map_or(patience, |most| most.min(patience))
    }

    /// At most until what was begun must have ended.
    pub(super) fn settle(self, settle: Duration) -> Duration {
        left(self.change()).map_or(settle, |left| left.min(settle))
    }
}

fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

/// Commands that end in time: each has half of what is left, so that one that hangs leaves something to those behind it.
pub(super) struct Within<'a> {
    pub(super) commands: &'a dyn Commands,
    pub(super) until: Option<Instant>,
}

impl Commands for Within<'_> {
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

/// Asks in time, and counts.
pub(super) struct Counting<'a> {
    pub(super) dns_client: &'a dyn DnsClient,
    pub(super) until: Option<Instant>,
    pub(super) asked: RefCell<BTreeMap<IpAddr, u32>>,
}

impl DnsClient for Counting<'_> {
    fn query(&self, questions: &[Question], timeout: Duration) -> Vec<Answer> {
        for question in questions {
            *self.asked.borrow_mut().entry(question.nameserver).or_default() += 1;
        }
        let most = left(self.until).map_or(timeout, |left| left.max(QUESTION));
        self.dns_client.query(questions, timeout.min(most))
    }
}

#[cfg(test)]
mod tests;
