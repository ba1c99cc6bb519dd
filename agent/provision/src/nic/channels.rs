//! Changes the number of queues of one interface. The rollback is recorded at each point at which a
//! run may be killed.
//!
//! ```text
//! pending ─ set ─ verified ────────────────────▶ ours
//!              └─ broke ─ restore ─ verified ──▶ put_back, retried only by an admin
//!                              ├─ also silent ──▶ unclear: traffic may have stopped by itself; one retry
//!                              └─ not as before ▶ pending, with the fault: the next run checks again
//! ```

use std::time::Duration;

use virtfleet_agent_core::{
    nic::{
        plan::{RefusalKind, Target},
        state::{NicState, NicStatus, Pending, Rates, Still},
    },
    virtio::Machine,
};
use virtfleet_agent_host::{Requester, request_reconcile, withdraw_request};
use virtfleet_agent_state::{NIC_STATE, WriteStateError};
use virtfleet_wire::settings::Multiqueue;

use super::{
    Wanted,
    change::{Before, ChangeError, Fault, kernel_error},
    provisioner::NicProvisioner,
    run::NicOutcome,
    time::{NO_TIME, Time},
};

/// Minimum time that a restored link has to come up.
const MIN_SETTLE_TIME: Duration = Duration::from_secs(1);

impl NicProvisioner<'_> {
    /// Changes an interface from `from` to `to` queues: verified, or restored. `rates` are the
    /// current traffic rates.
    pub(super) fn channels(
        &self,
        target: &Target,
        (from, to): (u32, u32),
        rates: Option<&Rates>,
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<(), ChangeError>, WriteStateError> {
        let nic = &target.nic;
        let (pending, mut before) = match self.begin(target, (from, to), rates) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        standing(state, nic).pending = Some(pending.clone());
        NIC_STATE.write(self.roots, state)?;
        // If this run is killed while the link is down, the next run must follow at once.
        if let Err(error) = request_reconcile(self.roots, Requester::Nic) {
            tracing::debug!(%error, "if this change is interrupted, only a later run completes it");
        }
        let result = self.set_recorded(target, (pending, &mut before), settle, state);
        withdraw_request(self.roots, Requester::Nic);
        result
    }

    /// Sets the queues of a recorded change, and records the result.
    fn set_recorded(
        &self,
        target: &Target,
        (pending, before): (Pending, &mut Before),
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<(), ChangeError>, WriteStateError> {
        let (nic, from, to) = (&target.nic, pending.from, pending.to);
        let result = self.change(target, to, before, settle);
        let standing = standing(state, nic);
        match &result {
            Ok(()) => {
                self.fail_points.at(&format!("{to} queues of {nic} are verified"));
                standing.set(from, to);
                state.changes += 1;
            }
            Err(ChangeError::Broke(fault)) => {
                let what = (to, fault.clone());
                let back = self.put_back(target, &pending, what, before, settle, state)?;
                return Ok(Err(ChangeError::PutBack(back.unwrap_or_else(|still| still))));
            }
            // Its number of queues is checked when it comes back.
            Err(ChangeError::Gone(_)) => {}
            Err(error) => {
                standing.pending = None;
                if matches!(error, ChangeError::Refused(refusal) if refusal.kind == RefusalKind::Unsupported)
                {
                    standing.refused.insert(to);
                }
            }
        }
        NIC_STATE.write(self.roots, state)?;
        Ok(result)
    }

    /// Restores the number of queues of before the change, which failed with `why`; there are
    /// `current` now. Returns the result as text. Error: the link is still not as before.
    fn put_back(
        &self,
        target: &Target,
        pending: &Pending,
        (current, fault): (u32, Fault),
        before: &mut Before,
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<String, String>, WriteStateError> {
        let (nic, from, to) = (&target.nic, pending.from, pending.to);
        if let Some(pending) = &mut standing(state, nic).pending {
            pending.broke = Some(fault.words().to_owned());
        }
        // Report a link that is down before a file that cannot be written.
        let noted = NIC_STATE.write(self.roots, state);
        let mut back = Ok(());
        if current != from {
            self.fail_points.at(&format!("put {nic} back to {from} queues"));
            back = self
                .set(nic, from)
                .map_err(|errno| kernel_error(nic, &format!("putting {from} queues back"), errno));
            self.fail_points.at(&format!("{nic} has {from} queues again"));
        }
        let why = fault.words();
        let verified = back.map_err(|stuck| (Fault::Lost(stuck), false)).and_then(|()| {
            self.verified(target, from, before, settle.max(MIN_SETTLE_TIME))
                .map_err(|still| (still, true))
        });
        // Stopped traffic is not a fault of a link that is up.
        let silent = matches!(
            (&verified, &fault),
            (Err((Fault::Silent(_), _)), Fault::Silent(_))
        );
        let came = verified.map_err(|(still, is_set)| Still {
            // The fault also occurs with this number, so the other number is not its cause, or not
            // alone.
            unclear: silent || (is_set && matches!(still, Fault::Lost(_))),
            why: still.words().to_owned(),
        });
        let standing = standing(state, nic);
        if let (Err(still), Some(pending)) = (&came, &mut standing.pending) {
            pending.still = Some(still.clone());
        }
        if came.is_ok() || silent {
            self.fail_points
                .at(&format!("{from} queues of {nic} are verified"));
            standing.record_revert();
            state.rollbacks += 1;
        }
        noted?;
        NIC_STATE.write(self.roots, state)?;
        Ok(match came {
            Ok(()) => Ok(format!(
                "with {to} queues {why}, so {nic} has its {from} again; sudo virtfleet-agent apply nic tries once more"
            )),
            Err(Still { why: still, .. }) if silent => Ok(format!(
                "with {to} queues {why}, and with {from} again {still}: traffic may have ended by itself, so that {to} queues could not be verified"
            )),
            Err(Still { why: still, .. }) => Err(format!(
                "with {to} queues {why}; with {from} again {still}; the next run checks again. \
                 Look at the link: ip -d link show {nic}; ethtool -l {nic}; journalctl -k -b"
            )),
        })
    }

    /// Completes or rolls back the changes of an interrupted run, and retries rollbacks that
    /// failed. Afterwards the number of queues of each interface is verified, or the outcome names
    /// the fault.
    /// says what is wrong.
    pub(super) fn settle(
        &self,
        machine: &Machine,
        (wanted, by_admin): (&Wanted, bool),
        time: Time,
        state: &mut NicState,
        outcome: &mut NicOutcome,
    ) -> Result<(), WriteStateError> {
        let known = |name: &str| state.nics.get(name)?.pending.clone();
        let left: Vec<(Target, Pending)> = machine
            .nics
            .iter()
            .filter_map(|nic| Some((Target::of(nic), known(&nic.name)?)))
            .collect();
        for (target, pending) in &left {
            let settled = match time.settle(self.world.now(), wanted.asked.settle) {
                None => Err(format!("{}: {NO_TIME}", target.nic)),
                Some(settle) => {
                    let given_up = self.is_unmanaged(target, wanted);
                    self.settle_one(target, pending, (settle, given_up, by_admin), state)?
                }
            };
            match settled {
                Ok(Settled { done, changed }) => {
                    outcome.done.extend(done);
                    if changed {
                        outcome.changed.push(target.nic.clone());
                    }
                }
                Err(why) => {
                    outcome.given_up.insert(target.nic.clone());
                    outcome.errors.push(why);
                }
            }
        }
        Ok(())
    }

    /// True if this interface must no longer be managed: by the settings, or because it was taken
    /// down.
    fn is_unmanaged(&self, target: &Target, wanted: &Wanted) -> bool {
        let asked = &wanted.asked;
        let excluded = asked
            .exclude
            .as_ref()
            .is_some_and(|pattern| pattern.matches(&target.nic));
        let down = self.still(target).is_ok_and(|link| link.carrier.is_none());
        asked.multiqueue == Multiqueue::Off || excluded || down
    }

    fn settle_one(
        &self,
        target: &Target,
        pending: &Pending,
        (settle, given_up, by_admin): (Duration, bool, bool),
        state: &mut NicState,
    ) -> Result<Result<Settled, String>, WriteStateError> {
        let (nic, from, to) = (&target.nic, pending.from, pending.to);
        let current = match self.calls.channels(nic) {
            Ok(Some(now)) => now.current,
            Ok(None) => {
                return Ok(Err(format!(
                    "{nic}: the driver does not say how many queues it has"
                )));
            }
            Err(errno) => return Ok(Err(kernel_error(nic, "asking for its queues", errno))),
        };
        let mut before = Before::of(pending);
        let mut settled = Settled::default();
        match &pending.broke {
            // Nothing is left to restore, and other changes since then were intended.
            Some(_) if current == from && given_up => {
                settled.done = Some(format!("{nic}: left with its {from} queues, as it stands"));
                standing(state, nic).record_revert();
            }
            Some(why) if current == from || current == to => {
                let what = (current, Fault::Lost(why.clone()));
                match self.put_back(target, pending, what, &mut before, settle, state)? {
                    Ok(done) => settled.done = Some(done),
                    // An admin's run accepts the current state.
                    Err(still) if current == from && by_admin => {
                        settled.done = Some(format!("{nic}: {still}; it is taken as it is from now on"));
                        standing(state, nic).record_revert();
                    }
                    Err(still) => return Ok(Err(still)),
                }
            }
            None if current == to => {
                if let Err(fault) = self.verified(target, to, &mut before, settle) {
                    if self.still(target).is_err() {
                        return Ok(Err(format!("{nic} went away; the next run checks again")));
                    }
                    let what = (current, fault);
                    let back = self.put_back(target, pending, what, &mut before, settle, state)?;
                    return Ok(Err(back.unwrap_or_else(|still| still)));
                }
                self.fail_points.at(&format!("{to} queues of {nic} are verified"));
                standing(state, nic).set(from, to);
                state.changes += 1;
                settled = Settled {
                    done: Some(format!(
                        "{nic}: {to} queues verified, after an interrupted change"
                    )),
                    changed: true,
                };
            }
            // The number was changed by something else since.
            Some(_) => standing(state, nic).record_revert(),
            // Nothing was changed yet, or the number was changed by something else since.
            None => standing(state, nic).pending = None,
        }
        NIC_STATE.write(self.roots, state)?;
        Ok(Ok(settled))
    }
}

/// Result of settling a change that an earlier run left.
#[derive(Debug, Default)]
struct Settled {
    /// What was done, as text.
    done: Option<String>,
    /// True if its number of queues is verified.
    changed: bool,
}

fn standing<'a>(state: &'a mut NicState, nic: &str) -> &'a mut NicStatus {
    state.nics.entry(nic.to_owned()).or_default()
}
