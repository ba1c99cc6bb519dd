//! What went through the queues of an interface: one that carries nearly everything, and sending that stood still.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_nic},
    words::{count, few, percent},
};
use crate::virtio::{Direction, Nic, NicQueue};

/// The least packets from which skew can be told: a few flows decide over fewer.
const ENOUGH: u64 = 100_000;
/// The share of the packets, in percent, above which one queue carries nearly all: with two queues an even load is 50.
const MOST_PERCENT: u128 = 90;
/// Dropped packets of such a queue, one in so many, from which it hurts.
const DROPPED_ONE_IN: u64 = 1000;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let nics = &view.machine.nics;
    let timeouts = nics.iter().filter_map(timeouts);
    let skewed = nics.iter().filter_map(|nic| {
        let directions = [Direction::Receive, Direction::Transmit];
        skewed(view, nic, &directions.map(|direction| skew(view, nic, direction)))
    });
    timeouts.chain(skewed).collect()
}

/// What was counted since boot says nothing of now: whoever wants to know when it happens looks at the metric's rate.
///
/// The kernel's watchdog found a queue stuck (`ndo_tx_timeout`), by default after 5 s.
fn timeouts(nic: &Nic) -> Option<Finding> {
    let stuck = |queue: &&NicQueue| queue.counters.timeouts.is_some_and(|count| count > 0);
    let queues: Vec<&NicQueue> = nic.queues.iter().filter(stuck).collect();
    let total = queues
        .iter()
        .filter_map(|queue| queue.counters.timeouts)
        .fold(0, u64::saturating_add);
    if total == 0 {
        return None;
    }
    let message = format!(
        "sending on {} stood still for seconds, {} since it was set up: the hypervisor did not take what was queued",
        nic.name,
        count(total, "time")
    );
    Some(
        of_nic(
            "virtio-nic-timeouts",
            Severity::Info,
            nic,
            "TransmitTimeout",
            message,
        )
        .with("timeouts", total)
        .with("queues", few(queues.iter().map(|queue| queue.index)))
        .remedy("sudo dmesg | grep -i 'transmit queue'; then the load of the infra node and of the virt-launcher pod"),
    )
}

/// One queue that carries nearly all of a direction.
struct Skew {
    word: &'static str,
    index: u32,
    share: String,
    packets: u64,
    queues: usize,
    drops: bool,
}

/// Counted from where the number of queues was last changed: before, the queues of today had other work.
fn skew(view: &View<'_>, nic: &Nic, direction: Direction) -> Option<Skew> {
    let standing = view.standing(nic);
    let baseline = standing.map_or(&[][..], |one| match direction {
        Direction::Receive => one.baseline.rx.as_slice(),
        Direction::Transmit => one.baseline.tx.as_slice(),
    });
    // Somebody has changed their number since, and nobody knows when.
    let queues = nic.queues.iter().filter(|queue| queue.direction == direction);
    let at_first = usize::try_from(standing.map_or(0, |one| one.first)).unwrap_or(usize::MAX);
    let then = if baseline.is_empty() {
        at_first
    } else {
        baseline.len()
    };
    if then != 0 && then != queues.clone().count() {
        return None;
    }
    let since = |queue: &NicQueue| -> Option<u64> {
        let now = queue.counters.packets?;
        let at = usize::try_from(queue.index).ok();
        let then = at.and_then(|at| baseline.get(at)).copied().unwrap_or(0);
        // Counters that went back have begun anew.
        Some(now.checked_sub(then).unwrap_or(now))
    };
    let counted: Vec<(&NicQueue, u64)> = queues.filter_map(|queue| Some((queue, since(queue)?))).collect();
    let total: u128 = counted.iter().map(|one| u128::from(one.1)).sum();
    let (queue, most) = counted.iter().max_by_key(|one| one.1).copied()?;
    if counted.len() < 2 || total < u128::from(ENOUGH) || u128::from(most) * 100 <= total * MOST_PERCENT {
        return None;
    }
    let packets = u64::try_from(total).unwrap_or(u64::MAX);
    Some(Skew {
        word: match direction {
            Direction::Receive => "received",
            Direction::Transmit => "sent",
        },
        index: queue.index,
        share: percent(most, packets),
        packets,
        queues: counted.len(),
        // Drops are known since boot alone, and so are compared with all that it has carried.
        drops: queue
            .counters
            .drops
            .zip(queue.counters.packets)
            .is_some_and(|(drops, packets)| drops > packets / DROPPED_ONE_IN),
    })
}

fn skewed(view: &View<'_>, nic: &Nic, found: &[Option<Skew>]) -> Option<Finding> {
    // With one vCPU it makes no difference.
    if !view.several_cpus() {
        return None;
    }
    let found: Vec<&Skew> = found.iter().flatten().collect();
    let told: Vec<String> = found
        .iter()
        .map(|one| {
            format!(
                "queue {} of {} carries {} of what is {}",
                one.index, one.queues, one.share, one.word
            )
        })
        .collect();
    let severity = if found.iter().any(|one| one.drops) {
        Severity::Warning
    } else {
        Severity::Info
    };
    if found.is_empty() {
        return None;
    }
    let message = format!(
        "{}: {}; one flow always stays on one queue, so a single connection, or a tunnel, looks like this",
        nic.name,
        told.join(", ")
    );
    let mut finding = of_nic("virtio-nic-queue-skew", severity, nic, "QueueSkew", message);
    for one in found {
        finding = finding
            .with(&format!("{}Queue", one.word), one.index)
            .with(&format!("{}Share", one.word), &one.share)
            .with(&format!("{}Packets", one.word), one.packets);
    }
    Some(finding.remedy(
        "nothing, if there are few connections; else spread received packets over vCPUs (nic.rps: all), and look for a tunnel that hides the flows",
    ))
}
