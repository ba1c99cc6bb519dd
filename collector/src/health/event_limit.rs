//! Limits the Events about one VM, so that a VM whose verdict flaps displaces no Events of others.
//! Pure: the caller passes the time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use virtfleet_wire::ids::VmKey;

/// Sustained rate: one Event per VM in this time.
const VM_EVENT_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum burst of Events of one VM: a problem that comes, gets worse and goes twice.
const VM_EVENT_BURST: u32 = 6;

#[derive(Debug, Clone, Copy)]
struct VmEvents {
    /// Token-bucket position: when all Events so far would have been due at the sustained rate.
    bucket_time: Instant,
    /// Events that were not recorded since the last one that was.
    suppressed: u32,
}

/// Limits of all VMs.
#[derive(Debug, Default)]
pub(super) struct EventLimit(BTreeMap<VmKey, VmEvents>);

impl EventLimit {
    /// Whether an Event about the VM may be recorded now; if so, the number of earlier ones that
    /// could not be.
    pub(super) fn take(&mut self, key: &VmKey, now: Instant) -> Option<u32> {
        let events = self.0.entry(key.clone()).or_insert(VmEvents {
            bucket_time: now,
            suppressed: 0,
        });
        let bucket_time = events.bucket_time.max(now) + VM_EVENT_INTERVAL;
        if bucket_time > now + VM_EVENT_INTERVAL * VM_EVENT_BURST {
            events.suppressed = events.suppressed.saturating_add(1);
            return None;
        }
        events.bucket_time = bucket_time;
        Some(std::mem::take(&mut events.suppressed))
    }

    /// Forgets VMs without recent Events.
    pub(super) fn prune(&mut self, now: Instant) {
        self.0
            .retain(|_, events| events.bucket_time > now || events.suppressed > 0);
        // What is left of VMs that do not exist any more is small, and ends here.
        self.0.retain(|_, events| {
            now.saturating_duration_since(events.bucket_time) < VM_EVENT_INTERVAL * VM_EVENT_BURST
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: name.parse().unwrap(),
        }
    }

    #[test]
    fn a_vm_that_flaps_costs_only_itself() {
        let (begin, mut limit) = (Instant::now(), EventLimit::default());
        let second = |number: u32| begin + Duration::from_secs(number.into());
        let recorded = (0..3600).filter(|number| limit.take(&key("flaps"), second(*number)).is_some());
        let recorded = recorded.count();
        assert!((6..=12).contains(&recorded), "{recorded} Events within an hour");
        assert_eq!(limit.take(&key("calm"), second(3600)), Some(0));
        // The first Event afterwards says how many are missing.
        let suppressed = limit.take(&key("flaps"), second(3600 + 600)).unwrap();
        assert!(suppressed > 100, "{suppressed}");
        limit.prune(second(1_000_000));
        assert!(limit.0.is_empty());
    }
}
