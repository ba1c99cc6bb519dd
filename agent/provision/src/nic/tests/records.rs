//! What one run records for the next.

use std::fs;

use virtfleet_agent_core::nic::Plan;
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::NicCalls;
use virtfleet_agent_state::NIC_STATE;

use super::*;

#[test]
fn a_failed_rollback_is_reported_and_retried() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::Sticks(2));
    for _ in 0..2 {
        let state = guest.by_itself().state;
        let eth0 = &state.nics["eth0"];
        assert_eq!(
            (guest.queues("eth0"), eth0.standing),
            (2, QueueStatus::RolledBack)
        );
        assert!(eth0.because.contains("putting 1 queues back"), "{eth0:?}");
        assert_eq!(eth0.ours, None);
        assert!(failed(&state) && state.error.is_some());
    }
    let plan = guest.provisioner().plan(&guest.wanted());
    assert_eq!(plan.nics[0].standing, QueueStatus::RolledBack);
    guest.fault("eth0", Fault::NoCarrier(2));
    let state = guest.by_itself().state;
    assert_eq!((guest.queues("eth0"), state.error.clone()), (1, None));
    let eth0 = &state.nics["eth0"];
    assert_eq!((eth0.pending.clone(), eth0.put_back.contains(&2)), (None, true));
    assert_eq!(guest.inner().set, ["eth0 2", "eth0 1"]);
}

#[test]
fn a_dead_link_that_is_not_managed_any_more_is_left_alone() {
    for settings in ["nic: {multiqueue: off}", "nic: {multiqueue: auto, exclude: eth0}"] {
        let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
        guest.fault("eth0", Fault::NoCarrierEver);
        assert!(failed(&guest.by_itself().state));
        guest.settings(settings);
        let state = guest.by_itself().state;
        assert_eq!(state.nics["eth0"].pending, None, "{settings}");
        assert!(state.done[0].contains("left with its 1 queues"), "{state:?}");
        assert!(!failed(&state), "{state:?}");
    }
    // An admin's run accepts the current state and tries the number again.
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrierEver);
    guest.by_itself();
    assert!(failed(&guest.by_itself().state), "no admin has applied");
    let state = guest.by_hand().state;
    assert!(state.done[0].contains("taken as it is"), "{state:?}");
    assert!(!failed(&state), "{state:?}");
}

#[test]
fn a_plan_without_a_usable_state_says_so() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    let says = |plan: &Plan| {
        let mut notes = plan.notes.iter();
        notes.any(|note| note.contains("sudo virtfleet-agent plan nic"))
    };
    assert!(!says(&guest.provisioner().plan(&guest.wanted())), "no run yet");
    let path = guest.roots.root(NIC_STATE.path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{").unwrap();
    let plan = guest.provisioner().plan(&guest.wanted());
    assert!(says(&plan), "{plan:?}");
}

#[test]
fn a_replugged_device_starts_anew_and_one_that_was_away_does_not() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrier(2));
    guest.by_itself();
    let away = std::mem::take(&mut guest.inner().machine.nics);
    assert!(guest.by_itself().state.nics.is_empty());
    guest.inner().machine.nics = away;
    assert_eq!(
        guest.by_itself().state.nics["eth0"].standing,
        QueueStatus::RolledBack
    );
    assert_eq!(guest.inner().set.len(), 2, "not tried again");
    guest.inner().machine.nics[0].index = 9;
    guest.fault("eth0", Fault::NoCarrier(99));
    assert_eq!(guest.by_itself().state.nics["eth0"].standing, QueueStatus::Spread);
}

#[test]
fn each_number_that_broke_the_link_is_remembered() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrier(2));
    guest.by_itself();
    guest.fault("eth0", Fault::NoCarrier(3));
    guest.inner().machine.cpus.online = vec![0, 1, 2];
    guest.by_itself();
    guest.inner().set.clear();
    for online in [vec![0, 1], vec![0, 1, 2]] {
        guest.inner().machine.cpus.online = online;
        assert_eq!(
            guest.by_itself().state.nics["eth0"].standing,
            QueueStatus::RolledBack
        );
    }
    assert!(guest.inner().set.is_empty());
}

#[test]
fn a_refusal_of_the_driver_is_reported_once_until_an_admin_applies() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::Answers(Errno::EINVAL, 9));
    let state = guest.by_itself().state;
    assert!(!failed(&state) && state.refusals[0].contains("XDP"), "{state:?}");
    let again = guest.by_itself().state;
    assert!(!failed(&again) && again.refusals.is_empty(), "{again:?}");
    let eth0 = &again.nics["eth0"];
    assert_eq!(
        (eth0.standing, eth0.ours, eth0.pending.clone()),
        (QueueStatus::Differs, None, None)
    );
    assert!(eth0.because.contains("the driver refuses 2 queues"), "{eth0:?}");
    assert_eq!(guest.by_hand().state.refusals.len(), 1, "asked again");
    guest.fault("eth0", Fault::NoCarrier(99));
    assert!(guest.by_hand().state.nics["eth0"].refused.is_empty());
    assert_eq!(guest.queues("eth0"), 2);
}

#[test]
fn off_restores_a_number_that_was_set_by_hand_in_between() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.by_itself();
    NicCalls::set_channels(&guest, "eth0", 3).unwrap();
    guest.inner().machine.cpus.online = vec![0, 1, 2, 3];
    guest.by_itself();
    assert_eq!(guest.queues("eth0"), 4);
    guest.settings("nic: {multiqueue: off}");
    guest.by_itself();
    assert_eq!(guest.queues("eth0"), 3);
}

#[test]
fn a_step_outside_the_expected_plan_is_not_applied() {
    let guest = Guest::new(vec![nic(0, 1, 4)], "");
    let plan = guest.provisioner().plan(&guest.wanted());
    let how = with(&plan);
    // The kernel leaves CPUs unevenly spread after this change, so a later observation plans XPS.
    guest.fault("eth0", Fault::Uneven);
    let passed = guest.pass(how);
    assert_eq!(guest.inner().set, ["eth0 2"]);
    assert!(!passed.plan.steps.is_empty(), "left for the next");
    guest.by_hand();
    assert!(guest.inner().set.len() > 1);
}

#[test]
fn an_unusable_state_is_reported_once() {
    for text in ["{", r#"{"v": 9, "bootId": "b"}"#] {
        let guest = Guest::new(vec![nic(0, 2, 4)], AUTO);
        let path = guest.roots.root(NIC_STATE.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let state = guest.by_itself().state;
        assert!(state.error.unwrap().contains("could not be used"), "{text}");
        assert_eq!(guest.by_itself().state.error, None);
        let other = NicProvisioner {
            boot_id: "other",
            ..guest.provisioner()
        };
        let passed = other.run(&guest.wanted(), by_stage()).unwrap().unwrap();
        assert_eq!(passed.state.error, None, "of another boot");
    }
}

#[test]
fn the_plan_names_a_rollback() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    guest.fault("eth0", Fault::NoCarrier(2));
    guest.by_itself();
    let plan = guest.provisioner().plan(&guest.wanted());
    assert_eq!(plan.nics[0].standing, QueueStatus::RolledBack);
    assert!(
        plan.notes.iter().any(|note| note.contains("with 2 queues")),
        "{plan:?}"
    );
}
