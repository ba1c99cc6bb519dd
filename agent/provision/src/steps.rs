//! The table of steps.

use virtfleet_agent_core::pass::{RunOutcome, Stage, StepPlan};
use virtfleet_agent_state::identity::state::write_state;

use super::{
    disks, dns,
    guest::{Guest, Report},
    health, nic, node_proof, settings,
};

/// One entry of the table.
#[derive(Clone, Copy)]
pub struct Step {
    /// Name, stages, and required steps.
    pub plan: StepPlan,
    /// Description for people.
    pub about: &'static str,
    /// Runs the step.
    pub run: fn(&mut Guest<'_>) -> Report,
}

/// Every step of this version, in run order.
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
        about: "inspects the queues of network interfaces; with nic.multiqueue: auto it raises them to the number of vCPUs, or restores the earlier number",
        run: nic::run,
    },
    Step {
        plan: StepPlan {
            name: "dns",
            stages: &[Stage::Dns, Stage::Reconcile],
            needs: &[],
        },
        about: "probes the nameservers; with dns.manage: auto it writes those that answer, or restores the earlier configuration",
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
            name: "node-proof",
            stages: &[Stage::Provision, Stage::Reconcile],
            needs: &[],
        },
        about: "signs the agent's key with the kubelet's key, if push.kubeletCertificate is set, to /run/virtfleet/state/node-proof.json",
        run: node_proof::run,
    },
    Step {
        plan: StepPlan {
            name: "settings",
            stages: &[Stage::Reconcile],
            needs: &[],
        },
        about: "restarts the agent when the settings on disk are valid and differ from those it serves with",
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
