//! `/run/virtfleet/state/nic.json`: how the queues stand, as root's last pass has found and left them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Multiqueue;

use crate::virtio::Features;

/// The version of the file's shape.
pub const FORMAT: u32 = 1;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicState {
    /// [`FORMAT`].
    pub v: u32,
    /// The boot.
    pub boot_id: String,
    /// When it was written, `CLOCK_BOOTTIME`.
    pub at_boottime_ns: u64,
    /// When it was written, in nanoseconds since 1970.
    pub at_ns: u64,
    /// What may be done.
    pub multiqueue: Multiqueue,
    /// The interfaces, by name.
    pub nics: BTreeMap<String, NicStanding>,
    /// What is remembered of interfaces that are away, by name: one that comes back as the same is met with it.
    pub away: BTreeMap<String, NicStanding>,
    /// What the last pass did, in words.
    pub done: Vec<String>,
    /// Why something was not done.
    pub error: Option<String>,
    /// What was refused, one sentence each.
    pub refusals: Vec<String>,
    /// Changes in this boot.
    pub changes: u64,
    /// Changes in this boot that were put back because the link did not come back.
    pub rollbacks: u64,
    /// What devices offer, by their name (`virtio2`): only root can see that.
    pub offered: BTreeMap<String, Features>,
    /// The MTU that DHCP gave, by interface: some leases only root can read.
    pub dhcp_mtu: BTreeMap<String, u32>,
}

impl NicState {
    /// One line for people: interfaces, those that differ, errors, and what the last run did.
    pub fn summary(&self) -> String {
        let count = self
            .nics
            .values()
            .filter(|nic| nic.standing != Standing::Excluded);
        let differ = self.nics.iter().filter(|(_, nic)| {
            matches!(
                nic.standing,
                Standing::Differs | Standing::RolledBack | Standing::Unknown
            )
        });
        let mut parts = vec![match count.count() {
            0 => "no virtio interface to look after".to_owned(),
            1 => "1 virtio interface".to_owned(),
            more => format!("{more} virtio interfaces"),
        }];
        parts.extend(differ.map(|(name, nic)| format!("{name} {}: {}", nic.standing.word(), nic.because)));
        parts.extend(self.error.clone());
        parts.extend(self.refusals.iter().cloned());
        if !self.done.is_empty() {
            parts.push(format!("did {}", self.done.join(", ")));
        }
        parts.join("; ")
    }
}

/// How the queues of one interface stand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicStanding {
    /// Its MAC address, so that another interface of the same name is told from it.
    pub mac: String,
    /// Its number, so that a device that was unplugged and plugged in again is told from it; 0 when it is not known.
    pub index: u32,
    /// In one word.
    pub standing: Standing,
    /// Why, in one sentence.
    pub because: String,
    /// Queues (combined channels) when it was first seen in this boot.
    pub first: u32,
    /// CPUs that were online then: what tells a number that the kernel has chosen from one of somebody else's.
    pub first_cpus: u32,
    /// Queues that the agent has set in this boot, and verified.
    pub ours: Option<u32>,
    /// Queues before the agent's change; where somebody else has chosen in between, that number.
    pub before: Option<u32>,
    /// A change that was begun and is not verified yet, or that broke the link and could not be put back.
    pub pending: Option<Pending>,
    /// Numbers of queues with which the link did not come back: they are not tried again in this boot unless a person asks for it.
    pub put_back: BTreeSet<u32>,
    /// Numbers of queues that the driver refused: they are not tried again in this boot unless a person asks for it.
    pub refused: BTreeSet<u32>,
    /// Changes that were put back while all was not as before without them either, so that the number of queues may not be what was wrong. The second one counts.
    pub unclear: u32,
    /// Packets of each receive and of each transmit queue when the number of queues was last changed: skew counts from there.
    pub baseline: Baseline,
    /// What the last change came to, where there was traffic enough to tell.
    pub measured: Option<Measured>,
}

