use virtfleet_wire::settings::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};

use super::{fixtures::*, *};
use crate::{
    nic::check,
    virtio::{Channels, Device, Direction, Disk, DiskKind, Features},
};

fn channels(plan: &Plan) -> Vec<(&str, u32, u32)> {
    let each = plan.steps.iter().filter_map(|step| match step {
        NicStep::SetChannels { target, from, to } => Some((target.nic.as_str(), *from, *to)),
        _ => None,
    });
    each.collect()
}

fn standing(plan: &Plan) -> QueueStatus {
    plan.nics[0].standing
}

#[test]
fn queues_are_raised_to_cpus_or_maximum() {
    for (cpus, current, possible, to) in [(2, 1, 2, 2), (2, 1, 8, 2), (8, 2, 4, 4), (3, 2, 3, 3)] {
        let seen = machine(cpus, vec![nic(0, current, possible, cpus)]);
        for mode in [Multiqueue::Auto, Multiqueue::ReportOnly] {
            let plan = plan(&asked(mode), &seen, &NicState::default());
            assert_eq!(channels(&plan), [("eth0", current, to)]);
            assert_eq!(standing(&plan), QueueStatus::Differs);
            assert_eq!(plan.notes, [COST]);
        }
    }
}

#[test]
fn correct_and_single_queue_interfaces_are_unchanged() {
    let seen = machine(4, vec![nic(0, 4, 8, 4), nic(1, 1, 1, 4)]);
    let plan = plan(&asked(Multiqueue::Auto), &seen, &NicState::default());
    assert!(plan.steps.is_empty() && plan.notes.is_empty(), "{plan:?}");
    let standings: Vec<QueueStatus> = plan.nics.iter().map(|nic| nic.standing).collect();
    assert_eq!(standings, [QueueStatus::Spread, QueueStatus::Single]);
}

#[test]
fn other_drivers_and_excluded_interfaces_are_unchanged() {
    let mut hardware = nic(0, 1, 8, 4);
    hardware.driver = "mlx5_core".to_owned();
    let settings = NicSettings {
        multiqueue: Multiqueue::Auto,
        exclude: "^eth1$".to_owned(),
        rings: RingSettings {
            rx: Some(512),
            tx: None,
        },
        rps: Steering::All,
        ..NicSettings::default()
    };
    let seen = machine(4, vec![hardware, nic(1, 1, 8, 4)]);
    let plan = plan(&with(&settings), &seen, &NicState::default());
    assert!(plan.steps.is_empty() && plan.refusals.is_empty(), "{plan:?}");
    assert!(plan.nics[0].because.contains("mlx5_core") && plan.nics[1].because.contains("^eth1$"));
    assert!(plan.nics.iter().all(|nic| nic.standing == QueueStatus::Excluded));
}

#[test]
fn surplus_queues_are_removed_only_if_added_by_the_agent() {
    let seen = machine(2, vec![nic(0, 4, 8, 2)]);
    let others = plan(&asked(Multiqueue::Auto), &seen, &NicState::default());
    assert_eq!(
        (channels(&others).len(), standing(&others)),
        (0, QueueStatus::Differs)
    );
    assert!(
        others.notes[0].contains("ethtool -L eth0 combined 2"),
        "{others:?}"
    );
    let mut state = NicState::default();
    let mut grown = machine(4, vec![nic(0, 2, 8, 4)]);
    pass(&asked(Multiqueue::Auto), &mut grown, &mut state);
    grown.cpus.online.truncate(2);
    let ours = plan(&asked(Multiqueue::Auto), &grown, &state);
    assert_eq!(channels(&ours), [("eth0", 4, 2)]);
    assert!(ours.notes.is_empty(), "removing queues has no cost");
}

