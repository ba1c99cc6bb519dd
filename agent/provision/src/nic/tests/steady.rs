//! When a link counts as being as before.

use std::time::Duration;

use super::*;

#[test]
fn a_link_that_dies_a_moment_later_is_rolled_back() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::Dies(2, Duration::from_millis(300)));
    let state = guest.by_itself().state;
    assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"]);
    assert_eq!(state.nics["eth0"].standing, QueueStatus::RolledBack);
    assert_eq!((state.rollbacks, state.nics["eth0"].pending.clone()), (1, None));
}

#[test]
fn receiving_must_continue_even_if_packets_are_sent() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.inner().rates.insert("eth0".to_owned(), 5000);
    guest.fault("eth0", Fault::NoReceive(2));
    let error = guest.by_itself().state.error.unwrap();
    assert!(error.contains("nothing was received any more"), "{error}");
    assert_eq!(guest.queues("eth0"), 1);
}

#[test]
fn low_traffic_is_checked_too() {
    let guest = Guest::new(vec![nic(0, 1, 4), nic(1, 1, 4)], AUTO);
    for nic in ["eth0", "eth1"] {
        guest.inner().rates.insert(nic.to_owned(), 100);
    }
    guest.fault("eth0", Fault::NoReceive(2));
    let state = guest.by_itself().state;
    assert_eq!((guest.queues("eth0"), guest.queues("eth1")), (1, 2));
    assert!(state.nics["eth0"].put_back.contains(&2), "{state:?}");
    assert_eq!(state.nics["eth1"].measured, None, "too few to compare");
}

#[test]
fn traffic_that_stops_by_itself_is_not_a_fault() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.inner().rates.insert("eth0".to_owned(), 100);
    guest.fault("eth0", Fault::Ends);
    let state = guest.by_itself().state;
    assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"]);
    assert!(state.error.unwrap().contains("may have ended by itself"));
    let eth0 = &state.nics["eth0"];
    assert_eq!((eth0.pending.clone(), eth0.put_back.len()), (None, 0));
    let state = guest.by_itself().state;
    assert_eq!((guest.queues("eth0"), state.error), (2, None));
}

#[test]
fn a_link_dead_with_the_old_number_too_allows_one_retry() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrierEver);
    guest.by_itself();
    assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"]);
    // It recovers, and the number is tried once more. The second failure is final.
    guest.inner().touched = false;
    guest.by_itself();
    assert_eq!(guest.inner().set.len(), 4);
    guest.inner().touched = false;
    let state = guest.by_itself().state;
    let eth0 = &state.nics["eth0"];
    assert_eq!(
        (guest.inner().set.len(), eth0.standing),
        (4, QueueStatus::RolledBack)
    );
    assert_eq!((eth0.pending.clone(), state.error), (None, None));
}

#[test]
fn an_interface_that_comes_up_meanwhile_is_not_a_fault() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::ComesUp);
    let state = guest.by_itself().state;
    assert_eq!((state.error.clone(), guest.queues("eth0")), (None, 2));
    assert_eq!(state.nics["eth0"].ours, Some(2));
}

#[test]
fn a_run_over_many_broken_interfaces_is_limited() {
    let guest = Guest::new((0..30).map(|number| nic(number, 1, 4)).collect(), AUTO);
    for number in 0..30 {
        guest.fault(&format!("eth{number}"), Fault::Sticks(2));
    }
    let state = guest.by_itself().state;
    assert!(
        World::now(&guest) < Duration::from_secs(125),
        "{:?}",
        World::now(&guest)
    );
    assert!(state.error.unwrap().contains("no time left"));
}

#[test]
fn without_a_change_of_queues_the_run_does_not_wait() {
    let guest = Guest::new(vec![nic(0, 2, 4)], "nic: {rps: all}");
    assert_eq!(guest.by_itself().state.done.len(), 2);
    assert_eq!(World::now(&guest), Duration::ZERO);
}
