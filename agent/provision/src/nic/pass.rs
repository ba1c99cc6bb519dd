//! One pass over the queues of the guest's interfaces.

use std::{collections::BTreeSet, io, time::Duration};

use virtfleet_agent_core::{
    nic::{
        Plan,
        carry::{carry, meet, tell},
        plan,
        plan::{Refusal, Step},
        state::{Baseline, Measured, NicState},
    },
    virtio::{Direction, Machine},
};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{NicCalls, Roots, Witness, clock};
use virtfleet_agent_state::{NIC_STATE, WriteStateError};
use virtfleet_wire::settings::Multiqueue;

use super::{
    Wanted, World,
    change::{ChangeError, STEADY, told},
    measure::{Load, WINDOW, load, measure},
};

/// Looks of a pass: XPS is looked at once the number of queues is right, and what was set is looked at once more.
const ROUNDS: u32 = 3;
/// A pass over all interfaces has an end, however many of them are broken.
const PASS: Duration = Duration::from_mins(2);
/// With less than this no change is begun: two times that a link has to come back, and two in which it must stay.
const CHANGE: Duration = Duration::from_secs(5);
/// For everything but waiting: a driver that is busy, and the looks themselves.
const AROUND: Duration = Duration::from_secs(1);
/// A stage of the boot ends before its unit is killed in the middle of a change.
pub(super) const NO_TIME: &str =
    "there was no time left in this pass; the next one does it: sudo virtfleet-agent apply nic";

/// What works on the queues of one machine.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// The machine.
    pub world: &'a dyn World,
    /// Who speaks to drivers.
    pub calls: &'a dyn NicCalls,
    /// Who is told of each effect.
    pub witness: &'a dyn Witness,
    /// The boot.
    pub boot_id: &'a str,
}

/// What a pass may do.
#[derive(Debug, Clone, Copy, Default)]
pub struct How<'a> {
    /// A person asks: what is planned is done with `multiqueue: report-only`, too, and what was put back is tried again.
    pub by_hand: bool,
    /// How long it may take in all; two minutes when it is not said.
    pub within: Option<Duration>,
    /// A plan that a person has read: when what it rests on is not so any more, nothing is done, and else no step that it does not have.
    pub expected: Option<&'a Plan>,
}

/// What a pass found and did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passed {
    /// What is left to be done, after it.
    pub plan: Plan,
    /// How the queues stand now.
    pub state: NicState,
}

/// What came of the steps so far.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<String>,
    pub(super) errors: Vec<String>,
    refusals: Vec<Refusal>,
    /// Steps that were done, each once: one that is planned again has not taken effect.
    tried: Vec<Step>,
    /// Interfaces and disks of which nothing more is done.
    pub(super) given_up: BTreeSet<String>,
    load: Load,
    /// Interfaces whose number of queues was changed, and verified.
    pub(super) changed: Vec<String>,
}

/// How long a pass may go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    began: Duration,
    within: Duration,
}

impl Time {
    fn is_over(self, now: Duration) -> bool {
        self.left(now) < CHANGE
    }

    fn left(self, now: Duration) -> Duration {
        self.within.saturating_sub(now.saturating_sub(self.began))
    }

    /// How long a link may take to come back, of `asked`, so that there is as long for putting it back; none when there is no time for a change.
    pub(super) fn settle(self, now: Duration, asked: Duration) -> Option<Duration> {
        let waiting = self.left(now).saturating_sub(STEADY * 2 + AROUND);
        (!self.is_over(now)).then(|| asked.min(waiting / 2))
    }
}

