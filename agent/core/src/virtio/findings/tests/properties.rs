//! For arbitrary machines: no panic, few findings, unique subjects, and a remedy for each.

use std::collections::BTreeSet;

use proptest::{collection::vec, option, prelude::*};
use virtfleet_wire::settings::{Multiqueue, NicSettings};

use super::super::{MAX_FINDINGS, complete, findings};
use crate::{
    nic::state::{Baseline, NicState, NicStatus, QueueStatus},
    virtio::{
        Bus, Channels, Counters, Cpus, Device, Direction, Disk, DiskKind, DiskQueue, Features, Kind, Machine,
        Nic, NicKind, NicQueue, Queue, Role, Sharing, Vector, Vectors, WriteCache,
    },
};

/// Mostly small numbers, sometimes the largest.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..6u64, 4 => 0..1_000_000u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![12 => 0..6u32, 1 => Just(u32::MAX)]
}

fn name(stem: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![6 => (0..80u32).prop_map(move |number| format!("{stem}{number}")), 1 => any::<String>()]
}

fn vector() -> impl Strategy<Value = Vector> {
    let landed = vec((small(), number()), 0..4);
    (small(), vec(small(), 0..3), landed).prop_map(|(irq, effective, landed)| Vector {
        irq,
        effective,
        landed,
        ..Vector::default()
    })
}

fn queue() -> impl Strategy<Value = Queue> {
    let roles = vec![
        Role::Input,
        Role::Output,
        Role::Request,
        Role::Control,
        Role::Unknown,
    ];
    let role = prop::sample::select(roles);
    (role, small(), option::of(small())).prop_map(|(role, index, irq)| Queue { role, index, irq })
}

fn device() -> impl Strategy<Value = Device> {
    let kinds = vec![
        Kind::NET,
        Kind::BLOCK,
        Kind::SCSI,
        Kind::RNG,
        Kind::CONSOLE,
        Kind(0),
    ];
    let sharing = vec![Sharing::Own, Sharing::Shared, Sharing::Intx, Sharing::Unknown];
    let set = any::<u128>().prop_map(Features);
    let parts = (vec(name("eth"), 0..3), vec(queue(), 0..10), vec(vector(), 0..10));
    (
        (
            name("virtio"),
            prop::sample::select(kinds),
            option::of(name("virtio_")),
        ),
        (option::of(0..256u32), set.clone(), option::of(set)),
        (prop::sample::select(sharing), parts),
    )
        .prop_map(
            |((name, kind, driver), (status, negotiated, offered), (sharing, parts))| Device {
                name,
                kind,
                driver,
                bus: Bus::Pci,
                status,
                negotiated,
                offered,
                sharing,
                parts: parts.0,
                queues: parts.1,
                vectors: parts.2,
                ..Device::default()
            },
        )
}

fn nic() -> impl Strategy<Value = Nic> {
    let kinds = vec![
        NicKind::Virtio,
        NicKind::Function,
        NicKind::Emulated,
        NicKind::Other,
    ];
    let channels =
        option::of((small(), small()).prop_map(|(current, possible)| Channels { current, possible }));
    let directions = prop::sample::select(vec![Direction::Receive, Direction::Transmit]);
    let counters = (option::of(number()), option::of(number()), option::of(number()));
    let queue =
        (directions, small(), counters).prop_map(|(direction, index, (packets, drops, timeouts))| NicQueue {
            direction,
            index,
            counters: Counters {
                packets,
                drops,
                timeouts,
                ..Counters::default()
            },
            ..NicQueue::default()
        });
    (
        (
            name("eth"),
            prop::sample::select(kinds),
            option::of(name("virtio")),
        ),
        (small(), option::of(small()), channels, vec(queue, 0..12)),
    )
        .prop_map(|((name, kind, device), (mtu, dhcp_mtu, channels, queues))| Nic {
            name,
            kind,
            device,
            mtu,
            dhcp_mtu,
            channels,
            queues,
            ..Nic::default()
        })
}

