//! The virtio devices and their findings, for the report, `doctor` and the verb `virtio`.
//!
//! ```text
//! host/virtio ─ observe ─┐
//! nic.json ─ read ───────┴─ complete ─▶ findings (agent/core) ─▶ Virtio ─▶ report, doctor, verb
//! ```

/// A machine with virtio devices, for tests.
#[cfg(any(test, feature = "fakes"))]
pub mod sample;

use crate::NIC_STATE;
use virtfleet_agent_core::{
    nic::state::NicState,
    virtio::{Machine, Nic, complete, findings},
};
use virtfleet_agent_host::{Roots, nic_calls, virtio::observe};
use virtfleet_wire::{finding::Finding, settings::NicSettings};

/// The devices and their findings.
#[derive(Debug, Clone, Default)]
pub struct Virtio {
    /// The devices, completed with what only root's last reconcile run could read.
    pub machine: Machine,
    /// Result of root's last reconcile run of the queues in this boot. `None` if there was none.
    pub state: Option<NicState>,
    /// Why the state file is unusable; `None` if it is usable or absent.
    pub unusable: Option<String>,
    /// Most severe first.
    pub findings: Vec<Finding>,
}

/// Inspects the devices. `offered`: read the features that devices offer, which requires root;
/// otherwise they are taken from root's last reconcile run.
pub fn inspect(roots: &Roots, boot_id: &str, settings: &NicSettings, offered: bool) -> Virtio {
    let machine = observe(roots, &*nic_calls(roots), offered);
    let (state, unusable) = match NIC_STATE.read(roots, boot_id) {
        Ok(state) => (Some(state), None),
        Err(error) if error.is_absent() => (None, None),
        Err(error) => (None, Some(format!("{NIC_STATE}: {error}"))),
    };
    Virtio::of(machine, state, unusable, settings)
}

impl Virtio {
    /// Builds the result from its parts and computes the findings.
    pub fn of(
        mut machine: Machine,
        state: Option<NicState>,
        unusable: Option<String>,
        settings: &NicSettings,
    ) -> Self {
        if let Some(state) = &state {
            complete(&mut machine, state);
        }
        Self {
            findings: findings(&machine, state.as_ref(), settings),
            machine,
            state,
            unusable,
        }
    }

    /// The queues of an interface and their status, e.g. `4 of 4 queues (spread)`. `None` if the
    /// driver does not report its queues.
    pub fn queues(&self, nic: &Nic) -> Option<String> {
        let channels = nic.channels?;
        let counted = match (channels.current, channels.possible) {
            (1, 1) => "1 queue".to_owned(),
            (current, possible) => format!("{current} of {possible} queues"),
        };
        Some(match self.standing(nic) {
            Some(word) => format!("{counted} ({word})"),
            None => counted,
        })
    }

    /// Status of an interface's queues in one word. `None` before root's first reconcile run.
    pub fn standing(&self, nic: &Nic) -> Option<&'static str> {
        let standing = self.state.as_ref()?.nics.get(&nic.name)?;
        (standing.mac == nic.mac).then(|| standing.standing.word())
    }
}

#[cfg(test)]
mod tests;