impl Engine<'_> {
    /// What is there, and what `apply nic` would do. Nothing is changed.
    pub fn plan(&self, wanted: &Wanted) -> Plan {
        let (mut state, unread) = match NIC_STATE.read(self.roots, self.boot_id) {
            Ok(state) => (state, None),
            Err(why) if why.is_absent() => (NicState::default(), None),
            Err(why) => (NicState::default(), Some(why)),
        };
        let mut plan = self.look(wanted, &self.world.observe(), &mut state);
        plan.notes.extend(unread.map(|why| {
            format!("{why}; so what passes have done before is not known: sudo virtfleet-agent plan nic")
        }));
        plan
    }

    /// Looks, plans and does what may be done; records how the queues stand then. `None`: the plan is not the one that was expected, and nothing was done.
    pub fn pass(&self, wanted: &Wanted, how: How<'_>) -> Result<Option<Passed>, WriteStateError> {
        let time = Time {
            began: self.world.now(),
            within: how.within.unwrap_or(PASS),
        };
        let mut outcome = Outcome::default();
        let mut state = self.remembered(&mut outcome);
        let mut machine = self.world.observe();
        let mut plan = self.look(wanted, &machine, &mut state);
        // A way back needs nobody's consent.
        if self.settle(&machine, (wanted, how), time, &mut state, &mut outcome)? {
            machine = self.world.observe();
            plan = self.look(wanted, &machine, &mut state);
        }
        if how.expected.is_some_and(|expected| !expected.is_same(&plan)) {
            return Ok(None);
        }
        for round in 0..ROUNDS {
            let steps = due(wanted, &plan, &state, how, &mut outcome);
            if steps.is_empty() {
                break;
            }
            if round == 0 && how.within.is_none() {
                outcome.load = load(self.world, &raised(&steps));
            }
            for step in steps {
                self.step(wanted, step, time, &mut state, &mut outcome)?;
            }
            machine = self.world.observe();
            plan = self.look(wanted, &machine, &mut state);
        }
        self.measured(&mut state, &outcome);
        for nic in &outcome.changed {
            if let Some(standing) = state.nics.get_mut(nic) {
                standing.baseline = baseline(&machine, nic);
            }
        }
        plan.refusals.extend(outcome.refusals);
        self.record(wanted, &machine, &plan, &mut state);
        state.done = outcome.done;
        state.error = (!outcome.errors.is_empty()).then(|| outcome.errors.join("; "));
        NIC_STATE.write(self.roots, &state)?;
        Ok(Some(Passed { plan, state }))
    }

    /// What the last pass of this boot has left. One that cannot be used is told of once: it is written anew then.
    fn remembered(&self, outcome: &mut Outcome) -> NicState {
        match NIC_STATE.read(self.roots, self.boot_id) {
            Ok(state) => state,
            Err(why) if why.is_absent() => NicState::default(),
            Err(why) => {
                tracing::warn!(%why, "{NIC_STATE} cannot be used, and is written anew");
                outcome.errors.push(format!(
                    "{NIC_STATE} could not be used ({why}) and is written anew; how many queues there were before is not known any more"
                ));
                NicState::default()
            }
        }
    }

    /// The plan of what is there, and how each interface stands by it.
    fn look(&self, wanted: &Wanted, machine: &Machine, state: &mut NicState) -> Plan {
        meet(state, machine);
        let mut plan = wanted.limit(plan(&wanted.asked, machine, state));
        state.nics = carry(state, &plan);
        tell(state, &mut plan);
        self.stamp(wanted, state);
        plan
    }

    fn stamp(&self, wanted: &Wanted, state: &mut NicState) {
        let now = clock();
        state.v = virtfleet_agent_core::nic::state::FORMAT;
        self.boot_id.clone_into(&mut state.boot_id);
        state.at_boottime_ns = now.boottime_ns;
        state.at_ns = now.realtime_ns;
        state.multiqueue = wanted.asked.multiqueue;
    }

    fn record(&self, wanted: &Wanted, machine: &Machine, plan: &Plan, state: &mut NicState) {
        self.stamp(wanted, state);
        state.refusals = plan.refusals.iter().map(|one| one.message.clone()).collect();
        let offered = machine.devices.iter();
        state.offered = offered
            .filter_map(|device| Some((device.name.clone(), device.offered?)))
            .collect();
        let nics = machine.nics.iter();
        state.dhcp_mtu = nics
            .filter_map(|nic| Some((nic.name.clone(), nic.dhcp_mtu?)))
            .collect();
    }

    /// One step. Whatever becomes of it, others go on; only that its way back cannot be written down ends the pass.
    fn step(
        &self,
        wanted: &Wanted,
        step: Step,
        time: Time,
        state: &mut NicState,
        outcome: &mut Outcome,
    ) -> Result<(), WriteStateError> {
        let subject = step.subject().to_owned();
        if outcome.given_up.contains(&subject) {
            return Ok(());
        }
        let settle = time.settle(self.world.now(), wanted.asked.settle);
        let result = match (&step, settle) {
            (_, None) => Err(ChangeError::Failed(format!("{subject}: {NO_TIME}"))),
            (Step::SetChannels { target, from, to }, Some(settle)) => {
                let rates = outcome.load.rates.get(&subject);
                let result = self.channels(target, (*from, *to), rates, settle, state)?;
                if result.is_ok() {
                    outcome.changed.push(subject.clone());
                }
                result
            }
            _ => self.small(&step).inspect(|()| state.changes += 1),
        };
        match result {
            Ok(()) => {
                outcome.done.push(step.to_string());
            }
            Err(error) => {
                outcome.given_up.insert(subject);
                match error {
                    ChangeError::Refused(refusal) => outcome.refusals.push(refusal),
                    ChangeError::Broke(fault) => outcome.errors.push(fault.words().to_owned()),
                    ChangeError::Failed(why) | ChangeError::Gone(why) | ChangeError::PutBack(why) => {
                        outcome.errors.push(why);
                    }
                }
            }
        }
        outcome.tried.push(step);
        Ok(())
    }

    /// A step that no link goes down for.
    fn small(&self, step: &Step) -> Result<(), ChangeError> {
        if let Some(target) = step.target() {
            self.still(target).map_err(ChangeError::Refused)?;
        }
        self.witness.at(&step.to_string());
        let done = match step {
            Step::SetChannels { .. } => Ok(()),
            Step::SetRings { target, to, .. } => self.calls.set_rings(&target.nic, to.rx, to.tx),
            Step::SetSteering {
                target,
                direction,
                queue,
                to,
                ..
            } => errno(self.world.steer(&target.nic, *direction, *queue, to)),
            Step::SetScheduler { disk, to, .. } => errno(self.world.schedule(disk, to)),
        };
        done.map_err(|errno| {
            // "eth0: rings of …" names the subject already.
            let what = step.to_string();
            let what = what.split_once(": ").map_or(what.as_str(), |(_, what)| what);
            ChangeError::Failed(told(step.subject(), what, errno))
        })
    }

    /// What the changes came to, where there was traffic.
    fn measured(&self, state: &mut NicState, outcome: &Outcome) {
        let busy = outcome
            .changed
            .iter()
            .filter(|nic| outcome.load.busy.contains(*nic));
        let busy: Vec<String> = busy.cloned().collect();
        if busy.is_empty() {
            return;
        }
        for (nic, after) in measure(self.world, &busy) {
            if let (Some(standing), Some(before)) = (state.nics.get_mut(&nic), outcome.load.rates.get(&nic)) {
                standing.measured = Some(Measured {
                    before: *before,
                    after,
                });
            }
        }
        tracing::debug!(window = ?WINDOW, nics = ?busy, "traffic was measured before and after the change");
    }
}

