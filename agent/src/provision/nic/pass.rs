//! One pass over the queues of the guest's interfaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use nix::errno::Errno;
use virtfleet_agent_core::{
    nic::{
        Plan,
        carry::carry,
        plan,
        plan::{Refusal, Step},
        state::{Baseline, Measured, NicState, Rates, Standing},
    },
    virtio::{Direction, Machine},
};
use virtfleet_wire::settings::Multiqueue;

use super::{
    Wanted, World,
    change::{ChangeError, told},
    measure::{WINDOW, busy, measure},
    state::{WriteNicError, read_nic, write_nic},
};
use crate::host::{NicCalls, Roots, Witness, clock};

/// Looks of a pass: XPS is looked at once the number of queues is right, and what was set is looked at once more.
const ROUNDS: u32 = 3;
/// With less than this no change is begun.
const CHANGE: Duration = Duration::from_secs(3);
/// A stage of the boot ends before its unit is killed in the middle of a change.
const NO_TIME: &str =
    "there was no time left in this stage of the boot; the next pass does it: sudo virtfleet-agent apply nic";

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
    /// How long it may take in all.
    pub within: Option<Duration>,
    /// A plan that a person has read: when what it rests on is not so any more, nothing is done.
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
struct Outcome {
    done: Vec<String>,
    errors: Vec<String>,
    refusals: Vec<Refusal>,
    /// Steps that were done, each once: one that is planned again has not taken effect.
    tried: Vec<Step>,
    /// Interfaces and disks of which nothing more is done.
    given_up: BTreeSet<String>,
    rates: BTreeMap<String, Rates>,
    changed: Vec<String>,
}

impl Engine<'_> {
    /// What is there, and what `apply nic` would do. Nothing is changed.
    pub fn plan(&self, wanted: &Wanted) -> Plan {
        let previous = read_nic(self.roots, self.boot_id).unwrap_or_default();
        wanted.limit(plan(&wanted.asked, &self.world.observe(), &previous))
    }

    /// Looks, plans and does what may be done; records how the queues stand then. `None`: the plan is not the one that was expected, and nothing was done.
    pub fn pass(&self, wanted: &Wanted, how: How<'_>) -> Result<Option<Passed>, WriteNicError> {
        let began = self.world.now();
        let mut state = read_nic(self.roots, self.boot_id).unwrap_or_default();
        let mut machine = self.world.observe();
        let mut plan = self.look(wanted, &machine, &mut state);
        if how.expected.is_some_and(|expected| !expected.is_same(&plan)) {
            return Ok(None);
        }
        let mut outcome = Outcome::default();
        for round in 0..ROUNDS {
            let steps = due(wanted, &plan, &state, how, &mut outcome);
            if steps.is_empty() {
                break;
            }
            if round == 0 && how.within.is_none() {
                outcome.rates = busy(self.world, &raised(&steps));
            }
            for step in steps {
                let left = how
                    .within
                    .map(|within| within.saturating_sub(self.world.now().saturating_sub(began)));
                self.step(wanted, step, left, &mut state, &mut outcome)?;
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
        write_nic(self.roots, &state)?;
        Ok(Some(Passed { plan, state }))
    }

    /// The plan of what is there, and how each interface stands by it.
    fn look(&self, wanted: &Wanted, machine: &Machine, state: &mut NicState) -> Plan {
        let plan = wanted.limit(plan(&wanted.asked, machine, state));
        state.nics = carry(state, &plan);
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
        left: Option<Duration>,
        state: &mut NicState,
        outcome: &mut Outcome,
    ) -> Result<(), WriteNicError> {
        let subject = step.subject().to_owned();
        if outcome.given_up.contains(&subject) {
            return Ok(());
        }
        let result = if left.is_some_and(|left| left < CHANGE) {
            Err(ChangeError::Failed(format!("{subject}: {NO_TIME}")))
        } else if let Step::SetChannels { target, from, to } = &step {
            // The way back is written down first.
            let standing = state.nics.entry(subject.clone()).or_default();
            let before = standing.clone();
            standing.set(*from, *to);
            write_nic(self.roots, state)?;
            let settle = wanted.asked.settle;
            let settle = left.map_or(settle, |left| settle.min(left / 3));
            let busy = outcome.rates.contains_key(&subject);
            let result = self.change(target, (*from, *to), busy, settle);
            let standing = state.nics.entry(subject.clone()).or_default();
            match &result {
                Ok(()) => {
                    standing.put_back = None;
                    outcome.changed.push(subject.clone());
                }
                Err(ChangeError::PutBack(_)) => {
                    *standing = before;
                    standing.put_back = Some(*to);
                    state.rollbacks += 1;
                }
                Err(_) => *standing = before,
            }
            result
        } else {
            self.small(&step)
        };
        match result {
            Ok(()) => {
                outcome.done.push(step.to_string());
                state.changes += 1;
            }
            Err(error) => {
                outcome.given_up.insert(subject);
                match error {
                    ChangeError::Refused(refusal) => outcome.refusals.push(refusal),
                    ChangeError::Failed(why) | ChangeError::PutBack(why) => outcome.errors.push(why),
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
            .filter(|nic| outcome.rates.contains_key(*nic));
        let busy: Vec<String> = busy.cloned().collect();
        if busy.is_empty() {
            return;
        }
        for (nic, after) in measure(self.world, &busy) {
            if let (Some(standing), Some(before)) = (state.nics.get_mut(&nic), outcome.rates.get(&nic)) {
                standing.measured = Some(Measured {
                    before: *before,
                    after,
                });
            }
        }
        tracing::debug!(window = ?WINDOW, nics = ?busy, "traffic was measured before and after the change");
    }
}

/// The steps that may be done now. One that was done and is planned again is an error, and what was put back is not tried again by itself.
fn due(wanted: &Wanted, plan: &Plan, state: &NicState, how: How<'_>, outcome: &mut Outcome) -> Vec<Step> {
    let gated = wanted.asked.multiqueue == Multiqueue::ReportOnly && !how.by_hand;
    let mut due = Vec::new();
    let mut without: BTreeSet<&str> = BTreeSet::new();
    for step in &plan.steps {
        let subject = step.subject();
        if outcome.given_up.contains(subject) {
            continue;
        }
        if outcome.tried.contains(step) {
            outcome.errors.push(format!(
                "{step} did not take effect; something else may set it, too: virtfleet-agent plan nic"
            ));
            outcome.given_up.insert(subject.to_owned());
            continue;
        }
        let put_back = state.nics.get(subject).and_then(|nic| nic.put_back);
        let rolled_back = matches!(step, Step::SetChannels { to, .. } if put_back == Some(*to));
        if (gated && step.is_multiqueue()) || (rolled_back && !how.by_hand) {
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

impl Passed {
    /// Whether an interface has what it had before, because the link did not come back.
    pub fn is_rolled_back(&self) -> bool {
        let mut standings = self.state.nics.values();
        standings.any(|nic| nic.standing == Standing::RolledBack)
    }
}
