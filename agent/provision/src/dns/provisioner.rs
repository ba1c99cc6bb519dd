//! The dependencies of a run over the guest's DNS, and the plan that it makes.

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

/// Dependencies of a run over the DNS of one guest.
#[derive(Clone, Copy)]
pub struct DnsProvisioner<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// Runs the tools.
    pub commands: &'a dyn Commands,
    /// Fail point, reached after each effect.
    pub fail_points: &'a dyn FailPoints,
    /// Sends the DNS probes.
    pub dns_client: &'a dyn DnsClient,
    /// Identity of the current boot.
    pub boot_id: &'a str,
    /// Time that services have to apply what was written, until it counts as not answering. It is
    /// [`SETTLE`] except in tests.
    pub settle: Duration,
    /// How long a run waits for a network. After that it uses what it has observed.
    pub network_wait: Duration,
}

/// Default of [`DnsProvisioner::settle`]. Reconfiguring a link with a lease of its own takes a few
/// seconds.
pub const SETTLE: Duration = Duration::from_secs(15);

/// An observation of the guest's DNS and the plan that follows from it.
#[derive(Debug, Clone)]
pub struct Observed {
    pub seen: Seen,
    pub plan: Plan,
}

impl<'a> DnsProvisioner<'a> {
    /// The dependencies of a run over the DNS of the running guest. The run does not wait for a
    /// network.
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

    /// Observes, probes, and plans as for a run that an admin starts. Writes nothing.
    ///
    /// # Errors
    /// DNS cannot be observed.
    pub fn plan(&self, asked: &Asked) -> Result<Observed, ObserveDnsError> {
        self.observe_and_plan(asked, true)
    }

    /// Observes, probes, and plans. Only a run `by_admin` may reconfigure links of a live node.
    pub(super) fn observe_and_plan(
        &self,
        asked: &Asked,
        by_admin: bool,
    ) -> Result<Observed, ObserveDnsError> {
        let seen = self.observe_for(by_admin)?;
        Ok(self.probe_and_plan(asked, seen))
    }

    pub(super) fn observe_for(&self, by_admin: bool) -> Result<Seen, ObserveDnsError> {
        let mut seen = self.observe()?;
        if by_admin {
            seen.live = None;
        }
        Ok(seen)
    }

    pub(super) fn observe(&self) -> Result<Seen, ObserveDnsError> {
        observe(self.roots, self.commands, self.boot_id)
    }

    /// Probes each candidate and makes the plan for `seen`.
    pub(super) fn probe_and_plan(&self, asked: &Asked, seen: Seen) -> Observed {
        // With `manage: off` nothing is probed, unless kubelet hands pods a file that we wrote: it
        // must name a nameserver that answers.
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

    /// Probes these nameservers and judges each of them.
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
