//! One run over the queues of the guest's network interfaces.

use std::{collections::BTreeSet, convert::Infallible, io};

use virtfleet_agent_core::{
    nic::{
        Plan,
        plan::{NicStep, Refusal},
        state::{Baseline, Measured, NicState},
    },
    virtio::{Direction, Machine},
};
use virtfleet_agent_host::{Errno, Roots};
use virtfleet_agent_state::{NIC_STATE, StateFile, WriteStateError};
use virtfleet_wire::settings::Multiqueue;

use super::{
    NicProvisioner, Wanted,
    change::{ChangeError, kernel_error},
    measure::{Load, SAMPLE_TIME, load, measure},
    time::{MAX_RUN, NO_TIME, Time},
};
use crate::engine::{self, Domain, Mode, RunError, RunResult};

/// Limit of plans that one run applies. XPS is planned once the number of queues is right, and what
/// was set is observed once more.
const MAX_ROUNDS: u32 = 3;

/// The mode of a run over the network interfaces.
pub type NicMode<'a> = Mode<'a, Plan>;

/// What the steps of a run did so far.
#[derive(Default)]
pub(super) struct NicOutcome {
    pub(super) done: Vec<String>,
    pub(super) errors: Vec<String>,
    refusals: Vec<Refusal>,
    /// Steps that were done, each once: a step that is planned again had no effect.
    tried: Vec<NicStep>,
    /// Interfaces and disks that this run leaves alone from now on.
    pub(super) given_up: BTreeSet<String>,
    load: Load,
    /// Interfaces whose number of queues was changed, and verified.
    pub(super) changed: Vec<String>,
}

impl NicProvisioner<'_> {
    /// Observes the interfaces, plans, applies the plan, and records the result. `None`: the plan
    /// is not the expected one, and nothing was done but to complete or undo what an interrupted
    /// run left.
    ///
    /// # Errors
    /// The state cannot be recorded: without it there is no rollback.
    pub fn run(
        &self,
        wanted: &Wanted,
        mode: NicMode<'_>,
    ) -> Result<Option<RunResult<Plan, NicState>>, RunError<Infallible>> {
        let mut run = NicRun {
            provisioner: *self,
            wanted,
            mode,
            time: Time {
                began: self.world.now(),
                within: mode.budget.unwrap_or(MAX_RUN),
            },
            state: NicState::default(),
            machine: Machine::default(),
            outcome: NicOutcome::default(),
            changes_before: 0,
        };
        engine::run(&mut run, mode)
    }
}

struct NicRun<'a> {
    provisioner: NicProvisioner<'a>,
    wanted: &'a Wanted,
    mode: NicMode<'a>,
    time: Time,
    state: NicState,
    /// What was observed last.
    machine: Machine,
    outcome: NicOutcome,
    /// Changes and rollbacks of this boot before the run.
    changes_before: u64,
}

