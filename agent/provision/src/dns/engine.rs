//! What works on the DNS of one machine, and its plan.

use std::{net::IpAddr, time::Duration};

use virtfleet_agent_core::dns::{
    Asked, Plan, Seen,
    answers::{Judged, by_interface, judge, once_more, questions},
    kubelet::kubelet_reads,
    plan::{candidates, fallback_candidates, plan, zones},
};

use virtfleet_agent_host::{
    Commands, Roots, Witness,
    dns::{Asker, ObserveDnsError, observe},
};
use virtfleet_agent_state::WriteStateError;
use virtfleet_wire::settings::DnsManage;

/// What works on the DNS of one machine.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// What runs the tools.
    pub commands: &'a dyn Commands,
    /// Who is told of each effect.
    pub witness: &'a dyn Witness,
    /// Who asks nameservers.
    pub asker: &'a dyn Asker,
    /// The boot.
    pub boot_id: &'a str,
    /// How long services may take to take up what was written, until it counts as not answering: [`SETTLE`] but in tests.
    pub settle: Duration,
}

/// A link that is configured anew, with a lease of its own, takes a few seconds.
pub const SETTLE: Duration = Duration::from_secs(15);

/// Why there is no plan, or no record of what was done.
#[derive(Debug, thiserror::Error)]
pub enum PlanDnsError {
    /// What is there.
    #[error(transparent)]
    Observe(#[from] ObserveDnsError),
    /// The same, in words, when it was recorded already.
    #[error("{0}")]
    Unknown(String),
    /// The state was not written.
    #[error("how DNS stands cannot be recorded")]
    State(#[from] WriteStateError),
}

/// All that a plan is made from.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What is there.
    pub seen: Seen,
    /// The plan that follows.
    pub plan: Plan,
}

impl Engine<'_> {
    /// Looks, asks and makes the plan of what is done when a person asks. Nothing is written.
    pub fn plan(&self, asked: &Asked) -> Result<Observed, PlanDnsError> {
        self.planned(asked, true)
    }

    /// The same. By itself nothing has links of a live node configured anew.
    pub(super) fn planned(&self, asked: &Asked, by_hand: bool) -> Result<Observed, PlanDnsError> {
        let seen = self.looked(by_hand)?;
        Ok(self.judged(asked, seen))
    }

    pub(super) fn looked(&self, by_hand: bool) -> Result<Seen, ObserveDnsError> {
        let mut seen = self.observe()?;
        if by_hand {
            seen.live = None;
        }
        Ok(seen)
    }

    pub(super) fn observe(&self) -> Result<Seen, ObserveDnsError> {
        observe(self.roots, self.commands, self.boot_id)
    }

    /// The plan for what was seen; each candidate is asked.
    pub(super) fn judged(&self, asked: &Asked, seen: Seen) -> Observed {
        // With `manage: off` nobody is asked, but where kubelet gives pods what we wrote: that is to be somebody who answers.
        let judged = if asked.manage == DnsManage::Off && !kubelet_reads(&seen) {
            Vec::new()
        } else {
            let mut judged = self.ask(asked, &seen, &candidates(asked, &seen));
            let more = fallback_candidates(asked, &seen, &judged);
            if !more.is_empty() {
                judged.extend(self.ask(asked, &seen, &more));
            }
            judged
        };
        let plan = plan(asked, &seen, &judged);
        Observed { seen, plan }
    }

    /// How each of these nameservers is.
    pub(super) fn ask(&self, asked: &Asked, seen: &Seen, nameservers: &[IpAddr]) -> Vec<Judged> {
        let zones = zones(asked, seen);
        let questions = by_interface(questions(asked, nameservers), &zones);
        let timeout = Duration::from_millis(asked.probe_timeout_ms);
        let mut answers = self.asker.ask(&questions, timeout);
        let judged = judge(asked, seen, &answers);
        let more = by_interface(once_more(asked, &judged), &zones);
        if more.is_empty() {
            return judged;
        }
        answers.extend(self.asker.ask(&more, timeout));
        judge(asked, seen, &answers)
    }
}
