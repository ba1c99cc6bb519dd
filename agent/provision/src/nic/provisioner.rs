//! What a run over the network interfaces works with, and the plan that it makes.

use virtfleet_agent_core::{
    nic::{
        Plan,
        carry::{add_recorded_state, match_interfaces, update_states},
        plan,
        state::{FORMAT, NicState},
    },
    virtio::Machine,
};
use virtfleet_agent_host::{FailPoints, NicCalls, Roots, clock};
use virtfleet_agent_state::NIC_STATE;

use super::{Wanted, World};

/// What a run over the network interfaces of one guest works with.
#[derive(Clone, Copy)]
pub struct NicProvisioner<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// Reads the guest, and sets what needs no driver.
    pub world: &'a dyn World,
    /// Calls the drivers.
    pub calls: &'a dyn NicCalls,
    /// Called at each effect.
    pub fail_points: &'a dyn FailPoints,
    pub boot_id: &'a str,
}

impl NicProvisioner<'_> {
    /// What is there, and what `apply nic` would do. Nothing is changed.
    pub fn plan(&self, wanted: &Wanted) -> Plan {
        let (mut state, unread) = match NIC_STATE.read(self.roots, self.boot_id) {
            Ok(state) => (state, None),
            Err(why) if why.is_absent() => (NicState::default(), None),
            Err(why) => (NicState::default(), Some(why)),
        };
        let mut plan = self.plan_for(wanted, &self.world.observe(), &mut state);
        plan.notes.extend(unread.map(|why| {
            format!("{why}; the results of earlier runs are not known: sudo virtfleet-agent plan nic")
        }));
        plan
    }

    /// The plan for what was observed; `state` says afterwards how each interface stands.
    pub(super) fn plan_for(&self, wanted: &Wanted, machine: &Machine, state: &mut NicState) -> Plan {
        match_interfaces(state, machine);
        let mut plan = wanted.limit(plan(&wanted.asked, machine, state));
        state.nics = update_states(state, &plan);
        add_recorded_state(state, &mut plan);
        self.stamp(wanted, state);
        plan
    }

    /// Writes into `state` when, by which format and with which settings it was made.
    pub(super) fn stamp(&self, wanted: &Wanted, state: &mut NicState) {
        let now = clock();
        state.v = FORMAT;
        self.boot_id.clone_into(&mut state.boot_id);
        state.at_boottime_ns = now.boottime_ns;
        state.at_ns = now.realtime_ns;
        state.multiqueue = wanted.asked.multiqueue;
    }
}
