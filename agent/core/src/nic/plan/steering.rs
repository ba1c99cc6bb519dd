//! Which CPUs work for which queue.

use virtfleet_wire::settings::Steering;

use super::{Plan, RefusalKind, Step, Target};
use crate::{
    nic::{Asked, spread},
    virtio::{Cpus, Direction, Nic, NicQueue},
};

/// XPS, once the number of queues is right: the kernel sets it with each change of that number, so here is only what somebody has changed since. Nothing where the kernel has no XPS, or the queue
/// is the only one.
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
            "{}: CPUs are not spread evenly over its transmit queues, and nic.keepManual leaves that as it is",
            nic.name
        ));
        return;
    }
    let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
    for ((queue, from), to) in queues.iter().zip(maps).zip(spread::spread(&plan.online, count)) {
        if from != to {
            plan.steps.push(Step::SetSteering {
                target: Target::of(nic),
                direction: Direction::Transmit,
                queue: queue.index,
                from,
                to,
            });
        }
    }
}

/// RPS of the queues that there will be, where it is asked for.
pub(super) fn receive(plan: &mut Plan, asked: &Asked, nic: &Nic, cpus: &Cpus, count: u32) {
    let to = match asked.rps {
        Steering::Keep => return,
        Steering::Off => Vec::new(),
        // The kernel takes isolated CPUs out, and refuses a map of these alone (`net/core/net-sysfs.c`, `rps_cpumask_housekeeping`).
        Steering::All => {
            let working = plan.online.iter().filter(|cpu| !cpus.isolated.contains(cpu));
            working.copied().collect()
        }
    };
    let queues = of(nic, Direction::Receive);
    if queues.is_empty() || queues.iter().any(|queue| queue.cpus.is_none()) {
        if asked.rps == Steering::All {
            let message = format!("the kernel has no RPS for {}", nic.name);
            let remedy = "take nic.rps out of the settings, or name the interface in nic.exclude";
            plan.refuse(RefusalKind::Unsupported, &nic.name, message, remedy);
        }
        return;
    }
    for queue in 0..count {
        let known = queues.iter().find(|one| one.index == queue);
        let from = known.and_then(|one| one.cpus.clone()).unwrap_or_default();
        if from != to {
            plan.steps.push(Step::SetSteering {
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