#[test]
fn manual_number_is_kept_with_keep_manual() {
    let keep = with(&NicSettings {
        multiqueue: Multiqueue::Auto,
        keep_manual: true,
        ..NicSettings::default()
    });
    // Set before the agent first saw it, for example by a .link file.
    let mut seen = machine(4, vec![nic(0, 2, 8, 4)]);
    let mut state = NicState::default();
    let left = pass(&keep, &mut seen, &mut state);
    assert_eq!(
        (standing(&left), seen.nics[0].channels.unwrap().current),
        (QueueStatus::Manual, 2)
    );
    // Outdated because a vCPU was added: the kernel's own number.
    let mut seen = machine(2, vec![nic(0, 2, 8, 2)]);
    let mut state = NicState::default();
    pass(&keep, &mut seen, &mut state);
    seen.cpus.online = vec![0, 1, 2];
    pass(&keep, &mut seen, &mut state);
    assert_eq!(seen.nics[0].channels.unwrap().current, 3);
    // Set by the agent, and a vCPU was added.
    seen.cpus.online = vec![0, 1, 2, 3];
    pass(&keep, &mut seen, &mut state);
    assert_eq!(seen.nics[0].channels.unwrap().current, 4);
    // Set manually, after the agent's change.
    seen.nics[0].channels.as_mut().unwrap().current = 1;
    assert_eq!(standing(&plan(&keep, &seen, &state)), QueueStatus::Manual);
    let raise = asked(Multiqueue::Auto);
    assert_eq!(channels(&plan(&raise, &seen, &state)), [("eth0", 1, 4)]);
}

#[test]
fn off_restores_only_own_changes() {
    let mut seen = machine(4, vec![nic(0, 1, 4, 4), nic(1, 4, 4, 4), nic(2, 1, 4, 4)]);
    let mut state = NicState::default();
    pass(&asked(Multiqueue::Auto), &mut seen, &mut state);
    // The third one was changed since.
    let third = seen.nics[2].channels.as_mut().unwrap();
    third.current = 3;
    let off = asked(Multiqueue::Off);
    assert_eq!(channels(&plan(&off, &seen, &state)), [("eth0", 4, 1)]);
    let after = pass(&off, &mut seen, &mut state);
    assert!(after.steps.is_empty());
    assert_eq!(state.nics["eth0"].ours, None);
    let current: Vec<u32> = seen
        .nics
        .iter()
        .map(|nic| nic.channels.unwrap().current)
        .collect();
    assert_eq!(current, [1, 4, 3]);
}

#[test]
fn xps_is_restored_after_the_number_of_queues() {
    let mut seen = machine(4, vec![nic(0, 2, 2, 4)]);
    for queue in seen.nics[0]
        .queues
        .iter_mut()
        .filter(|one| one.direction == Direction::Transmit)
    {
        queue.cpus = Some(vec![0]);
    }
    let found = plan(&asked(Multiqueue::Auto), &seen, &NicState::default());
    let shown: Vec<String> = found.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "eth0: XPS of tx-0: CPUs 0-1 instead of 0",
            "eth0: XPS of tx-1: CPUs 2-3 instead of 0"
        ]
    );
    let keep = with(&NicSettings {
        keep_manual: true,
        ..NicSettings::default()
    });
    let left = plan(&keep, &seen, &NicState::default());
    assert!(left.steps.is_empty() && left.notes.len() == 1, "{left:?}");
    let off = plan(&asked(Multiqueue::Off), &seen, &NicState::default());
    assert!(off.steps.is_empty());
    // A kernel without XPS.
    seen.nics[0].queues.iter_mut().for_each(|queue| queue.cpus = None);
    let without = plan(&asked(Multiqueue::Auto), &seen, &NicState::default());
    assert!(without.steps.is_empty());
}

#[test]
fn rings_rps_and_schedulers_are_set_on_request() {
    let settings = NicSettings {
        rings: RingSettings {
            rx: Some(4096),
            tx: None,
        },
        rps: Steering::All,
        ..NicSettings::default()
    };
    let virtio = VirtioSettings {
        disk_scheduler: Some("none".to_owned()),
    };
    let disk = |name: &str, kind, schedulers: &[&str]| Disk {
        name: name.to_owned(),
        kind,
        scheduler: Some("mq-deadline".to_owned()),
        schedulers: schedulers.iter().map(|&word| word.to_owned()).collect(),
        ..Disk::default()
    };
    let mut seen = machine(2, vec![nic(0, 1, 2, 2)]);
    seen.disks = vec![
        disk("vda", DiskKind::VirtioBlk, &["none", "mq-deadline"]),
        disk("sda", DiskKind::VirtioScsi, &["mq-deadline"]),
        disk("nvme0n1", DiskKind::Nvme, &["none", "mq-deadline"]),
    ];
    let plan = plan(&check(&settings, &virtio).unwrap(), &seen, &NicState::default());
    let shown: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "eth0: 2 queues instead of 1",
            "eth0: rings of 1024 (rx) and 256 (tx) instead of 256 and 256",
            "eth0: RPS of rx-0: CPUs 0-1 instead of none",
            "eth0: RPS of rx-1: CPUs 0-1 instead of none",
            "vda: scheduler none instead of mq-deadline",
        ]
    );
    let gated: Vec<bool> = plan.steps.iter().map(NicStep::is_multiqueue).collect();
    assert_eq!(gated, [true, false, false, false, false]);
    assert_eq!(
        (plan.refusals.len(), plan.refusals[0].subject.as_str()),
        (1, "sda")
    );
}

