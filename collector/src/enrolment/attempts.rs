//! Attempts to enrol, by VM.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{AttemptHistory, AttemptLimits},
    pull_result::Failure,
};
use virtfleet_wire::ids::{Uid, VmKey};

/// Attempts of each VM. Bounded by the VMs that are dialled: see [`AttemptBook::retain`].
#[derive(Debug, Default)]
pub(super) struct AttemptBook(Mutex<HashMap<VmKey, VmAttempts>>);

#[derive(Debug)]
struct VmAttempts {
    incarnation: Option<Uid>,
    history: AttemptHistory,
    /// Failure of the last attempt.
    failure: Option<Failure>,
}

/// An attempt may not begin yet.
#[derive(Debug)]
pub(super) struct AttemptPause {
    pub(super) left: Duration,
    /// Failure of the last attempt.
    pub(super) failure: Option<Failure>,
}

impl AttemptBook {
    /// Begins an attempt, if the pause after the last one of this incarnation is over. `random` is
    /// from 0 to 1.
    pub(super) fn begin(
        &self,
        target: &DialTarget,
        limits: &AttemptLimits,
        now: Instant,
        random: f32,
    ) -> Result<(), AttemptPause> {
        let mut all = self.lock();
        let incarnation = target.incarnation();
        let known = all
            .get_mut(&target.key)
            .filter(|known| known.incarnation.as_ref() == incarnation);
        if let Some(known) = known {
            let left = known.history.pause(now);
            if !left.is_zero() {
                let failure = known.failure.clone();
                return Err(AttemptPause { left, failure });
            }
            known.history.begin(now, limits, random);
            return Ok(());
        }
        let mut history = AttemptHistory::default();
        history.begin(now, limits, random);
        let fresh = VmAttempts {
            incarnation: incarnation.cloned(),
            history,
            failure: None,
        };
        all.insert(target.key.clone(), fresh);
        Ok(())
    }

    /// Records the end of an attempt. Returns the time until the next one is allowed.
    pub(super) fn end(&self, vm: &VmKey, failure: Option<Failure>, now: Instant) -> Duration {
        let mut all = self.lock();
        let Some(known) = all.get_mut(vm) else {
            return Duration::ZERO;
        };
        known.failure = failure;
        known.history.pause(now)
    }

    /// Allows the next attempt of a VM at once.
    pub(super) fn forget(&self, vm: &VmKey) {
        self.lock().remove(vm);
    }

    /// Removes all VMs except those that `keep` selects.
    pub(super) fn retain(&self, keep: impl Fn(&VmKey) -> bool) {
        self.lock().retain(|vm, _| keep(vm));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<VmKey, VmAttempts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
