//! The table of steps.

use virtfleet_agent_core::pass::{RunOutcome, Stage, StepPlan};
use virtfleet_agent_state::identity::state::write_state;

use super::{
    disks, dns,
    guest::{Guest, Report},
    health, nic, settings,
};

/// A line of the table.
#[derive(Clone, Copy)]
pub struct Step {
    /// Name, stages, and what it needs.
    pub plan: StepPlan,
    /// What it does, for people.
    pub about: &'static str,
    /// Does it.
    pub run: fn(&mut Guest<'_>) -> Report,
}

/// Every step of this version, in the order in which they run.
pub static STEPS: &[Step] = &[
    Step {
        plan: StepPlan {
            name: "identity",
            stages: &[Stage::Provision, Stage::Reconcile],
            needs: &[],
        },
        about: "writes what only root may read of the identity to /run/virtfleet/state/identity.json",
        run: identity,
    },
    Step {
        plan: StepPlan {
            name: "disks",
            stages: &[Stage::Provision, Stage::Reconcile],
            needs: &[],
        },
        about: "formats, mounts, grows and opens the secondary disks that the settings declare",
        run: disks::run,
    },
    Step {
        plan: StepPlan {
            name: "nic",
            stages: &[Stage::Dns, Stage::Reconcile],
            needs: &[],
        },
        about: "looks at the queues of network interfaces, and with nic.multiqueue: auto raises them to the vCPUs, or puts back what was there",
        run: nic::run,
    },
    Step {
        plan: StepPlan {
            name: "dns",
            stages: &[Stage::Dns, Stage::Reconcile],
            needs: &[],
        },
        about: "asks the nameservers, and with dns.manage: auto writes those that answer, or puts back what was there",
        run: dns::run,
    },
    Step {
        plan: StepPlan {
            name: "guest-health",
            stages: &[Stage::Provision, Stage::Reconcile],
            needs: &[],
        },
        about: "writes the dates of kubelet's certificates to /run/virtfleet/state/guest-health.json",
        run: health::run,
    },
    Step {
        plan: StepPlan {
            name: "settings",
            stages: &[Stage::Reconcile],
            needs: &[],
        },
        about: "restarts the agent when the settings on disk are valid and other than those it serves with",
        run: settings::run,
    },
];

fn identity(guest: &mut Guest<'_>) -> Report {
    match write_state(guest.roots) {
        Ok(written) => {
            let text = written.to_string();
            Report::new(RunOutcome::Ok, text.lines().next().unwrap_or_default())
        }
        Err(error) => Report::new(RunOutcome::Failed, format!("{:#}", anyhow::Error::new(error))),
    }
}
