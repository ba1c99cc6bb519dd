//! A run is killed at any point: the next one ends with a verified number, and `off` restores the
//! first.

use std::{
    cell::Cell,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{FailPoints, REQUEST_DIRECTORY};

use super::*;

/// Passes this many fail points, and kills the run at the next one.
struct Kill(Cell<usize>);

impl FailPoints for Kill {
    fn at(&self, _: &str) {
        match self.0.get().checked_sub(1) {
            Some(left) => self.0.set(left),
            None => std::panic::panic_any("killed"),
        }
    }
}

/// True if the run was killed before its end.
fn killed_at(guest: &Guest, point: usize) -> bool {
    let kill = Kill(Cell::new(point));
    let provisioner = NicProvisioner {
        fail_points: &kill,
        ..guest.provisioner()
    };
    let pass = || provisioner.run(&guest.wanted(), by_stage()).unwrap();
    catch_unwind(AssertUnwindSafe(pass)).is_err()
}

/// For each point: a run is killed there, a second one too, and a third one completes.
fn at_every_point(first_change: bool, fault: Option<Fault>, ends_with: u32) {
    for point in 0.. {
        let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
        if !first_change {
            guest.by_itself();
            guest.inner().machine.cpus.online = vec![0, 1, 2];
        }
        if let Some(fault) = fault {
            guest.fault("eth0", fault);
        }
        let killed = killed_at(&guest, point);
        for again in 0..2 {
            killed_at(&guest, again);
        }
        let state = guest.by_itself().state;
        let eth0 = &state.nics["eth0"];
        assert_eq!(eth0.pending, None, "{point}: {state:?}");
        assert_eq!(guest.queues("eth0"), ends_with, "{point}");
        if fault.is_some() {
            assert_eq!(eth0.standing, QueueStatus::RolledBack, "{point}: {state:?}");
            assert_eq!(eth0.ours, (!first_change).then_some(ends_with), "{point}");
        } else {
            assert_eq!(
                (eth0.standing, eth0.ours, eth0.before),
                (QueueStatus::Spread, Some(ends_with), Some(1)),
                "{point}"
            );
        }
        guest.settings("nic: {multiqueue: off}");
        let off = guest.by_itself().state;
        assert_eq!((guest.queues("eth0"), off.error), (1, None), "{point}");
        assert_eq!(off.nics["eth0"].ours, None, "{point}");
        if !killed {
            assert!(point >= 3, "the run has fail points: {point}");
            break;
        }
    }
}

#[test]
fn an_interrupted_change_is_settled_with_any_expected_plan() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    let plan = guest.provisioner().plan(&guest.wanted());
    assert!(killed_at(&guest, 1), "after the number was set");
    assert_eq!(guest.queues("eth0"), 2);
    guest.fault("eth0", Fault::NoCarrier(2));
    let how = with(&plan);
    guest.provisioner().run(&guest.wanted(), how).unwrap();
    assert_eq!(guest.queues("eth0"), 1);
}

#[test]
fn a_run_killed_in_a_change_leaves_a_reconcile_request() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    let asked = guest.roots.root(REQUEST_DIRECTORY);
    fs::create_dir_all(&asked).unwrap();
    assert!(killed_at(&guest, 1));
    assert!(asked.join("nic").exists());
}

/// A request that stays would start one run after another.
#[test]
fn a_completed_change_leaves_no_reconcile_request() {
    for fault in [
        None,
        Some(Fault::NoCarrierEver),
        Some(Fault::Answers(Errno::EIO, 9)),
        Some(Fault::Goes),
    ] {
        let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
        let asked = guest.roots.root(REQUEST_DIRECTORY);
        fs::create_dir_all(&asked).unwrap();
        if let Some(fault) = fault {
            guest.fault("eth0", fault);
        }
        for _ in 0..2 {
            guest.by_itself();
            assert_eq!(fs::read_dir(&asked).unwrap().count(), 0, "{fault:?}");
        }
    }
}

#[test]
fn skew_is_measured_from_a_change_that_a_later_run_settled() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    assert!(killed_at(&guest, 1));
    let state = guest.by_itself().state;
    assert_eq!(state.nics["eth0"].baseline.rx, [10, 11]);
}

#[test]
fn a_first_change() {
    at_every_point(true, None, 2);
}

#[test]
fn a_second_change() {
    at_every_point(false, None, 3);
}

#[test]
fn a_first_change_that_breaks_the_link() {
    at_every_point(true, Some(Fault::NoCarrier(2)), 1);
}

#[test]
fn a_second_change_that_breaks_the_link() {
    at_every_point(false, Some(Fault::NoCarrier(3)), 2);
}

#[test]
fn restoring() {
    for point in 0..4 {
        let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
        guest.by_itself();
        guest.settings("nic: {multiqueue: off}");
        killed_at(&guest, point);
        let off = guest.by_itself().state;
        let eth0 = &off.nics["eth0"];
        assert_eq!(
            (guest.queues("eth0"), eth0.ours, eth0.before),
            (1, None, None),
            "{point}"
        );
    }
}
