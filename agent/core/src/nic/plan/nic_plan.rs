//! The plan of one interface, and of all.

use super::super::state::QueueStatus;
use super::{
    refused::{Refusal, RefusalKind},
    step::NicStep,
};
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Multiqueue;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicPlan {
    pub nic: String,
    pub index: u32,
    pub mac: String,
    /// Current number of queues.
    pub current: Option<u32>,
    /// Maximum number of queues.
    pub possible: Option<u32>,
    /// Requested number of queues; `None` if the agent does not manage them.
    pub wanted: Option<u32>,
    /// Current state.
    pub standing: QueueStatus,
    /// Reason of the state, one sentence.
    pub because: String,
}

/// Plan for all interfaces and disks. All keys are required: otherwise any JSON object would parse
/// as an empty plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Which changes of the number of queues are allowed.
    pub multiqueue: Multiqueue,
    /// Online CPUs.
    pub online: Vec<u32>,
    /// Interfaces by name.
    pub nics: Vec<NicPlan>,
    /// Steps in order; empty if everything is as requested.
    pub steps: Vec<NicStep>,
    /// Reasons why something is not done.
    pub refusals: Vec<Refusal>,
    pub notes: Vec<String>,
}

impl Plan {
    /// Returns the plan of the interface.
    pub fn nic(&self, name: &str) -> Option<&NicPlan> {
        self.nics.iter().find(|one| one.nic == name)
    }

    /// Whether two plans have the same steps for the same reasons.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.steps, &self.refusals, &self.nics, &self.online)
            == (&other.steps, &other.refusals, &other.nics, &other.online)
    }

    pub(super) fn refuse(&mut self, kind: RefusalKind, subject: &str, message: String, remedy: &str) {
        self.refusals.push(Refusal {
            kind,
            subject: subject.to_owned(),
            message,
            remedy: remedy.to_owned(),
        });
    }
}
