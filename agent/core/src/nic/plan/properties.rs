//! Property tests: plans are applied to generated machines.

use proptest::prelude::*;
use virtfleet_wire::settings::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};

use super::{fixtures::*, *};
use crate::{
    nic::check,
    virtio::{Direction, Disk, DiskKind},
};

fn settings() -> impl Strategy<Value = (NicSettings, VirtioSettings)> {
    let mode = prop_oneof![
        Just(Multiqueue::Off),
        Just(Multiqueue::ReportOnly),
        Just(Multiqueue::Auto)
    ];
    let steering = prop_oneof![Just(Steering::Keep), Just(Steering::Off), Just(Steering::All)];
    let ring = || proptest::option::of((6u32..16).prop_map(|power| 1 << power));
    let scheduler = proptest::option::of(prop_oneof![Just("none".to_owned()), Just("bfq".to_owned())]);
    let exclude = prop_oneof![
        Just(String::new()),
        Just("^eth1$".to_owned()),
        Just("[02]".to_owned())
    ];
    (mode, any::<bool>(), exclude, ring(), ring(), steering, scheduler).prop_map(
        |(multiqueue, keep_manual, exclude, rx, tx, rps, disk_scheduler)| {
            let nic = NicSettings {
                multiqueue,
                keep_manual,
                exclude,
                rings: RingSettings { rx, tx },
                rps,
                ..NicSettings::default()
            };
            (nic, VirtioSettings { disk_scheduler })
        },
    )
}

fn an_interface(number: u32) -> impl Strategy<Value = Nic> {
    let steering = proptest::option::of(proptest::collection::vec(0u32..80, 0..4));
    let driver = prop_oneof![4 => Just("virtio_net"), 1 => Just("e1000e")];
    (
        1u32..=64,
        1u32..=64,
        1u32..80,
        driver,
        any::<[bool; 3]>(),
        steering,
    )
        .prop_map(
            move |(current, possible, cpus, driver, [no_channels, no_rings, no_queues], steered)| {
                let mut nic = nic(number, current.min(possible), possible, cpus);
                nic.driver = driver.to_owned();
                if no_channels && number == 1 {
                    nic.channels = None;
                }
                if no_rings {
                    nic.rings = None;
                }
                if no_queues {
                    nic.queues.iter_mut().for_each(|queue| queue.cpus = None);
                } else if let Some(steered) = steered {
                    nic.queues
                        .iter_mut()
                        .filter(|queue| queue.index == 0 && queue.cpus.is_some())
                        .for_each(|queue| queue.cpus = Some(steered.clone()));
                }
                nic
            },
        )
}

fn a_machine() -> impl Strategy<Value = Machine> {
    let online = proptest::collection::btree_set(0u32..80, 0..80);
    let kind = prop_oneof![
        Just(DiskKind::VirtioBlk),
        Just(DiskKind::VirtioScsi),
        Just(DiskKind::Nvme)
    ];
    let disks = proptest::collection::vec((kind, any::<bool>()), 0..3);
    (
        online,
        an_interface(0),
        an_interface(1),
        an_interface(2),
        0usize..4,
        disks,
    )
        .prop_map(|(online, first, second, third, count, disks)| {
            let mut seen = machine(0, vec![first, second, third]);
            seen.nics.truncate(count);
            seen.cpus.online = online.into_iter().collect();
            seen.disks = (0..)
                .zip(disks)
                .map(|(number, (kind, none))| Disk {
                    name: format!("vd{number}"),
                    kind,
                    scheduler: Some("mq-deadline".to_owned()),
                    schedulers: vec![
                        if none { "none" } else { "kyber" }.to_owned(),
                        "mq-deadline".to_owned(),
                    ],
                    ..Disk::default()
                })
                .collect();
            seen
        })
}

/// Whether the interface must stay unchanged.
fn untouchable(settings: &NicSettings, nic: &Nic) -> bool {
    let excluded = match settings.exclude.as_str() {
        "" => false,
        "^eth1$" => nic.name == "eth1",
        _ => nic.name == "eth0" || nic.name == "eth2",
    };
    nic.driver != "virtio_net" || excluded
}

proptest! {
    #[test]
    fn plan_is_empty_after_it_was_applied((settings, virtio) in settings(), mut seen in a_machine()) {
        let asked = check(&settings, &virtio).unwrap();
        let before = seen.clone();
        let mut state = NicState::default();
        // `apply_to` limits numbers to between 1 and the maximum.
        let after = pass(&asked, &mut seen, &mut state);
        prop_assert!(after.steps.is_empty(), "{:?}", after.steps);
        for (was, is) in before.nics.iter().zip(&seen.nics) {
            if untouchable(&settings, was) {
                prop_assert_eq!(was, is);
            }
            if settings.multiqueue == Multiqueue::Off {
                prop_assert_eq!(was.channels, is.channels, "the agent has changed nothing yet");
            }
            if let (Some(was), Some(is)) = (was.channels, is.channels) {
                prop_assert!(is.current >= was.current, "queues that the agent did not add are never removed");
            }
        }
    }

    #[test]
    fn off_after_auto_restores_despite_cpu_changes(
        mut seen in a_machine(),
        rounds in proptest::collection::vec(1u32..80, 0..4),
    ) {
        let before: Vec<_> = seen.nics.iter().map(|nic| nic.channels).collect();
        let mut state = NicState::default();
        pass(&asked(Multiqueue::Auto), &mut seen, &mut state);
        for cpus in rounds {
            seen.cpus.online = (0..cpus).collect();
            let after = pass(&asked(Multiqueue::Auto), &mut seen, &mut state);
            prop_assert!(after.steps.is_empty(), "{:?}", after.steps);
        }
        if !seen.cpus.online.is_empty() {
            pass(&asked(Multiqueue::Off), &mut seen, &mut state);
        }
        let after: Vec<_> = seen.nics.iter().map(|nic| nic.channels).collect();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn transmit_queues_are_even_afterwards(mut seen in a_machine()) {
        let mut state = NicState::default();
        pass(&asked(Multiqueue::Auto), &mut seen, &mut state);
        for (nic, stands) in seen.nics.iter().zip(state.nics.values()) {
            if stands.standing == QueueStatus::Spread {
                let maps = nic.queues.iter().filter(|queue| queue.direction == Direction::Transmit);
                let maps: Option<Vec<_>> = maps.map(|queue| queue.cpus.clone()).collect();
                if let Some(maps) = maps.filter(|maps| maps.len() > 1) {
                    prop_assert!(crate::nic::spread::is_even(&seen.cpus.online, &maps));
                }
            }
        }
    }
}
