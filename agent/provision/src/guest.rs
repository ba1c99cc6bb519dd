//! What the steps of a stage work on, and what they report.

use std::time::Instant;

use virtfleet_agent_core::pass::{GuestRecord, RunOutcome, SettingsProblem, Stage};
use virtfleet_agent_host::{Lock, Roots, Services};
use virtfleet_agent_state::settings::LoadedSettings;

/// Input of the steps.
pub struct Guest<'a> {
    pub roots: &'a Roots,
    pub settings: &'a LoadedSettings,
    /// systemd. None if the root filesystem is not that of the running machine: then no service may
    /// be changed.
    pub services: Option<&'a dyn Services>,
    pub stage: Stage,
    /// When the run began, including the wait for another run. The time that one step takes reduces
    /// that of the later steps.
    pub began: Instant,
    /// The record so far. A step may add a note to it.
    pub record: &'a mut GuestRecord,
    /// The lock of the run. It names to other processes what is being done.
    pub lock: &'a Lock,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub outcome: RunOutcome,
    /// What was done, or why not, in one line.
    pub message: String,
    pub problems: Vec<SettingsProblem>,
}

impl Report {
    pub(super) fn new(outcome: RunOutcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            problems: Vec::new(),
        }
    }
}
