//! The plan: which queues an interface is to have, and what is set for that; or why nothing is.

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

/// More queues are no gain for everybody.
const COST: &str = "more queues can cost: outgoing traffic of a few flows may get slower, and each queue takes memory and CPU time on guest and host; \
                    nic.json has what was measured, and nic.multiqueue: off puts back what was there";

/// Why something is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The settings make no sense.
    Settings,
    /// The kernel or the driver cannot do it.
    Unsupported,
    /// What is there could not be found out.
    Unreadable,
    /// It is not the interface any more for which the plan was made.
    Replaced,
}

/// A refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// What it is about, e.g. `eth0`, `vda` or a settings' key.
    pub subject: String,
    /// In one sentence, with what was found.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}

/// What is to become of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicPlan {
    /// Its name.
    pub nic: String,
    /// Its number.
    pub index: u32,
    /// Its MAC address.
    pub mac: String,
    /// Queues now.
    pub current: Option<u32>,
    /// Queues at most.
    pub possible: Option<u32>,
    /// Queues that it is to have; none when they are not looked after.
    pub wanted: Option<u32>,
    /// How it stands now.
    pub standing: Standing,
    /// Why, in one sentence.
    pub because: String,
}

/// The whole plan. Each key must be there: else any other object would be an empty plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What the settings allow.
    pub multiqueue: Multiqueue,
    /// CPUs that are online.
    pub online: Vec<u32>,
    /// The interfaces, by name.
    pub nics: Vec<NicPlan>,
    /// What is done, in order. Empty when everything is as asked for.
    pub steps: Vec<Step>,
    /// Why something is not done.
    pub refusals: Vec<Refusal>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl Plan {
    /// What is planned for this interface.
    pub fn nic(&self, name: &str) -> Option<&NicPlan> {
        self.nics.iter().find(|one| one.nic == name)
    }

    /// Whether two plans do the same for the same reasons.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.steps, &self.refusals, &self.nics, &self.online)
            == (&other.steps, &other.refusals, &other.nics, &other.online)
    }
}

/// The plan. Pure, and empty when it is asked again after it was done. What may be done by itself is for the pass to say: `report-only` has the plan of `auto`.
///
/// `previous` is what the last pass of this boot has left: what the kernel had chosen at first, and what is ours.
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
        if standing == Standing::Excluded && !nic_is_ours_to_set(asked, nic) {
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

    /// The sizes that are asked for, as far as they can be had.
    fn rings(&mut self, asked: &Asked, nic: &Nic, machine: &Machine) {
        if (asked.rings.rx, asked.rings.tx) == (None, None) {
            return;
        }
        let Some(now) = nic
            .rings
            .filter(|rings| rings.rx_possible > 0 && rings.tx_possible > 0)
        else {
            let message = format!("the driver of {} does not say how large its rings are", nic.name);
            let remedy = "take nic.rings out of the settings, or name the interface in nic.exclude";
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
        // virtio_net makes a ring anew by resetting its queue alone (`virtnet_rx_resize`, Linux 6.0); without the feature it fails half way, each time anew.
        let device = nic.device.as_deref().and_then(|name| machine.device(name));
        if device.is_some_and(|device| !device.negotiated.has(transport::RING_RESET)) {
            let message = format!(
                "{} cannot change the size of its rings: hypervisor and kernel have not agreed on RING_RESET",
                nic.name
            );
            let remedy = "take nic.rings out of the settings, or name the interface in nic.exclude; it takes Linux 6.0 and a hypervisor that resets single queues";
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

/// Whether an interface is one of those of which anything is set at all: virtio, and not excluded by name. With `multiqueue: off` its number of queues is left alone, and not what else is
/// asked for.
fn nic_is_ours_to_set(asked: &Asked, nic: &Nic) -> bool {
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
