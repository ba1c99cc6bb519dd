mod fake;
mod faults;
mod kills;
mod records;
mod steady;

use std::time::Duration;

use virtfleet_agent_core::{
    nic::{plan::RefusalKind, state::QueueStatus},
    virtio::{Disk, DiskKind, Features},
};

use virtfleet_agent_state::{NIC_STATE, StateError};

use super::*;
use fake::{BOOT, Fault, Guest, by_stage, nic, with};

const AUTO: &str = "nic: {multiqueue: auto}";

#[test]
fn auto_raises_and_the_next_run_has_nothing_to_do() {
    let guest = Guest::new(vec![nic(0, 1, 4), nic(1, 1, 1)], AUTO);
    let passed = guest.by_itself();
    assert_eq!(guest.inner().set, ["eth0 2"]);
    assert_eq!(passed.state.done, ["eth0: 2 queues instead of 1"]);
    assert!(passed.plan.steps.is_empty(), "{:?}", passed.plan);
    let eth0 = &passed.state.nics["eth0"];
    assert_eq!(
        (eth0.standing, eth0.ours, eth0.before),
        (QueueStatus::Spread, Some(2), Some(1))
    );
    assert_eq!(
        (eth0.baseline.rx.clone(), eth0.baseline.tx.clone()),
        (vec![10, 11], vec![10, 11])
    );
    assert_eq!(passed.state.nics["eth1"].standing, QueueStatus::Single);
    assert_eq!((passed.state.changes, passed.state.rollbacks), (1, 0));
    let again = guest.by_itself();
    assert_eq!(guest.inner().set.len(), 1);
    assert_eq!((again.state.changes, again.state.done.len()), (1, 0));
    assert_eq!(again.state, NIC_STATE.read(&guest.roots, BOOT).unwrap());
    assert_eq!(
        again.state.nics["eth0"].baseline, eth0.baseline,
        "of the last change"
    );
    assert!(!failed(&again.state));
}

#[test]
fn report_only_changes_only_for_an_admin_and_off_restores() {
    let guest = Guest::new(vec![nic(0, 1, 4)], "");
    let looked = guest.by_itself();
    assert_eq!((looked.plan.steps.len(), guest.queues("eth0")), (1, 1));
    assert_eq!(looked.state.nics["eth0"].standing, QueueStatus::Differs);
    assert!(!failed(&looked.state));
    let plan = guest.provisioner().plan(&guest.wanted());
    assert_eq!(plan.steps, looked.plan.steps);
    assert!(guest.by_hand().plan.steps.is_empty());
    assert_eq!(guest.queues("eth0"), 2);
    guest.settings("nic: {multiqueue: off}");
    let off = guest.by_itself();
    assert_eq!(guest.queues("eth0"), 1);
    assert_eq!(
        (off.state.nics["eth0"].ours, off.state.nics["eth0"].before),
        (None, None)
    );
    assert!(off.plan.steps.is_empty());
}

#[test]
fn a_new_vcpu_gets_a_queue_and_a_removed_one_loses_its_queue() {
    let guest = Guest::new(vec![nic(0, 2, 4)], AUTO);
    assert_eq!(guest.by_itself().state.done.len(), 0);
    guest.inner().machine.cpus.online = vec![0, 1, 2];
    guest.by_itself();
    assert_eq!(guest.queues("eth0"), 3);
    guest.inner().machine.cpus.online = vec![0, 1];
    guest.by_itself();
    assert_eq!(guest.queues("eth0"), 2);
}

#[test]
fn keep_manual_keeps_a_number_that_was_set_by_hand() {
    let guest = Guest::new(vec![nic(0, 1, 4)], "nic: {multiqueue: auto, keepManual: true}");
    let kept = guest.by_itself();
    assert_eq!(kept.state.nics["eth0"].standing, QueueStatus::Manual);
    assert!(guest.inner().set.is_empty() && kept.plan.steps.is_empty());
}

