//! Faults while queues are set.

use std::{fs, time::Duration};

use virtfleet_agent_host::Errno;

use virtfleet_agent_core::pass::Stage;

use super::*;
use crate::engine::Mode;

#[test]
fn a_broken_link_is_rolled_back_and_only_an_admin_retries() {
    for (fault, why) in [
        (Fault::NoCarrier(2), "did not come back (it was up, and is down)"),
        (Fault::NoPackets(2), "nothing was received any more"),
        (Fault::NoAddress(2), "the address 10.0.2.15 was lost"),
    ] {
        let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
        guest.inner().rates.insert("eth0".to_owned(), 5000);
        guest.fault("eth0", fault);
        let state = guest.by_itself().state;
        assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"], "{fault:?}");
        let error = state.error.clone().unwrap();
        assert!(
            error.contains(why) && error.contains("has its 1 again"),
            "{error}"
        );
        let eth0 = &state.nics["eth0"];
        assert_eq!(
            (eth0.standing, eth0.ours, eth0.before),
            (QueueStatus::RolledBack, None, None)
        );
        assert_eq!((state.rollbacks, state.changes), (1, 0));
        assert!(failed(&state));
        let again = guest.by_itself().state;
        assert_eq!((guest.inner().set.len(), again.error.clone()), (2, None));
        assert_eq!(again.nics["eth0"].standing, QueueStatus::RolledBack);
        assert!(failed(&again), "as long as the fault is there");
        // An admin may.
        guest.fault("eth0", Fault::NoCarrier(99));
        let by_hand = guest.by_hand().state;
        assert_eq!(
            (guest.queues("eth0"), by_hand.nics["eth0"].standing),
            (2, QueueStatus::Spread)
        );
        assert!(!failed(&by_hand));
    }
}

#[test]
fn another_number_of_cpus_allows_a_retry() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrier(2));
    guest.by_itself();
    guest.inner().machine.cpus.online = vec![0, 1, 2];
    assert_eq!(guest.by_itself().state.nics["eth0"].standing, QueueStatus::Spread);
    assert_eq!(guest.queues("eth0"), 3);
}

#[test]
fn a_link_that_stays_dead_is_reported_with_a_command() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrierEver);
    let state = guest.by_itself().state;
    assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"]);
    let error = state.error.unwrap();
    assert!(
        error.contains("with 1 again the link did not come back"),
        "{error}"
    );
    assert!(error.contains("ip -d link show eth0"), "{error}");
    assert!(
        World::now(&guest) < Duration::from_secs(25),
        "twice the settings' 10 s"
    );
}

#[test]
fn a_refusing_driver_is_reported_with_a_remedy_and_others_continue() {
    for (errno, next) in [
        (Errno::EPERM, "sudo virtfleet-agent apply nic"),
        (Errno::EBUSY, "the next run"),
        (Errno::ENODEV, "gone"),
    ] {
        let guest = Guest::new(vec![nic(0, 1, 4), nic(1, 1, 4)], AUTO);
        guest.fault("eth0", Fault::Answers(errno, 9));
        let state = guest.by_itself().state;
        assert_eq!(guest.inner().set, ["eth1 2"]);
        let error = state.error.clone().unwrap();
        assert!(
            error.starts_with("eth0: setting 2 queues: ") && error.contains(next),
            "{error}"
        );
        assert_eq!(
            (state.nics["eth0"].standing, state.nics["eth0"].ours),
            (QueueStatus::Differs, None)
        );
        assert_eq!(
            (state.nics["eth1"].standing, state.rollbacks),
            (QueueStatus::Spread, 0)
        );
        assert!(failed(&state));
    }
}

#[test]
fn a_busy_driver_is_retried() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::Answers(Errno::EBUSY, 2));
    assert_eq!(guest.by_itself().state.error, None);
    assert_eq!(guest.queues("eth0"), 2);
}

#[test]
fn an_interface_that_disappears_or_is_replaced_is_not_changed_again() {
    for fault in [Fault::Goes, Fault::IsReplaced] {
        let guest = Guest::new(
            vec![nic(0, 1, 4), nic(1, 1, 4)],
            "nic: {multiqueue: auto, rps: all}",
        );
        guest.fault("eth0", fault);
        let state = guest.by_itself().state;
        let error = state.error.unwrap();
        assert!(error.contains("went away, or was replaced"), "{error}");
        let set = guest.inner().set.clone();
        assert!(set.iter().all(|one| one.starts_with("eth1 ")), "{set:?}");
        assert_eq!((guest.queues("eth1"), state.rollbacks), (2, 0));
        let left = state.nics.get("eth0").and_then(|nic| nic.ours);
        assert_eq!(left, None, "another interface's");
    }
}

#[test]
fn a_plan_for_another_interface_is_refused() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    let plan = guest.provisioner().plan(&guest.wanted());
    let target = plan.steps[0].target().unwrap().clone();
    guest.inner().machine.nics[0].index = 77;
    let refused = guest.provisioner().begin(&target, (1, 2), None);
    let Err(change::ChangeError::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.kind, RefusalKind::Replaced);
    assert!(refusal.message.contains("number 77"), "{refusal:?}");
    guest.inner().machine.nics[0].index = target.index;
    let late = guest.provisioner().begin(&target, (3, 2), None);
    assert!(format!("{late:?}").contains("1 queues by now"), "{late:?}");
    assert!(guest.inner().set.is_empty());
}

#[test]
fn a_change_without_effect_is_an_error_and_is_not_repeated() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::Pretends);
    let state = guest.by_itself().state;
    assert!(state.error.unwrap().contains("the driver kept 1 queues"));
    let guest = Guest::new(vec![nic(0, 2, 4)], "nic: {rps: all}");
    guest.fault("eth0", Fault::PretendsSteering);
    let state = guest.by_itself().state;
    assert!(state.error.unwrap().contains("did not take effect"));
    let guest = Guest::new(vec![nic(0, 2, 4)], "nic: {rps: all}");
    guest.fault("eth0", Fault::NoSteering(Errno::EACCES));
    let error = guest.by_itself().state.error.unwrap();
    assert!(
        error.starts_with("eth0: RPS of rx-0: CPUs 0-1 instead of none: "),
        "{error}"
    );
}

#[test]
fn a_stage_without_time_leaves_the_change_to_the_next_run() {
    let guest = Guest::new(vec![nic(0, 1, 4), nic(1, 1, 4), nic(2, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrierEver);
    let how = Mode::of_stage(Stage::Dns, Some(Duration::from_secs(6)));
    let state = guest.pass(how).state;
    assert!(
        World::now(&guest) < Duration::from_secs(7),
        "{:?}",
        World::now(&guest)
    );
    assert!(state.error.unwrap().contains("no time left"));
    assert!(state.nics["eth2"].ours.is_none());
    guest.by_itself();
    assert_eq!((guest.queues("eth1"), guest.queues("eth2")), (2, 2));
}

#[test]
fn without_a_recorded_rollback_nothing_is_changed() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    let run = guest.roots.root("/run");
    fs::create_dir_all(run.parent().unwrap()).unwrap();
    fs::write(&run, "no folder").unwrap();
    guest.provisioner().run(&guest.wanted(), by_stage()).unwrap_err();
    assert!(guest.inner().set.is_empty());
}
