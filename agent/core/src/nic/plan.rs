//! The plan for the queues of the network interfaces, and for disk schedulers.

mod disk;
mod nic_plan;
mod refused;
mod steering;
mod step;
mod verdict;

pub use nic_plan::{NicPlan, Plan};
pub use refused::{Refusal, RefusalKind};

pub use step::{NicStep, RingSizes, Target};

use super::{
    Asked,
    state::{NicState, QueueStatus},
};
use crate::virtio::{Machine, Nic, Rings, features::transport};
use verdict::Verdict;

/// Note for plans that add queues.
const COST: &str = "more queues can cost: outgoing traffic of a few flows may get slower, and each queue takes memory and CPU time on guest and host; \
                    nic.json has the measurements, and nic.multiqueue: off restores the former number";

/// Returns the plan. Pure; empty if it is computed again after its steps were applied. The caller
/// decides which steps it may apply: `report-only` yields the same plan as `auto`.
///
/// `previous` is the state that the last run of this boot recorded: the kernel's initial numbers,
/// and the agent's changes.
pub fn plan(asked: &Asked, machine: &Machine, previous: &NicState) -> Plan {
    let mut plan = Plan {
        multiqueue: asked.multiqueue,
        online: machine.cpus.online.clone(),
        ..Plan::default()
    };
    if plan.online.is_empty() && !machine.nics.is_empty() {
        plan.refuse(
            RefusalKind::Unreadable,
            "cpu",
            "which CPUs are online cannot be read".to_owned(),
            "cat /sys/devices/system/cpu/online",
        );
    }
    for nic in &machine.nics {
        plan.nic_of(asked, nic, machine, previous);
    }
    disk::schedulers(&mut plan, asked, &machine.disks);
    let raises = |step: &NicStep| matches!(step, NicStep::SetChannels { from, to, .. } if to > from);
    if plan.steps.iter().any(raises) {
        plan.notes.push(COST.to_owned());
    }
    plan
}

impl Plan {
    fn nic_of(&mut self, asked: &Asked, nic: &Nic, machine: &Machine, previous: &NicState) {
        let known = previous.nics.get(&nic.name).filter(|known| known.mac == nic.mac);
        let Verdict {
            wanted,
            standing,
            because,
            change,
            note,
        } = verdict::of(asked, nic, &self.online, known);
        self.notes.extend(note);
        self.nics.push(NicPlan {
            nic: nic.name.clone(),
            index: nic.index,
            mac: nic.mac.clone(),
            current: nic.channels.map(|channels| channels.current),
            possible: nic.channels.map(|channels| channels.possible),
            wanted,
            standing,
            because,
        });
        if let (Some(to), Some(channels)) = (change, nic.channels) {
            self.steps.push(NicStep::SetChannels {
                target: Target::of(nic),
                from: channels.current,
                to,
            });
        }
        if standing == QueueStatus::Excluded && !is_managed(asked, nic) {
            return;
        }
        self.rings(asked, nic, machine);
        let current = nic.channels.map(|channels| channels.current);
        if wanted.is_some() && wanted == current && change.is_none() {
            steering::transmit(self, asked, nic);
        }
        if let Some(queues) = change.or(current) {
            steering::receive(self, asked, nic, &machine.cpus, queues);
        }
    }

    /// Plans the requested ring sizes, as far as the device supports them.
    fn rings(&mut self, asked: &Asked, nic: &Nic, machine: &Machine) {
        if (asked.rings.rx, asked.rings.tx) == (None, None) {
            return;
        }
        let Some(now) = nic
            .rings
            .filter(|rings| rings.rx_possible > 0 && rings.tx_possible > 0)
        else {
            let message = format!("the driver of {} does not report its ring sizes", nic.name);
            let remedy = "remove nic.rings from the settings, or add the interface to nic.exclude";
            self.refuse(RefusalKind::Unsupported, &nic.name, message, remedy);
            return;
        };
        let Rings { rx, tx, .. } = now;
        let from = RingSizes { rx, tx };
        let to = RingSizes {
            rx: asked.rings.rx.map_or(rx, |size| size.min(now.rx_possible)),
            tx: asked.rings.tx.map_or(tx, |size| size.min(now.tx_possible)),
        };
        if from == to {
            return;
        }
        // virtio_net resizes a ring by resetting its queue (`virtnet_rx_resize`, Linux 6.0).
        // Without the feature every attempt fails half way.
        let device = nic.device.as_deref().and_then(|name| machine.device(name));
        if device.is_some_and(|device| !device.negotiated.has(transport::RING_RESET)) {
            let message = format!(
                "{} cannot change its ring sizes: RING_RESET was not negotiated between kernel and hypervisor",
                nic.name
            );
            let remedy = "remove nic.rings from the settings, or add the interface to nic.exclude; it requires Linux 6.0 and a hypervisor that can reset single queues";
            self.refuse(RefusalKind::Unsupported, &nic.name, message, remedy);
            return;
        }
        self.steps.push(NicStep::SetRings {
            target: Target::of(nic),
            from,
            to,
        });
    }
}

/// Whether the agent sets anything on the interface: it is virtio and not excluded by name. With
/// `multiqueue: off` only its number of queues is not managed.
fn is_managed(asked: &Asked, nic: &Nic) -> bool {
    let excluded = asked
        .exclude
        .as_ref()
        .is_some_and(|pattern| pattern.matches(&nic.name));
    nic.driver == verdict::DRIVER && !excluded
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