fn disk() -> impl Strategy<Value = Disk> {
    let kinds = vec![
        DiskKind::VirtioBlk,
        DiskKind::VirtioScsi,
        DiskKind::Nvme,
        DiskKind::Emulated,
    ];
    let cache = option::of(prop::sample::select(vec![WriteCache::Back, WriteCache::Through]));
    let bytes = prop_oneof![number(), Just(1 << 40)];
    (
        (
            name("vd"),
            prop::sample::select(kinds),
            option::of(name("virtio")),
        ),
        (bytes, 0..9usize, cache, any::<bool>()),
    )
        .prop_map(
            |((name, kind, device), (bytes, queues, write_cache, read_only))| Disk {
                name,
                kind,
                device,
                bytes,
                queues: vec![DiskQueue::default(); queues],
                write_cache,
                read_only,
                ..Disk::default()
            },
        )
}

fn machine() -> impl Strategy<Value = Machine> {
    let cpus = || vec(small(), 0..6);
    let vectors = (vec((name("0000:"), small()), 0..3), small(), option::of(small()));
    (
        (cpus(), cpus(), cpus()),
        vec(device(), 0..40),
        vec(nic(), 0..70),
        vec(disk(), 0..30),
        vectors,
    )
        .prop_map(|(cpus, devices, nics, disks, vectors)| Machine {
            cpus: Cpus {
                online: cpus.0,
                present: cpus.1,
                possible: cpus.2,
                ..Cpus::default()
            },
            devices,
            nics,
            disks,
            vectors: Vectors {
                by_device: vectors.0,
                used: vectors.1,
                limit: vectors.2,
            },
            ..Machine::default()
        })
}

fn state() -> impl Strategy<Value = NicState> {
    let standing = (
        prop::sample::select(QueueStatus::ALL.to_vec()),
        (small(), small(), option::of(small())),
        vec(number(), 0..6),
    )
        .prop_map(|(standing, (first, first_cpus, ours), rx)| NicStatus {
            standing,
            first,
            first_cpus,
            ours,
            baseline: Baseline { tx: rx.clone(), rx },
            ..NicStatus::default()
        });
    let nics = prop::collection::btree_map(name("eth"), standing, 0..70);
    let texts = vec(any::<String>(), 0..100);
    (nics, texts, option::of(any::<String>())).prop_map(|(nics, refusals, error)| NicState {
        nics,
        error,
        refusals,
        ..NicState::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn findings_are_bounded_unique_and_have_remedies(
        mut machine in machine(),
        state in option::of(state()),
        exclude in any::<String>(),
        off in any::<bool>(),
    ) {
        let settings = NicSettings {
            exclude,
            multiqueue: if off { Multiqueue::Off } else { Multiqueue::Auto },
            ..NicSettings::default()
        };
        if let Some(state) = &state {
            complete(&mut machine, state);
        }
        let all = findings(&machine, state.as_ref(), &settings);
        prop_assert!(all.len() <= MAX_FINDINGS, "{}", all.len());
        prop_assert!(all.is_sorted_by_key(|one| std::cmp::Reverse(one.severity)));
        let ids: BTreeSet<&str> = all.iter().map(|one| one.id.as_str()).collect();
        prop_assert!(2 * ids.len() <= MAX_FINDINGS + 2, "{ids:?}");
        for one in &all {
            prop_assert!(one.id.starts_with("virtio-"), "{one:?}");
            prop_assert!(!one.message.is_empty() && !one.remedy.is_empty(), "{one:?}");
            prop_assert!(one.message.chars().count() <= 601, "{one:?}");
        }
        let queues = ["virtio-nic-single-queue", "virtio-nic-fewer-queues", "virtio-nic-more-queues"];
        prop_assert!(!(off && queues.iter().any(|id| ids.contains(id))), "{ids:?}");
        prop_assert_eq!(&all, &findings(&machine, state.as_ref(), &settings));
    }
}
