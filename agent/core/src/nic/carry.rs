//! From a look and its plan to how each interface stands, with what is remembered of it.

use std::collections::BTreeMap;

use virtfleet_wire::settings::Multiqueue;

use super::{
    Plan,
    plan::NicPlan,
    state::{NicStanding, NicState, Standing},
};
use crate::virtio::Machine;

/// Meets the interfaces of a look with what is remembered: what is about one that is away waits for it, and what is about one whose name another one has now is forgotten.
pub fn meet(state: &mut NicState, machine: &Machine) {
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

/// How the interfaces of a plan stand, after [`meet`]. Those that are gone are left out.
pub fn carry(previous: &NicState, plan: &Plan) -> BTreeMap<String, NicStanding> {
    let cpus = u32::try_from(plan.online.len()).unwrap_or(u32::MAX);
    let each = plan.nics.iter().map(|one| {
        let known = previous.nics.get(&one.nic);
        let known = known.filter(|known| known.is_of(&one.mac, one.index)).cloned();
        (one.nic.clone(), stand(plan.multiqueue, one, known, cpus))
    });
    each.collect()
}

/// Says in the plan what is remembered of its interfaces, which is more than one look tells.
pub fn tell(state: &NicState, plan: &mut Plan) {
    for one in &mut plan.nics {
        let Some(known) = state.nics.get(&one.nic) else {
            continue;
        };
        one.standing = known.standing;
        one.because.clone_from(&known.because);
        if known.standing == Standing::RolledBack {
            plan.notes.push(format!("{}: {}", one.nic, known.because));
        }
    }
}

fn stand(multiqueue: Multiqueue, now: &NicPlan, known: Option<NicStanding>, cpus: u32) -> NicStanding {
    let mut standing = known.unwrap_or_default();
    standing.mac.clone_from(&now.mac);
    standing.index = now.index;
    standing.standing = now.standing;
    standing.because.clone_from(&now.because);
    if standing.first == 0 {
        standing.first = now.current.unwrap_or(0);
        standing.first_cpus = cpus;
    }
    // What was put back counts where the same would be tried again.
    let other = now.wanted.filter(|_| now.wanted != now.current);
    if let Some(tried) = other.filter(|other| standing.put_back.contains(other)) {
        standing.standing = Standing::RolledBack;
        standing.because = format!(
            "with {tried} queues its link, an address or its traffic did not come back; sudo virtfleet-agent apply nic tries it again"
        );
    } else if let Some(tried) = other.filter(|other| standing.refused.contains(other)) {
        standing.because = format!(
            "the driver refuses {tried} queues; an XDP program that needs the queues is a reason (ip -d link show {}); \
             sudo virtfleet-agent apply nic tries it again",
            now.nic
        );
    }
    if let Some(pending) = &standing.pending {
        let (from, to) = (pending.from, pending.to);
        match (&pending.broke, &pending.still) {
            (None, _) => {
                standing.because =
                    format!("a change from {from} to {to} queues was cut short; the next pass settles it");
            }
            (Some(broke), still) => {
                standing.standing = Standing::RolledBack;
                let still = still
                    .as_ref()
                    .map_or("that is not done yet", |still| still.why.as_str());
                standing.because =
                    format!("with {to} queues {broke}; with {from} again {still}; the next pass looks again");
            }
        }
    }
    let given_back = multiqueue == Multiqueue::Off && now.current.is_some() && other.is_none();
    if given_back
        && matches!(now.standing, Standing::Excluded | Standing::Single)
        && standing.ours.is_some()
        && standing.pending.is_none()
    {
        standing.give_back();
    }
    standing
}

#[cfg(test)]
mod tests;