#[test]
fn unsupported_or_unreadable_settings_are_refused() {
    let settings = NicSettings {
        rings: RingSettings {
            rx: Some(512),
            tx: None,
        },
        rps: Steering::All,
        ..NicSettings::default()
    };
    let mut bare = nic(0, 2, 2, 2);
    bare.rings = None;
    bare.queues.clear();
    let refused = plan(
        &with(&settings),
        &machine(2, vec![bare.clone()]),
        &NicState::default(),
    );
    assert_eq!(refused.refusals.len(), 2, "{refused:?}");
    bare.channels = None;
    let silent = plan(
        &asked(Multiqueue::Auto),
        &machine(2, vec![bare]),
        &NicState::default(),
    );
    assert_eq!((standing(&silent), silent.steps.len()), (QueueStatus::Unknown, 0));
    let blind = plan(
        &asked(Multiqueue::Auto),
        &machine(0, vec![nic(0, 1, 2, 0)]),
        &NicState::default(),
    );
    assert_eq!(blind.refusals[0].kind, RefusalKind::Unreadable);
    assert!(blind.steps.is_empty());
}

#[test]
fn rings_need_single_queue_reset() {
    let settings = NicSettings {
        rings: RingSettings {
            rx: Some(1024),
            tx: None,
        },
        ..NicSettings::default()
    };
    let mut seen = machine(2, vec![nic(0, 2, 2, 2)]);
    seen.nics[0].device = Some("virtio1".to_owned());
    seen.devices = vec![Device {
        name: "virtio1".to_owned(),
        ..Device::default()
    }];
    let refused = plan(&with(&settings), &seen, &NicState::default());
    assert!(refused.steps.is_empty(), "{refused:?}");
    assert!(refused.refusals[0].message.contains("RING_RESET"), "{refused:?}");
    seen.devices[0].negotiated = Features(1 << transport::RING_RESET);
    let done = plan(&with(&settings), &seen, &NicState::default());
    assert!(matches!(done.steps[..], [NicStep::SetRings { .. }]), "{done:?}");
}

#[test]
fn packets_are_not_steered_to_isolated_cpus() {
    let settings = NicSettings {
        rps: Steering::All,
        ..NicSettings::default()
    };
    let mut seen = machine(4, vec![nic(0, 4, 4, 4)]);
    seen.cpus.isolated = vec![2, 3];
    let plan = plan(&with(&settings), &seen, &NicState::default());
    let steered = plan.steps.iter().filter_map(|step| match step {
        NicStep::SetSteering { to, .. } => Some(to.as_slice()),
        _ => None,
    });
    assert_eq!(steered.collect::<Vec<_>>(), [[0, 1]; 4]);
}

#[test]
fn another_interface_of_the_same_name_inherits_nothing() {
    let mut seen = machine(4, vec![nic(0, 1, 4, 4)]);
    let mut state = NicState::default();
    pass(&asked(Multiqueue::Auto), &mut seen, &mut state);
    seen.nics[0].mac = "02:00:00:00:00:99".to_owned();
    assert!(plan(&asked(Multiqueue::Off), &seen, &state).steps.is_empty());
}

#[test]
fn plan_round_trips_through_json() {
    let mut seen = machine(2, vec![nic(0, 1, 2, 2)]);
    seen.nics[0].queues[1].cpus = Some(vec![1]);
    let settings = NicSettings {
        rps: Steering::All,
        ..NicSettings::default()
    };
    let plan = plan(&with(&settings), &seen, &NicState::default());
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(plan, read);
    assert_eq!(
        seen.nics[0].channels,
        Some(Channels {
            current: 1,
            possible: 2
        })
    );
}
