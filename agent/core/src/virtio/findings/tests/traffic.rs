//! Imbalance of queues: when it is measured from, and when it is reported.

use super::fixtures::{found, found_with, healthy, short, state};
use crate::virtio::Machine;

fn received(machine: &mut Machine, packets: [u64; 4]) {
    for (queue, packets) in machine.nics[0].queues.iter_mut().zip(packets) {
        queue.counters.packets = Some(packets);
    }
}

#[test]
fn queue_imbalance_is_reported() {
    let mut machine = healthy();
    received(&mut machine, [95_001, 2000, 2000, 1999]);
    let all = found(&machine);
    assert_eq!(short(&all), ["virtio-nic-queue-skew Info eth0"]);
    assert!(
        all[0]
            .message
            .starts_with("eth0: queue 0 of 4 carries 94.0 % of the traffic that is received; all packets"),
        "{}",
        all[0].message
    );
    assert_eq!(all[0].evidence["receivedPackets"], "101000");
    machine.nics[0].queues[0].counters.drops = Some(500);
    assert_eq!(short(&found(&machine)), ["virtio-nic-queue-skew Warning eth0"]);
}

#[test]
fn few_packets_and_even_loads_are_not_reported() {
    let mut machine = healthy();
    for packets in [
        [99_999, 0, 0, 0],
        [90_000, 10_000, 0, 0],
        [500_000, 500_000, 500_000, 500_000],
    ] {
        received(&mut machine, packets);
        assert_eq!(found(&machine), [], "{packets:?}");
    }
    machine.nics[0].queues.drain(1..4);
    machine.nics[0].queues[0].counters.packets = Some(1 << 50);
    let skewed = short(&found(&machine));
    assert_eq!(skewed, Vec::<String>::new(), "the only queue carries everything");
}

#[test]
fn imbalance_is_measured_from_the_last_change() {
    let mut machine = healthy();
    received(&mut machine, [10_000_000, 300_000, 300_000, 300_000]);
    assert_eq!(found(&machine).len(), 1);
    let mut state = state();
    state.nics.get_mut("eth0").unwrap().baseline.rx = vec![9_700_000, 0, 0, 0];
    assert_eq!(
        found_with(&machine, &state),
        [],
        "before the change there was one queue"
    );
    state.nics.get_mut("eth0").unwrap().baseline.rx = vec![u64::MAX; 4];
    assert_eq!(found_with(&machine, &state).len(), 1, "counters that were reset");
    state.nics.get_mut("eth0").unwrap().baseline.rx = vec![0, 0];
    assert_eq!(
        found_with(&machine, &state),
        [],
        "the number of queues was changed since"
    );
    let one = state.nics.get_mut("eth0").unwrap();
    one.baseline.rx.clear();
    one.first = 1;
    assert_eq!(
        found_with(&machine, &state),
        [],
        "changed by another program only"
    );
    state.nics.get_mut("eth0").unwrap().mac = "another".into();
    state.nics.get_mut("eth0").unwrap().baseline.rx = vec![9_700_000, 0, 0];
    assert_eq!(
        found_with(&machine, &state).len(),
        1,
        "the baseline of another interface"
    );
}

#[test]
fn drops_are_compared_with_packets_since_boot() {
    let mut machine = healthy();
    received(&mut machine, [10_000_000, 0, 0, 0]);
    machine.nics[0].queues[0].counters.drops = Some(9000);
    let mut state = state();
    state.nics.get_mut("eth0").unwrap().baseline.rx = vec![9_000_000, 0, 0, 0];
    assert_eq!(
        short(&found_with(&machine, &state)),
        ["virtio-nic-queue-skew Info eth0"]
    );
}
