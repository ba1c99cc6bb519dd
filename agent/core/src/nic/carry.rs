//! Updates the recorded state of each interface from the current plan.

use std::collections::BTreeMap;

use virtfleet_wire::settings::Multiqueue;

use super::{
    Plan,
    plan::NicPlan,
    state::{NicState, NicStatus, QueueStatus},
};
use crate::virtio::Machine;

/// Matches the recorded state with the interfaces of a snapshot. The state of an absent interface
/// is kept aside; the state of an interface whose name another interface has now is discarded.
pub fn match_interfaces(state: &mut NicState, machine: &Machine) {
    let mut known = std::mem::take(&mut state.away);
    known.append(&mut state.nics);
    for (name, standing) in known {
        match machine.nics.iter().find(|nic| nic.name == name) {
            Some(nic) if standing.is_of(&nic.mac, nic.index) => {
                state.nics.insert(name, standing);
            }
            None if standing.is_memorable() => {
                state.away.insert(name, standing);
            }
            Some(_) | None => {}
        }
    }
}

/// Returns the state of each interface in the plan, after [`meet`]. Absent interfaces are left out.
pub fn update_states(previous: &NicState, plan: &Plan) -> BTreeMap<String, NicStatus> {
    let cpus = u32::try_from(plan.online.len()).unwrap_or(u32::MAX);
    let each = plan.nics.iter().map(|one| {
        let known = previous.nics.get(&one.nic);
        let known = known.filter(|known| known.is_of(&one.mac, one.index)).cloned();
        (one.nic.clone(), update_state(plan.multiqueue, one, known, cpus))
    });
    each.collect()
}

/// Adds to the plan what is recorded about its interfaces and a single snapshot cannot show.
pub fn add_recorded_state(state: &NicState, plan: &mut Plan) {
    for one in &mut plan.nics {
        let Some(known) = state.nics.get(&one.nic) else {
            continue;
        };
        one.standing = known.standing;
        one.because.clone_from(&known.because);
        if known.standing == QueueStatus::RolledBack {
            plan.notes.push(format!("{}: {}", one.nic, known.because));
        }
    }
}

fn update_state(multiqueue: Multiqueue, now: &NicPlan, known: Option<NicStatus>, cpus: u32) -> NicStatus {
    let mut standing = known.unwrap_or_default();
    standing.mac.clone_from(&now.mac);
    standing.index = now.index;
    standing.standing = now.standing;
    standing.because.clone_from(&now.because);
    if standing.first == 0 {
        standing.first = now.current.unwrap_or(0);
        standing.first_cpus = cpus;
    }
    // A recorded failure matters only if the plan would try the same number again.
    let other = now.wanted.filter(|_| now.wanted != now.current);
    if let Some(tried) = other.filter(|other| standing.put_back.contains(other)) {
        standing.standing = QueueStatus::RolledBack;
        standing.because = format!(
            "with {tried} queues its link, an address or its traffic did not come back; sudo virtfleet-agent apply nic retries"
        );
    } else if let Some(tried) = other.filter(|other| standing.refused.contains(other)) {
        standing.because = format!(
            "the driver refuses {tried} queues; an XDP program that needs the queues can be the reason (ip -d link show {}); \
             sudo virtfleet-agent apply nic retries",
            now.nic
        );
    }
    if let Some(pending) = &standing.pending {
        let (from, to) = (pending.from, pending.to);
        match (&pending.broke, &pending.still) {
            (None, _) => {
                standing.because = format!(
                    "a change from {from} to {to} queues was interrupted; the next run completes or reverts it"
                );
            }
            (Some(broke), still) => {
                standing.standing = QueueStatus::RolledBack;
                let still = still
                    .as_ref()
                    .map_or("the restore is pending", |still| still.why.as_str());
                standing.because =
                    format!("with {to} queues {broke}; with {from} again {still}; the next run checks again");
            }
        }
    }
    let given_back = multiqueue == Multiqueue::Off && now.current.is_some() && other.is_none();
    if given_back
        && matches!(now.standing, QueueStatus::Excluded | QueueStatus::Single)
        && standing.ours.is_some()
        && standing.pending.is_none()
    {
        standing.give_back();
    }
    standing
}

#[cfg(test)]
mod tests;
