//! Status registry of MLA: the streams publish what they do, and the API, the metrics and the
//! findings read it. Memory is bounded: one entry for each VM and each stream.
//!
//! ```text
//! streams ─ publish_target, publish_queue ─▶ MlaStatus ─ snapshots ─▶ API, metrics, findings
//! ```

mod rate;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use virtfleet_collector_core::{
    mla::status::{QueueStatusView, StreamName, TargetStatus},
    pull_result::UnixMs,
};
use virtfleet_wire::ids::VmKey;

use self::rate::SendRate;

/// Maximum VMs with a status; further ones have none.
const MAX_TARGETS: usize = 100_000;
/// Maximum streams with a status; further ones have none.
const MAX_STREAMS: usize = 10_000;

/// The registry. No lock is held for longer than a copy of one entry or of the list.
#[derive(Debug, Default)]
pub struct MlaStatus {
    targets: Mutex<BTreeMap<VmKey, TargetStatus>>,
    queues: Mutex<BTreeMap<StreamName, KnownQueue>>,
}

#[derive(Debug)]
struct KnownQueue {
    view: QueueStatusView,
    rate: SendRate,
}

/// A panic under a lock is a bug in one update; the entries before it are still valid.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MlaStatus {
    /// Replaces the status of a VM. Returns false if the registry is full.
    pub fn publish_target(&self, status: TargetStatus) -> bool {
        let mut targets = locked(&self.targets);
        if targets.len() >= MAX_TARGETS && !targets.contains_key(&status.vm) {
            return false;
        }
        targets.insert(status.vm.clone(), status);
        true
    }

    /// Removes the status of a VM that is gone.
    pub fn remove_target(&self, vm: &VmKey) {
        locked(&self.targets).remove(vm);
    }

    /// Removes the statuses of all VMs, because this process stops scraping: another leads.
    pub fn clear_targets(&self) {
        locked(&self.targets).clear();
    }

    /// Replaces the status of a stream at the time `now`; its rates follow from the statuses
    /// before. Returns false if the registry is full.
    pub fn publish_queue(&self, mut view: QueueStatusView, now: UnixMs) -> bool {
        let mut queues = locked(&self.queues);
        if let Some(known) = queues.get_mut(&view.stream) {
            known.rate.update(view.sent_samples, view.sent_bytes, now);
            known.rate.write_to(&mut view);
            known.view = view;
            return true;
        }
        if queues.len() >= MAX_STREAMS {
            return false;
        }
        let rate = SendRate::new(view.sent_samples, view.sent_bytes, now);
        rate.write_to(&mut view);
        queues.insert(view.stream.clone(), KnownQueue { view, rate });
        true
    }

    /// Removes the status of a stream that is gone.
    pub fn remove_queue(&self, stream: &StreamName) {
        locked(&self.queues).remove(stream);
    }

    /// The status of every VM.
    pub fn targets(&self) -> BTreeMap<VmKey, TargetStatus> {
        locked(&self.targets).clone()
    }

    /// The status of every stream, by name.
    pub fn queues(&self) -> Vec<QueueStatusView> {
        locked(&self.queues)
            .values()
            .map(|known| known.view.clone())
            .collect()
    }

    /// Whether there is a stream, so that samples are sent or should be.
    pub fn has_streams(&self) -> bool {
        !locked(&self.queues).is_empty()
    }
}

#[cfg(test)]
mod tests;
