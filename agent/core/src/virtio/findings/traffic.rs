//! Findings about the traffic of queues: one queue with nearly all of it, and stalled transmission.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_nic},
    words::{count, few, percent},
};
use crate::virtio::{Direction, Nic, NicQueue};

/// Minimum number of packets to judge the distribution: with fewer, single flows decide.
const MIN_PACKETS: u64 = 100_000;
/// Percentage of the packets above which one queue has nearly all: with two queues an even load is
/// 50.
const MAX_SHARE_PERCENT: u128 = 90;
/// One dropped packet in this number makes the imbalance a warning.
const WARN_DROP_ONE_IN: u64 = 1000;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let nics = &view.machine.nics;
    let timeouts = nics.iter().filter_map(timeouts);
    let skewed = nics.iter().filter_map(|nic| {
        let directions = [Direction::Receive, Direction::Transmit];
        skewed(view, nic, &directions.map(|direction| skew(view, nic, direction)))
    });
    timeouts.chain(skewed).collect()
}

/// Finding for transmit timeouts since boot, which do not show when they happened; the rate of the
/// metric does.
///
/// The kernel's watchdog detects a stuck queue (`ndo_tx_timeout`), by default after 5 s.
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
        "transmission on {} stalled for seconds, {} since it was set up: the hypervisor did not process the queue",
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
        .remedy("sudo dmesg | grep -i 'transmit queue'; then check the load of the infra node and of the virt-launcher pod"),
    )
}

/// Queue with nearly all traffic of one direction.
struct Skew {
    word: &'static str,
    index: u32,
    share: String,
    packets: u64,
    queues: usize,
    drops: bool,
}

/// Computed from the last change of the number of queues: before, traffic was distributed
/// differently.
fn skew(view: &View<'_>, nic: &Nic, direction: Direction) -> Option<Skew> {
    let standing = view.standing(nic);
    let baseline = standing.map_or(&[][..], |one| match direction {
        Direction::Receive => one.baseline.rx.as_slice(),
        Direction::Transmit => one.baseline.tx.as_slice(),
    });
    // The number was changed since, at an unknown time.
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
        // A counter that decreased was reset.
        Some(now.checked_sub(then).unwrap_or(now))
    };
    let counted: Vec<(&NicQueue, u64)> = queues.filter_map(|queue| Some((queue, since(queue)?))).collect();
    let total: u128 = counted.iter().map(|one| u128::from(one.1)).sum();
    let (queue, most) = counted.iter().max_by_key(|one| one.1).copied()?;
    if counted.len() < 2
        || total < u128::from(MIN_PACKETS)
        || u128::from(most) * 100 <= total * MAX_SHARE_PERCENT
    {
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
        // Drops are counted since boot, so compare them with all packets since boot.
        drops: queue
            .counters
            .drops
            .zip(queue.counters.packets)
            .is_some_and(|(drops, packets)| drops > packets / WARN_DROP_ONE_IN),
    })
}

fn skewed(view: &View<'_>, nic: &Nic, found: &[Option<Skew>]) -> Option<Finding> {
    // With one vCPU the distribution does not matter.
    if !view.several_cpus() {
        return None;
    }
    let found: Vec<&Skew> = found.iter().flatten().collect();
    let told: Vec<String> = found
        .iter()
        .map(|one| {
            format!(
                "queue {} of {} carries {} of the traffic that is {}",
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
        "{}: {}; all packets of a flow use one queue, so a single connection or a tunnel can cause this",
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
        "none if there are few connections; otherwise distribute received packets over vCPUs (nic.rps: all), and check for a tunnel that hides the flows",
    ))
}
