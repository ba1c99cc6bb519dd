//! What of the virtio devices, and of those that stand where virtio was meant, somebody should know: for the report, for `doctor` and for the verb `virtio`.
//!
//! A rule fires on what was seen and says what it saw. On a guest with one vCPU no rule asks for several queues; with `nic.multiqueue: off`, and of
//! interfaces that `nic.exclude` names, no rule speaks of the number of queues. Their ids begin with `virtio-` and are listed in `docs/findings.md`.

mod bound;
mod complete;
mod cpus;
mod devices;
mod disks;
mod emulated;
mod features;
mod interrupts;
mod mtu;
mod queues;
mod standing;
mod traffic;
mod vectors;
mod view;
mod words;

use virtfleet_wire::{finding::Finding, settings::NicSettings};

use super::Machine;
use crate::nic::state::NicState;

pub use bound::MOST;
pub use complete::complete;
use view::View;
pub use words::ranges;

/// The worst first; at most [`MOST`], whatever the machine: many of one kind are summed up in one.
pub fn findings(machine: &Machine, state: Option<&NicState>, settings: &NicSettings) -> Vec<Finding> {
    let view = View::new(machine, state, settings);
    let rules: [fn(&View<'_>) -> Vec<Finding>; 11] = [
        devices::findings,
        standing::findings,
        traffic::findings,
        cpus::findings,
        queues::findings,
        interrupts::findings,
        features::findings,
        disks::findings,
        emulated::findings,
        mtu::findings,
        vectors::findings,
    ];
    bound::bounded(rules.iter().flat_map(|rule| rule(&view)).collect())
}

#[cfg(test)]
mod tests;