#[test]
fn requested_rings_steering_and_schedulers_are_set() {
    let settings = "nic: {rings: {rx: 4096}, rps: all}\nvirtio: {diskScheduler: none}";
    let guest = Guest::new(vec![nic(0, 1, 4)], settings);
    guest.inner().machine.disks = vec![Disk {
        name: "vda".to_owned(),
        kind: DiskKind::VirtioBlk,
        scheduler: Some("mq-deadline".to_owned()),
        schedulers: vec!["none".to_owned(), "mq-deadline".to_owned()],
        ..Disk::default()
    }];
    guest.by_itself();
    let first = ["eth0 rings 1024 256", "eth0 Receive 0 [0, 1]", "vda none"];
    assert_eq!(guest.inner().set, first, "the number of queues is only reported");
    guest.inner().set.clear();
    assert!(guest.by_hand().plan.steps.is_empty());
    let set = guest.inner().set.clone();
    assert_eq!(set, ["eth0 2", "eth0 Receive 1 [0, 1]"]);
}

#[test]
fn enough_traffic_is_measured_before_and_after() {
    let guest = Guest::new(vec![nic(0, 1, 4), nic(1, 1, 4)], AUTO);
    guest.inner().rates.insert("eth0".to_owned(), 10_000);
    guest.inner().rates.insert("eth1".to_owned(), 900);
    let passed = guest.by_itself();
    let measured = passed.state.nics["eth0"].measured.unwrap();
    for rates in [measured.before, measured.after] {
        assert!(
            (rates.rx_bytes - 1e7).abs() < 1.0 && (rates.tx_bytes - 5e6).abs() < 1.0,
            "{rates:?}"
        );
        assert!((rates.softirq - 0.25).abs() < 0.01, "{rates:?}");
    }
    assert_eq!(passed.state.nics["eth1"].measured, None);
    assert!(World::now(&guest) < Duration::from_secs(5));
}

#[test]
fn invalid_settings_change_nothing_and_are_reported() {
    for settings in [
        "nic: {multiqueue: auto, exclude: \"(\"}",
        "nic: {multiqueue: auto}\nvirtio: {diskScheduler: cfq}",
        "nic: {multiqueue: auto, settle: 0s}",
        "nic: {multiqueue: auto, rings: {rx: 63}}",
        "nic: {multiqueue: perhaps}",
    ] {
        let guest = Guest::new(vec![nic(0, 1, 4)], settings);
        let passed = guest.by_hand();
        assert!(guest.inner().set.is_empty(), "{settings}");
        assert!(!passed.state.refusals.is_empty(), "{settings}");
        assert!(
            passed
                .plan
                .refusals
                .iter()
                .all(|one| one.kind == RefusalKind::Settings)
        );
    }
}

#[test]
fn an_expected_plan_is_applied_only_if_it_is_unchanged() {
    let guest = Guest::new(vec![nic(0, 1, 4)], "");
    let plan = guest.provisioner().plan(&guest.wanted());
    let how = with(&plan);
    guest.inner().machine.cpus.online = vec![0, 1, 2];
    assert_eq!(guest.provisioner().run(&guest.wanted(), how).unwrap(), None);
    assert_eq!(guest.queues("eth0"), 1);
    guest.inner().machine.cpus.online = vec![0, 1];
    assert!(guest.provisioner().run(&guest.wanted(), how).unwrap().is_some());
    assert_eq!(guest.queues("eth0"), 2);
}

#[test]
fn what_only_root_can_read_is_recorded_for_the_agent() {
    let mut first = nic(0, 2, 4);
    first.dhcp_mtu = Some(1400);
    let guest = Guest::new(vec![first], "");
    guest.inner().machine.devices = vec![virtfleet_agent_core::virtio::Device {
        name: "virtio2".to_owned(),
        offered: Some(Features(1 << 22)),
        ..Default::default()
    }];
    let state = guest.by_itself().state;
    assert_eq!(state.dhcp_mtu["eth0"], 1400);
    assert!(state.offered["virtio2"].has(22));
    assert_eq!(state.summary(), "1 virtio interface");
}

#[test]
fn a_state_of_another_boot_or_format_is_ignored() {
    let guest = Guest::new(vec![nic(0, 1, 4)], AUTO);
    assert!(NIC_STATE.read(&guest.roots, BOOT).unwrap_err().is_absent());
    let mut state = guest.by_itself().state;
    assert!(NIC_STATE.read(&guest.roots, "other").unwrap_err().is_absent());
    state.v = 9;
    let json = serde_json::to_vec(&state).unwrap();
    assert!(matches!(
        NIC_STATE.parse(&json, BOOT),
        Err(StateError::Format { found: 9, .. })
    ));
    assert!(matches!(
        NIC_STATE.parse(b"{", BOOT),
        Err(StateError::Malformed { .. })
    ));
}
