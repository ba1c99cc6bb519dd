//! The number of queues of one interface with its way back, written down at each point at which a pass may be killed.
//!
//! ```text
//! pending ─ set ─ verified ─────────────────────▶ ours
//!              └─ broke ─ put back ─ verified ──▶ put_back
//!                               └─ not as before ▶ pending with what is wrong: the next pass tries again
//! ```

use std::time::Duration;

use virtfleet_agent_core::{
    nic::{
        plan::{RefusalKind, Target},
        state::{NicStanding, NicState, Pending, Rates},
    },
    virtio::Machine,
};

use super::{
    change::{Before, ChangeError, told},
    pass::{Engine, NO_TIME, Outcome, Time},
    state::{WriteNicError, write_nic},
};

/// What is put back has this long at least to come back.
const LEAST_SETTLE: Duration = Duration::from_secs(1);

impl Engine<'_> {
    /// Sets `to` queues where there are `from`: verified, or put back. `rates`: what is coming and going, where it is enough to tell.
    pub(super) fn channels(
        &self,
        target: &Target,
        (from, to): (u32, u32),
        rates: Option<&Rates>,
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<(), ChangeError>, WriteNicError> {
        let nic = &target.nic;
        let (pending, mut before) = match self.begin(target, (from, to), rates) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        standing(state, nic).pending = Some(pending.clone());
        write_nic(self.roots, state)?;
        let result = self.change(target, to, &mut before, settle);
        let standing = standing(state, nic);
        match &result {
            Ok(()) => {
                self.witness.at(&format!("{to} queues of {nic} are verified"));
                standing.set(from, to);
                state.changes += 1;
            }
            Err(ChangeError::Broke(why)) => {
                let why = why.clone();
                let back = self.put_back(target, &pending, (to, why), &mut before, settle, state)?;
                let message =
                    back.map(|back| format!("{back}; sudo virtfleet-agent apply nic tries once more"));
                return Ok(Err(ChangeError::PutBack(message.unwrap_or_else(|still| still))));
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
        write_nic(self.roots, state)?;
        Ok(result)
    }

    /// Puts back the number of before a change with which `why`; there are `current` now. In words what came of it; an error when all is not as before still.
    fn put_back(
        &self,
        target: &Target,
        pending: &Pending,
        (current, why): (u32, String),
        before: &mut Before,
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<String, String>, WriteNicError> {
        let (nic, from, to) = (&target.nic, pending.from, pending.to);
        if let Some(pending) = &mut standing(state, nic).pending {
            pending.broke = Some(why.clone());
        }
        // A link that is down comes before a file that cannot be written.
        let noted = write_nic(self.roots, state);
        let mut back = Ok(());
        if current != from {
            self.witness.at(&format!("put {nic} back to {from} queues"));
            back = self
                .set(nic, from)
                .map_err(|errno| told(nic, &format!("putting {from} queues back"), errno));
            self.witness.at(&format!("{nic} has {from} queues again"));
        }
        let back = back.and_then(|()| self.verified(target, from, before, settle.max(LEAST_SETTLE)));
        let standing = standing(state, nic);
        match &back {
            Ok(()) => {
                self.witness.at(&format!("{from} queues of {nic} are verified"));
                standing.undone();
                state.rollbacks += 1;
            }
            Err(still) => {
                if let Some(pending) = &mut standing.pending {
                    pending.still = Some(still.clone());
                }
            }
        }
        noted?;
        write_nic(self.roots, state)?;
        Ok(match back {
            Ok(()) => Ok(format!("with {to} queues {why}, so {nic} has its {from} again")),
            Err(still) => Err(format!(
                "with {to} queues {why}; with {from} again {still}; the next pass tries again. \
                 Look at the link: ip -d link show {nic}; ethtool -l {nic}; journalctl -k -b"
            )),
        })
    }

    /// Settles what a pass that was cut short, or could not put back, has left: afterwards each number is verified, or it is known what is wrong. True when something was settled.
    pub(super) fn settle(
        &self,
        machine: &Machine,
        asked: Duration,
        time: Time,
        state: &mut NicState,
        outcome: &mut Outcome,
    ) -> Result<bool, WriteNicError> {
        let known = |name: &str| state.nics.get(name)?.pending.clone();
        let left: Vec<(Target, Pending)> = machine
            .nics
            .iter()
            .filter_map(|nic| Some((Target::of(nic), known(&nic.name)?)))
            .collect();
        for (target, pending) in &left {
            let settled = match time.settle(self.world.now(), asked) {
                None => Err(format!("{}: {NO_TIME}", target.nic)),
                Some(settle) => self.settle_one(target, pending, settle, state)?,
            };
            match settled {
                Ok(done) => outcome.done.extend(done),
                Err(why) => {
                    outcome.given_up.insert(target.nic.clone());
                    outcome.errors.push(why);
                }
            }
        }
        Ok(!left.is_empty())
    }

    fn settle_one(
        &self,
        target: &Target,
        pending: &Pending,
        settle: Duration,
        state: &mut NicState,
    ) -> Result<Result<Option<String>, String>, WriteNicError> {
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
        let mut done = None;
        match &pending.broke {
            Some(why) if current == from || current == to => {
                let what = (current, why.clone());
                let back = self.put_back(target, pending, what, &mut before, settle, state)?;
                return Ok(back.map(Some));
            }
            None if current == to => {
                if let Err(why) = self.verified(target, to, &mut before, settle) {
                    if self.still(target).is_err() {
                        return Ok(Err(format!("{nic} went away; the next pass looks again")));
                    }
                    let what = (current, why);
                    let back = self.put_back(target, pending, what, &mut before, settle, state)?;
                    return Ok(Err(back.unwrap_or_else(|still| still)));
                }
                self.witness.at(&format!("{to} queues of {nic} are verified"));
                standing(state, nic).set(from, to);
                state.changes += 1;
                done = Some(format!("{nic}: {to} queues verified, whose change was cut short"));
            }
            // Somebody else has chosen since.
            Some(_) => standing(state, nic).undone(),
            // Nothing was done yet, or somebody else has chosen since.
            None => standing(state, nic).pending = None,
        }
        write_nic(self.roots, state)?;
        Ok(Ok(done))
    }
}

fn standing<'a>(state: &'a mut NicState, nic: &str) -> &'a mut NicStanding {
    state.nics.entry(nic.to_owned()).or_default()
}