/// The steps that may be done now. One that was done and is planned again is an error; what was put back, or refused, is not tried again by itself; and what a person has not read is not done.
fn due(wanted: &Wanted, plan: &Plan, state: &NicState, how: How<'_>, outcome: &mut Outcome) -> Vec<Step> {
    let gated = wanted.asked.multiqueue == Multiqueue::ReportOnly && !how.by_hand;
    let mut due = Vec::new();
    let mut without: BTreeSet<&str> = BTreeSet::new();
    for step in &plan.steps {
        let subject = step.subject();
        let unread = how.expected.is_some_and(|read| !read.steps.contains(step));
        if unread || outcome.given_up.contains(subject) {
            continue;
        }
        if outcome.tried.contains(step) {
            outcome.errors.push(format!(
                "{step} did not take effect; something else may set it, too: virtfleet-agent plan nic"
            ));
            outcome.given_up.insert(subject.to_owned());
            continue;
        }
        let known = state.nics.get(subject);
        let in_vain = matches!(step, Step::SetChannels { to, .. }
            if known.is_some_and(|nic| nic.put_back.contains(to) || nic.refused.contains(to)));
        if (gated && step.is_multiqueue()) || (in_vain && !how.by_hand) {
            if matches!(step, Step::SetChannels { .. }) {
                without.insert(subject);
            }
        } else if !(without.contains(subject) && is_beyond(step, plan)) {
            due.push(step.clone());
        }
    }
    due
}

/// Whether it is about a queue that does not come without a change of their number.
fn is_beyond(step: &Step, plan: &Plan) -> bool {
    let current = plan.nic(step.subject()).and_then(|nic| nic.current).unwrap_or(0);
    matches!(step, Step::SetSteering { queue, .. } if *queue >= current)
}

/// The interfaces whose number of queues these steps change.
fn raised(steps: &[Step]) -> Vec<String> {
    let nics = steps
        .iter()
        .filter(|step| matches!(step, Step::SetChannels { .. }))
        .map(|step| step.subject().to_owned());
    nics.collect()
}

fn baseline(machine: &Machine, nic: &str) -> Baseline {
    let packets = |direction: Direction| {
        let nic = machine.nics.iter().find(|one| one.name == nic);
        let queues = nic.into_iter().flat_map(|nic| &nic.queues);
        let each = queues
            .filter(|queue| queue.direction == direction)
            .map(|queue| queue.counters.packets.unwrap_or(0));
        each.collect()
    };
    Baseline {
        rx: packets(Direction::Receive),
        tx: packets(Direction::Transmit),
    }
}

fn errno(result: io::Result<()>) -> Result<(), Errno> {
    result.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}
