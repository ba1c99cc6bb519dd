//! Which VMs are pulled again soon after a failure: those that have just started, so that their
//! agents are joined shortly after they are up. The collector opens all connections, so it has to
//! try.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use virtfleet_collector_core::pull_result::FailureClass;
use virtfleet_wire::ids::VmKey;

/// For so long a VM that has never answered counts as starting.
const MAX_START: Duration = Duration::from_mins(5);
/// Pause between two pulls of a starting VM, plus a millisecond for each of them: at most a
/// thousand connections a second.
const EAGER_PAUSE: Duration = Duration::from_millis(750);
/// Timeout of connecting to a starting VM: it drops packets until its network is up, and the kernel
/// repeats them at growing intervals.
const EAGER_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// VMs that have just started. Pure: the caller passes the time.
#[derive(Debug, Default)]
pub(super) struct StartingVms(HashMap<VmKey, Instant>);

impl StartingVms {
    /// A VM is pulled for the first time.
    pub(super) fn add(&mut self, vm: &VmKey, now: Instant) {
        self.0.insert(vm.clone(), now);
    }

    /// A VM has answered, or is gone.
    pub(super) fn remove(&mut self, vm: &VmKey) {
        self.0.remove(vm);
    }

    /// Timeout of connecting to a VM; none: that of every pull.
    pub(super) fn connect_timeout(&self, vm: &VmKey) -> Option<Duration> {
        self.0.contains_key(vm).then_some(EAGER_CONNECT_TIMEOUT)
    }

    /// The pause after a failed pull; none: until the next interval. `is_expected` tells whether
    /// the VM should have an agent.
    pub(super) fn pause(
        &mut self,
        vm: &VmKey,
        class: FailureClass,
        is_expected: bool,
        now: Instant,
    ) -> Option<Duration> {
        let since = self.0.get(vm)?;
        if !is_expected || now.saturating_duration_since(*since) >= MAX_START {
            self.remove(vm);
            return None;
        }
        // Other failures have pauses of their own, or do not end by themselves.
        let is_starting = matches!(class, FailureClass::Connect | FailureClass::Timeout);
        is_starting.then(|| EAGER_PAUSE + Duration::from_millis(self.0.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: format!("vm-{number}").parse().unwrap(),
        }
    }

    #[test]
    fn a_starting_vm_is_pulled_again_soon_until_it_answers_or_is_given_up() {
        let (mut starting, now) = (StartingVms::default(), Instant::now());
        starting.add(&key(1), now);
        let later = now + Duration::from_mins(1);
        let pause = starting.pause(&key(1), FailureClass::Connect, true, later);
        assert!(pause.unwrap() < Duration::from_secs(1));
        assert_eq!(starting.pause(&key(1), FailureClass::WrongVm, true, later), None);
        assert!(starting.connect_timeout(&key(1)).is_some());
        assert_eq!(
            starting.pause(&key(1), FailureClass::Connect, true, now + MAX_START),
            None
        );
        assert_eq!(starting.connect_timeout(&key(1)), None, "it is given up for good");
        assert_eq!(starting.pause(&key(2), FailureClass::Connect, true, now), None);
    }

    #[test]
    fn many_starting_vms_are_pulled_a_thousand_times_a_second_at_most() {
        let (mut starting, now) = (StartingVms::default(), Instant::now());
        (0..10_000).for_each(|number| starting.add(&key(number), now));
        let pause = starting.pause(&key(1), FailureClass::Timeout, true, now);
        assert!(pause.unwrap() >= Duration::from_secs(10));
        assert_eq!(
            starting.pause(&key(1), FailureClass::Timeout, false, now),
            None,
            "a VM that may have no agent"
        );
    }
}