impl NicStanding {
    /// Whether it is about this interface.
    pub fn is_of(&self, mac: &str, index: u32) -> bool {
        self.mac == mac && (self.index == 0 || self.index == index)
    }

    /// Notes that the agent has set `to` queues where there were `from`, and that all is well with them.
    pub fn set(&mut self, from: u32, to: u32) {
        // What somebody has chosen since our last change is what he wants back.
        if self.ours != Some(from) || self.before.is_none() {
            self.before = Some(from);
        }
        self.ours = Some(to);
        self.pending = None;
        self.put_back.remove(&to);
        self.refused.remove(&to);
        self.unclear = 0;
    }

    /// Notes that the number of before the pending change is there again. What was ours before is ours still. What `to` queues broke is not tried again; where that is not
    /// clear, it is once.
    pub fn undone(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let unclear = pending.still.is_some_and(|still| still.unclear);
        self.unclear += u32::from(unclear);
        if !unclear || self.unclear > 1 {
            self.put_back.insert(pending.to);
            self.unclear = 0;
        }
    }

    /// Notes that what was there before is there again, and nothing is ours.
    pub fn give_back(&mut self) {
        self.ours = None;
        self.before = None;
    }

    /// Whether a change broke the link, and putting it back did not help, or was not done yet.
    pub fn is_broken(&self) -> bool {
        self.pending
            .as_ref()
            .is_some_and(|pending| pending.broke.is_some())
    }

    /// Whether there is something that counts again when the interface comes back.
    pub fn is_memorable(&self) -> bool {
        self.ours.is_some()
            || self.pending.is_some()
            || !self.put_back.is_empty()
            || !self.refused.is_empty()
            || self.unclear > 0
    }
}

/// A change of the number of queues that is not over, and what there was before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pending {
    /// Queues before it.
    pub from: u32,
    /// Queues that are set.
    pub to: u32,
    /// Whether the other side was there.
    pub carrier: bool,
    /// Whether `operstate` was `up`.
    pub up: bool,
    /// Whether there was an address.
    pub address: bool,
    /// What was not as before with `to` queues, once that is known: from then on `from` are put back.
    pub broke: Option<String>,
    /// What was not as before with `from` queues again.
    pub still: Option<Still>,
}

/// What is not as before although the number of queues is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Still {
    /// In words.
    pub why: String,
    /// Whether the number of queues may not be what was wrong.
    pub unclear: bool,
}

/// Packets by queue at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// Received, by queue.
    pub rx: Vec<u64>,
    /// Sent, by queue.
    pub tx: Vec<u64>,
}

/// Traffic before and after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Measured {
    /// Before.
    pub before: Rates,
    /// After.
    pub after: Rates,
}

/// Traffic over a short time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rates {
    /// Received, bytes a second.
    pub rx_bytes: f64,
    /// Sent, bytes a second.
    pub tx_bytes: f64,
    /// CPU time in soft interrupts, as a share of one CPU.
    pub softirq: f64,
}

/// How the queues of an interface stand, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// As many as there should be.
    Spread,
    /// Fewer (or, where vCPUs went, more) than there should be, and they may not be changed.
    Differs,
    /// The VM's interface has one queue only: multiqueue is off in the VM's spec.
    Single,
    /// Chosen by somebody else, and left alone.
    Manual,
    /// Changed, and put back because the link did not come back.
    RolledBack,
    /// Left alone by the settings, or no virtio interface.
    Excluded,
    /// Could not be found out.
    #[default]
    Unknown,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Spread,
        Self::Differs,
        Self::Single,
        Self::Manual,
        Self::RolledBack,
        Self::Excluded,
        Self::Unknown,
    ];

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Differs => "differs",
            Self::Single => "single",
            Self::Manual => "manual",
            Self::RolledBack => "rolled-back",
            Self::Excluded => "excluded",
            Self::Unknown => "unknown",
        }
    }
}