impl Domain for NicRun<'_> {
    type Plan = Plan;
    type Observed = Plan;
    type State = NicState;
    type Error = Infallible;

    const STATE: &'static StateFile<NicState> = &NIC_STATE;

    fn roots(&self) -> &Roots {
        self.provisioner.roots
    }

    /// Needs no approval, in any mode: a link that an interrupted run left down comes back.
    fn recover(&mut self) -> Result<(), WriteStateError> {
        self.state = self.remembered();
        self.changes_before = self.state.changes + self.state.rollbacks;
        if self.state.nics.values().any(|nic| nic.pending.is_some()) {
            self.observe_and_plan();
            self.provisioner.settle(
                &self.machine,
                (self.wanted, self.mode.by_admin),
                self.time,
                &mut self.state,
                &mut self.outcome,
            )?;
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Plan, Infallible> {
        Ok(self.observe_and_plan())
    }

    fn plan(observed: &Plan) -> &Plan {
        observed
    }

    fn agrees(expected: &Plan, plan: &Plan) -> bool {
        expected.is_same(plan)
    }

    fn apply(&mut self, mut plan: Plan) -> Result<Plan, RunError<Infallible>> {
        for round in 0..MAX_ROUNDS {
            let steps = self.due(&plan);
            if steps.is_empty() {
                break;
            }
            if round == 0 && self.mode.budget.is_none() {
                self.outcome.load = load(self.provisioner.world, &raised(&steps));
            }
            for step in steps {
                self.step(step)?;
            }
            plan = self.observe_and_plan();
        }
        self.measured();
        for nic in &self.outcome.changed {
            if let Some(standing) = self.state.nics.get_mut(nic) {
                standing.baseline = baseline(&self.machine, nic);
            }
        }
        plan.refusals.append(&mut self.outcome.refusals);
        Ok(plan)
    }

    fn state(&mut self, plan: &mut Plan) -> NicState {
        let state = &mut self.state;
        self.provisioner.stamp(self.wanted, state);
        state.refusals = plan.refusals.iter().map(|one| one.message.clone()).collect();
        let devices = self.machine.devices.iter();
        state.offered = devices
            .filter_map(|device| Some((device.name.clone(), device.offered?)))
            .collect();
        let nics = self.machine.nics.iter();
        state.dhcp_mtu = nics
            .filter_map(|nic| Some((nic.name.clone(), nic.dhcp_mtu?)))
            .collect();
        state.done = self.outcome.done.clone();
        state.error = (!self.outcome.errors.is_empty()).then(|| self.outcome.errors.join("; "));
        state.clone()
    }

    /// The state was not written; the next run needs the one that is there.
    fn state_after_error(&mut self, _error: &RunError<Infallible>) -> Option<NicState> {
        None
    }

    fn into_plan(observed: Plan) -> Plan {
        observed
    }

    fn changed(&self) -> bool {
        self.state.changes + self.state.rollbacks > self.changes_before
    }
}

impl NicRun<'_> {
    /// What the last run of this boot recorded. A record that cannot be used is reported once, and
    /// replaced.
    fn remembered(&mut self) -> NicState {
        match NIC_STATE.read(self.provisioner.roots, self.provisioner.boot_id) {
            Ok(state) => state,
            Err(why) if why.is_absent() => NicState::default(),
            Err(why) => {
                tracing::warn!(%why, "{NIC_STATE} cannot be used, and is written again");
                self.outcome.errors.push(format!(
                    "{NIC_STATE} could not be used ({why}) and is written anew; how many queues there were before is not known any more"
                ));
                NicState::default()
            }
        }
    }

    fn observe_and_plan(&mut self) -> Plan {
        self.machine = self.provisioner.world.observe();
        self.provisioner
            .plan_for(self.wanted, &self.machine, &mut self.state)
    }

    /// One step. Whatever it results in, the other steps go on; only a state file that cannot be
    /// written ends the run.
    fn step(&mut self, step: NicStep) -> Result<(), WriteStateError> {
        let subject = step.subject().to_owned();
        if self.outcome.given_up.contains(&subject) {
            return Ok(());
        }
        let settle = self
            .time
            .settle(self.provisioner.world.now(), self.wanted.asked.settle);
        let result = match (&step, settle) {
            (_, None) => Err(ChangeError::Failed(format!("{subject}: {NO_TIME}"))),
            (NicStep::SetChannels { target, from, to }, Some(settle)) => {
                let rates = self.outcome.load.rates.get(&subject);
                let queues = (*from, *to);
                let result = self
                    .provisioner
                    .channels(target, queues, rates, settle, &mut self.state)?;
                if result.is_ok() {
                    self.outcome.changed.push(subject.clone());
                }
                result
            }
            _ => self
                .without_link_loss(&step)
                .inspect(|()| self.state.changes += 1),
        };
        let outcome = &mut self.outcome;
        match result {
            Ok(()) => outcome.done.push(step.to_string()),
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

    /// A step during which the link stays up.
    fn without_link_loss(&self, step: &NicStep) -> Result<(), ChangeError> {
        let NicProvisioner {
            world,
            calls,
            fail_points,
            ..
        } = self.provisioner;
        if let Some(target) = step.target() {
            self.provisioner.still(target).map_err(ChangeError::Refused)?;
        }
        fail_points.at(&step.to_string());
        let done = match step {
            NicStep::SetChannels { .. } => Ok(()),
            NicStep::SetRings { target, to, .. } => calls.set_rings(&target.nic, to.rx, to.tx),
            NicStep::SetSteering {
                target,
                direction,
                queue,
                to,
                ..
            } => errno(world.steer(&target.nic, *direction, *queue, to)),
            NicStep::SetScheduler { disk, to, .. } => errno(world.schedule(disk, to)),
        };
        done.map_err(|errno| {
            // "eth0: rings of …" names the subject already.
            let what = step.to_string();
            let what = what.split_once(": ").map_or(what.as_str(), |(_, what)| what);
            ChangeError::Failed(kernel_error(step.subject(), what, errno))
        })
    }

    /// Records the traffic of the changed interfaces before and after, for those that had traffic.
    fn measured(&mut self) {
        let load = &self.outcome.load;
        let changed = self.outcome.changed.iter();
        let busy: Vec<String> = changed.filter(|nic| load.busy.contains(*nic)).cloned().collect();
        if busy.is_empty() {
            return;
        }
        for (nic, after) in measure(self.provisioner.world, &busy) {
            if let (Some(standing), Some(before)) = (self.state.nics.get_mut(&nic), load.rates.get(&nic)) {
                standing.measured = Some(Measured {
                    before: *before,
                    after,
                });
            }
        }
        tracing::debug!(window = ?SAMPLE_TIME, nics = ?busy, "traffic was measured before and after the change");
    }

    /// The steps that may be done now. A step that was done and is planned again is an error. A
    /// number of queues that was rolled back or refused is not tried again unless an admin asks. A
    /// step that is not in the plan that the admin has read is not done.
    fn due(&mut self, plan: &Plan) -> Vec<NicStep> {
        let Mode {
            by_admin, expected, ..
        } = self.mode;
        let outcome = &mut self.outcome;
        let report_only = self.wanted.asked.multiqueue == Multiqueue::ReportOnly && !by_admin;
        let mut due = Vec::new();
        let mut unchanged: BTreeSet<&str> = BTreeSet::new();
        for step in &plan.steps {
            let subject = step.subject();
            let unread = expected.is_some_and(|read| !read.steps.contains(step));
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
            let known = self.state.nics.get(subject);
            let failed_before = matches!(step, NicStep::SetChannels { to, .. }
                if known.is_some_and(|nic| nic.put_back.contains(to) || nic.refused.contains(to)));
            if (report_only && step.is_multiqueue()) || (failed_before && !by_admin) {
                if matches!(step, NicStep::SetChannels { .. }) {
                    unchanged.insert(subject);
                }
            } else if !(unchanged.contains(subject) && is_beyond(step, plan)) {
                due.push(step.clone());
            }
        }
        due
    }
}

/// True if the step is about a queue that exists only after a change of their number.
fn is_beyond(step: &NicStep, plan: &Plan) -> bool {
    let current = plan.nic(step.subject()).and_then(|nic| nic.current).unwrap_or(0);
    matches!(step, NicStep::SetSteering { queue, .. } if *queue >= current)
}

/// The interfaces whose number of queues these steps change.
fn raised(steps: &[NicStep]) -> Vec<String> {
    let nics = steps
        .iter()
        .filter(|step| matches!(step, NicStep::SetChannels { .. }))
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
