//! The virtio devices and what is to be said of them: for the report, for `doctor` and for the verb `virtio`.
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

/// What was seen, and what is to be said of it.
#[derive(Debug, Clone, Default)]
pub struct Virtio {
    /// The devices, with what only root's last pass could see.
    pub machine: Machine,
    /// How root's last pass of this boot has left the queues; none when there was none.
    pub state: Option<NicState>,
    /// Why there is no state although there should be: its file cannot be used.
    pub unusable: Option<String>,
    /// The worst first.
    pub findings: Vec<Finding>,
}

/// Looks once. `offered` says whether to look for what devices offer, which only root can; else it is what root's last pass saw.
pub fn look(roots: &Roots, boot_id: &str, settings: &NicSettings, offered: bool) -> Virtio {
    let machine = observe(roots, &*nic_calls(roots), offered);
    let (state, unusable) = match NIC_STATE.read(roots, boot_id) {
        Ok(state) => (Some(state), None),
        Err(error) if error.is_absent() => (None, None),
        Err(error) => (None, Some(format!("{NIC_STATE}: {error}"))),
    };
    Virtio::of(machine, state, unusable, settings)
}

impl Virtio {
    /// From its parts.
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

    /// The queues of an interface and how they stand, e.g. `4 of 4 queues (spread)`; none for one whose driver does not tell.
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

    /// How the queues of an interface stand, in one word; none before root's first pass.
    pub fn standing(&self, nic: &Nic) -> Option<&'static str> {
        let standing = self.state.as_ref()?.nics.get(&nic.name)?;
        (standing.mac == nic.mac).then(|| standing.standing.word())
    }
}

#[cfg(test)]
mod tests;
