//! The table of steps.

use std::time::Instant;

use virtfleet_agent_core::pass::{GuestRecord, Outcome, SettingsProblem, Stage, StepPlan};
use virtfleet_agent_host::{Lock, Roots, Services};
use virtfleet_agent_state::{identity::state::write_state, settings::LoadedSettings};

use super::{disks, dns, health, nic, settings};

/// What steps work on.
pub struct Guest<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// The settings on disk.
    pub settings: &'a LoadedSettings,
    /// systemd; none when the root filesystem is not that of the running machine, whose services are none of its business.
    pub services: Option<&'a dyn Services>,
    /// Which pass it is.
    pub stage: Stage,
    /// When it began, with the wait for another pass: what one step takes of a stage of the boot is lost to those behind it.
    pub began: Instant,
    /// The record so far; steps may keep a note in it.
    pub record: &'a mut GuestRecord,
    /// The lock of the pass, which says to others what is being done.
    pub lock: &'a Lock,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it came out.
    pub outcome: Outcome,
    /// What was done, or why not; one line.
    pub message: String,
    /// What is wrong with the settings on disk.
    pub problems: Vec<SettingsProblem>,
}

impl Report {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            problems: Vec::new(),
        }
    }
}

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
            Report::new(Outcome::Ok, text.lines().next().unwrap_or_default())
        }
        Err(error) => Report::new(Outcome::Failed, format!("{:#}", anyhow::Error::new(error))),
    }
}
