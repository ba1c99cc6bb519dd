//! Findings about virtio devices, and about devices that are emulated instead, for the report, for
//! `doctor` and for the verb `virtio`.
//!
//! A rule uses only observed data and reports it. On a guest with one vCPU no rule requests several
//! queues. With `nic.multiqueue: off`, and for interfaces in `nic.exclude`, no rule concerns the
//! number of queues. Their ids begin with `virtio-` and are listed in `docs/findings.md`.

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
mod works;

use virtfleet_wire::{finding::Finding, settings::NicSettings};

use super::Machine;
use crate::nic::state::NicState;

pub use bound::MAX_FINDINGS;
pub use complete::complete;
use view::View;
pub use words::ranges;

/// Returns the findings, most severe first; at most [`MAX_FINDINGS`], since surplus ones of a kind
/// are summed up.
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
