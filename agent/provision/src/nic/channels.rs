//! The number of queues of one interface with its way back, written down at each point at which a pass may be killed.
//!
//! ```text
//! pending ─ set ─ verified ─────────────────────▶ ours
//!              └─ broke ─ put back ─ verified ──▶ put_back, and not tried again by itself
//!                               ├─ silent, too ──▶ unclear: traffic may have ended by itself; tried once more
//!                               └─ not as before ▶ pending with what is wrong: the next pass looks again
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
    change::{Before, ChangeError, Fault, told},
    provisioner::NicProvisioner,
    run::Outcome,
    time::{NO_TIME, Time},
};

/// What is put back has this long at least to come back.
const LEAST_SETTLE: Duration = Duration::from_secs(1);

impl NicProvisioner<'_> {
    /// Sets `to` queues where there are `from`: verified, or put back. `rates`: what is coming and going.
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
        // When this pass is killed while the link is down, the next one is to come at once.
        if let Err(error) = request_reconcile(self.roots, Requester::Nic) {
            tracing::debug!(%error, "a change of queues that is cut short is settled with the next pass");
        }
        let result = self.come_of(target, (pending, &mut before), settle, state);
        withdraw_request(self.roots, Requester::Nic);
        result
    }

    /// Sets the queues of a change that is written down, and writes down what came of it.
    fn come_of(
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
            // What became of it is seen when it comes back.
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

    /// Puts back the number of before a change with which `why`; there are `current` now. In words what came of it; an error when all is not as before still.
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
        // A link that is down comes before a file that cannot be written.
        let noted = NIC_STATE.write(self.roots, state);
        let mut back = Ok(());
        if current != from {
            self.fail_points.at(&format!("put {nic} back to {from} queues"));
            back = self
                .set(nic, from)
                .map_err(|errno| told(nic, &format!("putting {from} queues back"), errno));
            self.fail_points.at(&format!("{nic} has {from} queues again"));
        }
        let why = fault.words();
        let verified = back.map_err(|stuck| (Fault::Lost(stuck), false)).and_then(|()| {
            self.verified(target, from, before, settle.max(LEAST_SETTLE))
                .map_err(|still| (still, true))
        });
        // Traffic that ends is no fault of a link that is there.
        let silent = matches!(
            (&verified, &fault),
            (Err((Fault::Silent(_), _)), Fault::Silent(_))
        );
        let came = verified.map_err(|(still, is_set)| Still {
            // With that number there, the other one is not what is wrong, or not alone.
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
                "with {to} queues {why}; with {from} again {still}; the next pass looks again. \
                 Look at the link: ip -d link show {nic}; ethtool -l {nic}; journalctl -k -b"
            )),
        })
    }

    /// Completes or rolls back the changes that an interrupted run left, and retries rollbacks that failed. Afterwards each number of queues is verified, or the outcome
    /// says what is wrong.
    pub(super) fn settle(
        &self,
        machine: &Machine,
        (wanted, by_admin): (&Wanted, bool),
        time: Time,
        state: &mut NicState,
        outcome: &mut Outcome,
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
                    let given_up = self.is_given_up(target, wanted);
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

    /// Whether nobody wants this interface looked after any more: by the settings, or because it was taken down.
    fn is_given_up(&self, target: &Target, wanted: &Wanted) -> bool {
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
            Err(errno) => return Ok(Err(told(nic, "asking for its queues", errno))),
        };
        let mut before = Before::of(pending);
        let mut settled = Settled::default();
        match &pending.broke {
            // There is nothing to be put back any more, and what else was changed meanwhile is meant so.
            Some(_) if current == from && given_up => {
                settled.done = Some(format!("{nic}: left with its {from} queues, as it stands"));
                standing(state, nic).record_revert();
            }
            Some(why) if current == from || current == to => {
                let what = (current, Fault::Lost(why.clone()));
                match self.put_back(target, pending, what, &mut before, settle, state)? {
                    Ok(done) => settled.done = Some(done),
                    // Who asks for it takes it as it is.
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
                        return Ok(Err(format!("{nic} went away; the next pass looks again")));
                    }
                    let what = (current, fault);
                    let back = self.put_back(target, pending, what, &mut before, settle, state)?;
                    return Ok(Err(back.unwrap_or_else(|still| still)));
                }
                self.fail_points.at(&format!("{to} queues of {nic} are verified"));
                standing(state, nic).set(from, to);
                state.changes += 1;
                settled = Settled {
                    done: Some(format!("{nic}: {to} queues verified, whose change was cut short")),
                    changed: true,
                };
            }
            // Somebody else has chosen since.
            Some(_) => standing(state, nic).record_revert(),
            // Nothing was done yet, or somebody else has chosen since.
            None => standing(state, nic).pending = None,
        }
        NIC_STATE.write(self.roots, state)?;
        Ok(Ok(settled))
    }
}

/// What came of a change that another pass has left.
#[derive(Debug, Default)]
struct Settled {
    /// In words.
    done: Option<String>,
    /// Whether its number of queues is verified.
    changed: bool,
}

fn standing<'a>(state: &'a mut NicState, nic: &str) -> &'a mut NicStatus {
    state.nics.entry(nic.to_owned()).or_default()
}
