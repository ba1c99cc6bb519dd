//! What a run over the guest's DNS works with, and the plan that it makes.

use std::{net::IpAddr, time::Duration};

use virtfleet_agent_core::dns::{
    Asked, Plan, Seen,
    answers::{Judged, by_interface, error_questions, judge, questions},
    kubelet::kubelet_reads,
    plan::{candidates, fallback_candidates, plan, zones},
};

use virtfleet_agent_host::{
    Commands, FailPoints, NoFailPoints, Roots, SystemCommands,
    dns::{DnsClient, Network, ObserveDnsError, observe},
};
use virtfleet_wire::settings::DnsManage;

use crate::machine::BootIdentity;

/// What a run over the DNS of one guest works with.
#[derive(Clone, Copy)]
pub struct DnsProvisioner<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// Runs the tools.
    pub commands: &'a dyn Commands,
    /// Is told of each effect.
    pub fail_points: &'a dyn FailPoints,
    /// Asks the nameservers.
    pub dns_client: &'a dyn DnsClient,
    /// The boot.
    pub boot_id: &'a str,
    /// How long services may take to take up what was written, until it counts as not answering: [`SETTLE`] but in tests.
    pub settle: Duration,
    /// How long a run waits for a network; after that it reports what there is.
    pub network_wait: Duration,
}

/// A link that is configured anew, with a lease of its own, takes a few seconds.
pub const SETTLE: Duration = Duration::from_secs(15);

/// All that a plan is made from.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What is there.
    pub seen: Seen,
    /// The plan that follows.
    pub plan: Plan,
}

impl<'a> DnsProvisioner<'a> {
    /// What a run over the DNS of the running guest works with. It does not wait for a network.
    pub fn of_guest(roots: &'a Roots, boot: &'a BootIdentity) -> Self {
        Self {
            roots,
            commands: &SystemCommands,
            fail_points: &NoFailPoints,
            dns_client: &Network,
            boot_id: &boot.boot_id,
            settle: SETTLE,
            network_wait: Duration::ZERO,
        }
    }

    /// Looks, asks and makes the plan of what is done when a person asks. Nothing is written.
    pub fn plan(&self, asked: &Asked) -> Result<Observed, ObserveDnsError> {
        self.planned(asked, true)
    }

    /// The same. By itself nothing has links of a live node configured anew.
    pub(super) fn planned(&self, asked: &Asked, by_admin: bool) -> Result<Observed, ObserveDnsError> {
        let seen = self.looked(by_admin)?;
        Ok(self.judged(asked, seen))
    }

    pub(super) fn looked(&self, by_admin: bool) -> Result<Seen, ObserveDnsError> {
        let mut seen = self.observe()?;
        if by_admin {
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
        let mut answers = self.dns_client.query(&questions, timeout);
        let judged = judge(asked, seen, &answers);
        let more = by_interface(error_questions(asked, &judged), &zones);
        if more.is_empty() {
            return judged;
        }
        answers.extend(self.dns_client.query(&more, timeout));
        judge(asked, seen, &answers)
    }
}
