//! Assignment of CPUs to queues.

use virtfleet_wire::settings::Steering;

use super::{NicStep, Plan, RefusalKind, Target};
use crate::{
    nic::{Asked, spread},
    virtio::{Cpus, Direction, Nic, NicQueue},
};

/// Plans XPS once the number of queues is right. The kernel sets XPS at each change of that number,
/// so a difference comes from another program. Skipped if the kernel has no XPS or there is one
/// queue.
pub(super) fn transmit(plan: &mut Plan, asked: &Asked, nic: &Nic) {
    let queues: Vec<&NicQueue> = of(nic, Direction::Transmit);
    let maps: Option<Vec<Vec<u32>>> = queues.iter().map(|queue| queue.cpus.clone()).collect();
    let Some(maps) = maps.filter(|maps| maps.len() > 1) else {
        return;
    };
    if spread::is_even(&plan.online, &maps) {
        return;
    }
    if asked.keep_manual {
        plan.notes.push(format!(
            "{}: CPUs are not assigned evenly to its transmit queues, and nic.keepManual preserves this",
            nic.name
        ));
        return;
    }
    let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
    for ((queue, from), to) in queues.iter().zip(maps).zip(spread::spread(&plan.online, count)) {
        if from != to {
            plan.steps.push(NicStep::SetSteering {
                target: Target::of(nic),
                direction: Direction::Transmit,
                queue: queue.index,
                from,
                to,
            });
        }
    }
}

/// Plans RPS, if requested, for the queues that exist after the plan.
pub(super) fn receive(plan: &mut Plan, asked: &Asked, nic: &Nic, cpus: &Cpus, count: u32) {
    let to = match asked.rps {
        Steering::Keep => return,
        Steering::Off => Vec::new(),
        // The kernel ignores isolated CPUs, and rejects a map of only these
        // (`net/core/net-sysfs.c`, `rps_cpumask_housekeeping`).
        Steering::All => {
            let working = plan.online.iter().filter(|cpu| !cpus.isolated.contains(cpu));
            working.copied().collect()
        }
    };
    let queues = of(nic, Direction::Receive);
    if queues.is_empty() || queues.iter().any(|queue| queue.cpus.is_none()) {
        if asked.rps == Steering::All {
            let message = format!("the kernel has no RPS for {}", nic.name);
            let remedy = "remove nic.rps from the settings, or add the interface to nic.exclude";
            plan.refuse(RefusalKind::Unsupported, &nic.name, message, remedy);
        }
        return;
    }
    for queue in 0..count {
        let known = queues.iter().find(|one| one.index == queue);
        let from = known.and_then(|one| one.cpus.clone()).unwrap_or_default();
        if from != to {
            plan.steps.push(NicStep::SetSteering {
                target: Target::of(nic),
                direction: Direction::Receive,
                queue,
                from,
                to: to.clone(),
            });
        }
    }
}

fn of(nic: &Nic, direction: Direction) -> Vec<&NicQueue> {
    let mut queues: Vec<&NicQueue> = nic
        .queues
        .iter()
        .filter(|queue| queue.direction == direction)
        .collect();
    queues.sort_by_key(|queue| queue.index);
    queues
}
