//! `/run/virtfleet/state/nic.json`: state of the queues after the last run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Multiqueue;

use crate::virtio::Features;

/// Format version of the file.
pub const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicState {
    /// [`FORMAT`].
    pub v: u32,
    pub boot_id: String,
    /// Time of writing, `CLOCK_BOOTTIME` in nanoseconds.
    pub at_boottime_ns: u64,
    /// Time of writing, nanoseconds since 1970.
    pub at_ns: u64,
    /// Which changes of the number of queues are allowed.
    pub multiqueue: Multiqueue,
    /// Interfaces by name.
    pub nics: BTreeMap<String, NicStatus>,
    /// Recorded states of absent interfaces by name. An interface that comes back gets its state
    /// back.
    pub away: BTreeMap<String, NicStatus>,
    /// What the last run did, one sentence each.
    pub done: Vec<String>,
    /// Error of the last run.
    pub error: Option<String>,
    /// Refusals of the last run, one sentence each.
    pub refusals: Vec<String>,
    /// Number of changes in this boot.
    pub changes: u64,
    /// Number of changes in this boot that were reverted because the link did not come back.
    pub rollbacks: u64,
    /// Features offered by each device (`virtio2`); only root can read them.
    pub offered: BTreeMap<String, Features>,
    /// MTU from DHCP by interface; some leases only root can read.
    pub dhcp_mtu: BTreeMap<String, u32>,
}

impl NicState {
    /// Returns a summary in one line: interfaces, those that differ, errors, and what the last run
    /// did.
    pub fn summary(&self) -> String {
        let count = self
            .nics
            .values()
            .filter(|nic| nic.standing != QueueStatus::Excluded);
        let differ = self.nics.iter().filter(|(_, nic)| {
            matches!(
                nic.standing,
                QueueStatus::Differs | QueueStatus::RolledBack | QueueStatus::Unknown
            )
        });
        let mut parts = vec![match count.count() {
            0 => "no managed virtio interface".to_owned(),
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

/// State of the queues of one interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NicStatus {
    /// MAC address; tells another interface of the same name apart.
    pub mac: String,
    /// Interface index; tells a device that was unplugged and plugged in again apart. 0 if unknown.
    pub index: u32,
    pub standing: QueueStatus,
    /// Reason of the state, one sentence.
    pub because: String,
    /// Number of queues (combined channels) when the agent first saw it in this boot.
    pub first: u32,
    /// Number of online CPUs at that time. It shows whether the kernel chose the number of queues.
    pub first_cpus: u32,
    /// Number of queues that the agent has set and verified in this boot.
    pub ours: Option<u32>,
    /// Number of queues before the agent's change, or the number that an admin or another program
    /// set since.
    pub before: Option<u32>,
    /// Change that is not verified yet, or that broke the link and could not be reverted.
    pub pending: Option<Pending>,
    /// Numbers of queues with which the link did not come back. Only a manual run retries them in
    /// this boot.
    pub put_back: BTreeSet<u32>,
    /// Numbers of queues that the driver rejected. Only a manual run retries them in this boot.
    pub refused: BTreeSet<u32>,
    /// Number of reverted changes after which the interface still did not work, so that the number
    /// of queues may not be the cause. From the second one on, the number is not retried.
    pub unclear: u32,
    /// Packets per queue when the number of queues was last changed; imbalance is measured from
    /// there.
    pub baseline: Baseline,
    /// Traffic before and after the last change, if there was enough traffic to measure.
    pub measured: Option<Measured>,
}

impl NicStatus {
    /// Whether the state belongs to this interface.
    pub fn is_of(&self, mac: &str, index: u32) -> bool {
        self.mac == mac && (self.index == 0 || self.index == index)
    }

    /// Records that the agent changed the queues from `from` to `to` and verified the change.
    pub fn set(&mut self, from: u32, to: u32) {
        // A number that was set since the agent's last change is the one to restore.
        if self.ours != Some(from) || self.before.is_none() {
            self.before = Some(from);
        }
        self.ours = Some(to);
        self.pending = None;
        self.put_back.remove(&to);
        self.refused.remove(&to);
        self.unclear = 0;
    }

    /// Records that the pending change was reverted. An earlier change of the agent stays in
    /// effect. A number that broke the interface is not retried; if the cause is unclear, it is
    /// retried once.
    pub fn record_revert(&mut self) {
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

    /// Records that the original number is restored and no change of the agent is in effect.
    pub fn give_back(&mut self) {
        self.ours = None;
        self.before = None;
    }

    /// Whether a change broke the interface, and reverting it did not help or is pending.
    pub fn is_broken(&self) -> bool {
        self.pending
            .as_ref()
            .is_some_and(|pending| pending.broke.is_some())
    }

    /// Whether the state must be kept while the interface is absent.
    pub fn is_memorable(&self) -> bool {
        self.ours.is_some()
            || self.pending.is_some()
            || !self.put_back.is_empty()
            || !self.refused.is_empty()
            || self.unclear > 0
    }
}

/// Change of the number of queues in progress, with the state before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pending {
    /// Number of queues before the change.
    pub from: u32,
    /// Number of queues after the change.
    pub to: u32,
    /// Whether the link had a carrier.
    pub carrier: bool,
    /// Whether `operstate` was `up`.
    pub up: bool,
    /// Whether the interface had an address.
    pub address: bool,
    /// What stopped working with `to` queues, once known; from then on `from` is restored.
    pub broke: Option<String>,
    /// What still does not work after restoring `from`.
    pub still: Option<Still>,
}

/// Failure that persists after the number of queues was restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Still {
    pub why: String,
    /// Whether the number of queues may not be the cause.
    pub unclear: bool,
}

/// Packet counters per queue at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// Received packets by queue.
    pub rx: Vec<u64>,
    /// Sent packets by queue.
    pub tx: Vec<u64>,
}

/// Traffic before and after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Measured {
    pub before: Rates,
    pub after: Rates,
}

/// Traffic rates over a short time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rates {
    /// Received bytes per second.
    pub rx_bytes: f64,
    /// Sent bytes per second.
    pub tx_bytes: f64,
    /// CPU time in soft interrupts, as a fraction of one CPU.
    pub softirq: f64,
}

/// State of the queues of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum QueueStatus {
    /// The number of queues is as requested.
    Spread,
    /// Fewer queues than requested (or more, after vCPUs were removed), and they may not be
    /// changed.
    Differs,
    /// The VM's interface has one queue only: multiqueue is off in the VM's spec.
    Single,
    /// Set by an admin or another program, and kept.
    Manual,
    /// Changed, and reverted because the link did not come back.
    RolledBack,
    /// Excluded by the settings, or not a virtio interface.
    Excluded,
    /// Could not be read.
    #[default]
    Unknown,
}

impl QueueStatus {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name of the state in output.
    pub fn word(self) -> &'static str {
        self.into()
    }
}
