//! Interfaces: one line each, and their queues with their traffic.

use virtfleet_agent_core::virtio::{Direction, Nic, NicQueue, ranges};
use virtfleet_agent_state::virtio::Virtio;

use super::{
    super::rows::{Cell, rows, tree},
    detail::{Detail, number},
};

pub(super) fn text(seen: &Virtio, detail: Detail) -> String {
    let nics = &seen.machine.nics;
    let heads: Vec<Vec<Cell>> = nics.iter().map(|nic| head(seen, nic)).collect();
    tree(
        &heads,
        nics.iter()
            .map(|nic| coalescing(nic, detail) + &queues(nic, detail)),
    )
}

/// Interrupt coalescing of the device, for both directions.
fn coalescing(nic: &Nic, detail: Detail) -> String {
    let Some(set) = nic.coalescing.filter(|_| !detail.sums) else {
        return String::new();
    };
    let adaptive = if set.rx_adaptive { ", adaptive" } else { "" };
    let line = format!(
        "rx {} µs or {} packets{adaptive}, tx {} µs or {} packets",
        set.rx_usecs, set.rx_frames, set.tx_usecs, set.tx_frames
    );
    rows(4, &[vec!["coalescing".into(), line.into()]])
}

fn head(seen: &Virtio, nic: &Nic) -> Vec<Cell> {
    let state = match (nic.up, nic.carrier) {
        (false, _) => "down",
        (true, Some(false)) => "no carrier",
        (true, _) => "up",
    };
    let mtu = match nic.dhcp_mtu {
        Some(given) if given != nic.mtu => format!("mtu {} (DHCP: {given})", nic.mtu),
        _ => format!("mtu {}", nic.mtu),
    };
    let rings = nic.rings.map(|rings| {
        format!(
            "rings rx {} of {}, tx {} of {}",
            rings.rx, rings.rx_possible, rings.tx, rings.tx_possible
        )
    });
    vec![
        nic.name.as_str().into(),
        nic.driver.as_str().into(),
        nic.device.as_deref().unwrap_or(&nic.address).into(),
        state.into(),
        mtu.into(),
        seen.queues(nic).unwrap_or_default().into(),
        rings.unwrap_or_default().into(),
    ]
}

fn queues(nic: &Nic, detail: Detail) -> String {
    if nic.queues.is_empty() {
        return String::new();
    }
    if !detail.each(nic.queues.len()) {
        return sum(nic);
    }
    let head = [
        "QUEUE", "RPS/XPS", "PACKETS", "BYTES", "DROPS", "KICKS", "TIMEOUTS",
    ];
    let lines = nic.queues.iter().map(row);
    let head = head.map(Cell::from).to_vec();
    rows(4, &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Receive => "rx",
        Direction::Transmit => "tx",
    }
}

fn row(queue: &NicQueue) -> Vec<Cell> {
    let counters = queue.counters;
    vec![
        format!("{}-{}", word(queue.direction), queue.index).into(),
        queue
            .cpus
            .as_ref()
            .filter(|cpus| !cpus.is_empty())
            .map_or_else(|| "-".into(), |cpus| ranges(cpus).into()),
        number(counters.packets),
        number(counters.bytes),
        number(counters.drops),
        number(counters.kicks),
        number(counters.timeouts),
    ]
}

/// `rx 32 queues, 1000 packets, at most 90.0 % on one`.
fn sum(nic: &Nic) -> String {
    let lines = [Direction::Receive, Direction::Transmit].map(|direction| {
        let queues = nic.queues.iter().filter(|queue| queue.direction == direction);
        let packets: Vec<u64> = queues
            .clone()
            .filter_map(|queue| queue.counters.packets)
            .collect();
        let total: u128 = packets.iter().map(|packets| u128::from(*packets)).sum();
        let most = u128::from(packets.iter().max().copied().unwrap_or(0));
        let share = (most * 100).checked_div(total);
        let share = share.map_or_else(String::new, |share| format!(", at most {share} % on one"));
        vec![
            word(direction).into(),
            format!("{} queues, {total} packets{share}", queues.count()).into(),
        ]
    });
    rows(4, &lines)
}
