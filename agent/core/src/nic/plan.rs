//! The plan for the queues of the network interfaces, and for disk schedulers.

mod disk;
mod steering;
mod step;
mod verdict;

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Multiqueue;

pub use step::{RingSizes, Step, Target};

use super::{
    Asked,
    state::{NicState, Standing},
};
use crate::virtio::{Machine, Nic, Rings, features::transport};
use verdict::Verdict;

/// Note for plans that add queues.
const COST: &str = "more queues can cost: outgoing traffic of a few flows may get slower, and each queue takes memory and CPU time on guest and host; \
                    nic.json has the measurements, and nic.multiqueue: off restores the former number";

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The settings are invalid.
    Settings,
    /// The kernel or the driver does not support it.
    Unsupported,
    /// The current state cannot be read.
    Unreadable,
    /// The interface is no longer the one for which the plan was made.
    Replaced,
}

/// Refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Reason.
    pub kind: RefusalKind,
    /// Subject, e.g. `eth0`, `vda` or a settings key.
    pub subject: String,
    /// One sentence with what was found.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}

/// Plan for one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicPlan {
    /// Name.
    pub nic: String,
    /// Interface index.
    pub index: u32,
    /// MAC address.
    pub mac: String,
    /// Current number of queues.
    pub current: Option<u32>,
    /// Maximum number of queues.
    pub possible: Option<u32>,
    /// Requested number of queues; `None` if the agent does not manage them.
    pub wanted: Option<u32>,
    /// Current state.
    pub standing: Standing,
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
    pub steps: Vec<Step>,
    /// Reasons why something is not done.
    pub refusals: Vec<Refusal>,
    /// Notes for the admin.
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
}

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
    let raises = |step: &Step| matches!(step, Step::SetChannels { from, to, .. } if to > from);
    if plan.steps.iter().any(raises) {
        plan.notes.push(COST.to_owned());
    }
    plan
}

impl Plan {
    fn refuse(&mut self, kind: RefusalKind, subject: &str, message: String, remedy: &str) {
        self.refusals.push(Refusal {
            kind,
            subject: subject.to_owned(),
            message,
            remedy: remedy.to_owned(),
        });
    }

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
            self.steps.push(Step::SetChannels {
                target: Target::of(nic),
                from: channels.current,
                to,
            });
        }
        if standing == Standing::Excluded && !is_managed(asked, nic) {
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
        self.steps.push(Step::SetRings {
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
