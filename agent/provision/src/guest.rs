//! What a stage's steps work on, and what they report.

use std::time::Instant;

use virtfleet_agent_core::pass::{GuestRecord, RunOutcome, SettingsProblem, Stage};
use virtfleet_agent_host::{Lock, Roots, Services};
use virtfleet_agent_state::settings::LoadedSettings;

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
    pub outcome: RunOutcome,
    /// What was done, or why not; one line.
    pub message: String,
    /// What is wrong with the settings on disk.
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
