//! Arbitrary settings, observations and journals, including ones that no guest shows.

use proptest::{collection, option, prelude::*, sample::select as any_of};
use virtfleet_wire::settings::{DiskFilesystem, ProofKind, SeedFrom};

use super::{world::World, *};
use crate::disks::{
    binds::Bind,
    device::{Carried, DevNumber, Device, DeviceId, Use},
    journal::{Approval, Entry, Progress},
    matching::select,
    probe::{Content, Left, Probe},
    seen::{Mapping, MountPoint, Mounted},
    units::MARK,
    wanted::{Key, Owner},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn uuid() -> BoxedStrategy<Option<String>> {
    let known = NAMES
        .into_iter()
        .flat_map(|name| [fs_uuid(name), luks_uuid(name)]);
    let mut all: Vec<Option<String>> = known.map(Some).collect();
    all.extend([Some(FOREIGN.to_owned()), Some(FOREIGN.replace('1', "2")), None]);
    any_of(all).boxed()
}

fn kind() -> BoxedStrategy<&'static str> {
    any_of(vec![
        "ext4",
        "ext4",
        "xfs",
        "swap",
        "crypto_LUKS",
        "crypto_LUKS",
        "gpt",
        "",
        "",
    ])
    .boxed()
}

fn left() -> impl Strategy<Value = Option<Left>> {
    prop_oneof![
        Just(None),
        Just(Some(Left::Tool)),
        Just(Some(Left::Foreign { at: 7 })),
        Just(Some(Left::User { trace: "u".into() })),
    ]
}

fn probe() -> BoxedStrategy<Probe> {
    let has_data = (
        kind(),
        uuid(),
        option::weighted(0.1, Just("zfs")),
        (any::<Option<bool>>(), left()),
        option::of(1_u64..4),
        "d[12]",
    )
        .prop_map(|(kind, uuid, also, (complete, left), size, digest)| {
            // Unknown data has no readable UUID.
            let uuid = uuid.filter(|_| !kind.is_empty());
            Probe::HasData(Content {
                also: also.into_iter().map(str::to_owned).collect(),
                complete,
                left,
                filesystem_bytes: size.map(|size| size * GIB / 2),
                digest,
                ..content(kind, uuid.as_deref())
            })
        });
    prop_oneof![
        2 => any::<bool>().prop_map(|full| Probe::Blank(crate::disks::Blankness {
            proof: if full { ProofKind::Full } else { ProofKind::Sampled },
            regions: 3,
            bytes: 9,
            ..crate::disks::Blankness::default()
        })),
        5 => has_data,
        1 => Just(unknown()),
    ]
    .boxed()
}

fn one_wanted(name: &'static str) -> BoxedStrategy<Wanted> {
    let shape = (
        0_u8..4,
        any::<[bool; 6]>(),
        0_u8..4,
        0_u8..4,
        option::weighted(0.3, any::<bool>()),
    );
    shape
        .prop_map(
            move |(kind, [seeds, grow, full, nested, required, ephemeral], how, rare, owner)| {
                let disk = match kind {
                    0 => swap(name),
                    1 => encrypted(name),
                    _ => wanted(name),
                };
                let disk = if how == 0 {
                    Wanted {
                        serial: None,
                        size: Some(GIB),
                        order: Some(1),
                        ..disk
                    }
                } else {
                    disk
                };
                let mounted = disk.mount_point.is_some();
                if mounted && how == 1 {
                    return shared(Wanted {
                        seed_from: if seeds { SeedFrom::Existing } else { SeedFrom::None },
                        grow,
                        required,
                        ephemeral,
                        ..disk
                    });
                }
                Wanted {
                    mount_point: disk.mount_point.filter(|_| rare != 3).map(|path| {
                        if nested && name != "a" {
                            format!("/mnt/a/{name}")
                        } else {
                            path
                        }
                    }),
                    seed_from: if seeds && mounted {
                        SeedFrom::Existing
                    } else {
                        SeedFrom::None
                    },
                    grow: grow && mounted,
                    proof: if full { ProofKind::Full } else { ProofKind::Sampled },
                    required,
                    ephemeral,
                    shared: rare == 2 && kind > 1 && !ephemeral,
                    owner: owner.filter(|_| mounted).map(|mode| Owner {
                        user: Some("root".into()),
                        group: None,
                        mode: mode.then_some(0o711),
                    }),
                    filesystem: if kind == 3 {
                        DiskFilesystem::Xfs
                    } else {
                        disk.filesystem
                    },
                    ..disk
                }
            },
        )
        .boxed()
}

fn all_wanted() -> BoxedStrategy<Vec<Wanted>> {
    (one_wanted("a"), one_wanted("b"), one_wanted("c"), 1_usize..4)
        .prop_map(|(a, b, c, count)| [a, b, c].into_iter().take(count).collect())
        .boxed()
}

fn one_device(n: u8) -> BoxedStrategy<Device> {
    let used = prop_oneof![
        Just(Use::Swap),
        Just(Use::Holder("dm-9".into())),
        Just(Use::Partition("vda1".into())),
        Just(Use::Mounted("/elsewhere".into())),
        Just(Use::Mounted("/run/virtfleet/seed/a".into())),
    ];
    (
        option::weighted(0.8, any_of(NAMES.to_vec())),
        option::weighted(0.15, used),
        any::<bool>(),
        0_u8..12,
        option::weighted(0.9, uuid()),
    )
        .prop_map(move |(serial, used, large, rare, carried)| {
            let serial = serial.map(|name| format!("s-{name}"));
            let device = device(n, serial.as_deref());
            let size = if large { 2 * GIB } else { GIB };
            Device {
                id: DeviceId {
                    size,
                    diskseq: (rare != 1).then_some(u64::from(n) + 1),
                    ..device.id
                },
                uses: used.into_iter().collect(),
                read_only: rare == 2,
                carries_system: rare == 3,
                came_later: rare == 4 || rare == 5,
                // Not always the UUID of the content.
                carried: match carried {
                    Some(Some(uuid)) => Carried::Uuid(uuid),
                    Some(None) => Carried::Nothing,
                    None => Carried::Unknown,
                },
                ..device
            }
        })
        .boxed()
}

fn devices() -> BoxedStrategy<Vec<Device>> {
    (
        one_device(0),
        one_device(1),
        one_device(2),
        one_device(3),
        1_usize..5,
    )
        .prop_map(|(a, b, c, d, count)| [a, b, c, d].into_iter().take(count).collect())
        .boxed()
}

fn one_entry(name: &'static str) -> BoxedStrategy<Entry> {
    use Progress::{Encrypted, Formatted, Intended, Seeded, Seeding, Used};
    let progress = any_of(vec![
        Intended, Intended, Encrypted, Formatted, Seeding, Seeded, Used,
    ]);
    (progress, one_device(0), 0_u8..4, uuid(), any::<[bool; 4]>())
        .prop_map(
            move |(progress, device, n, other, [boot, ours, luks, position])| {
                let number = DevNumber {
                    minor: u32::from(n) * 16,
                    ..device.id.number
                };
                let mine = entry(name, &device, progress);
                let id = DeviceId {
                    number,
                    diskseq: Some(u64::from(n) + 1),
                    serial: Some(format!("s-{name}")),
                    ..device.id
                };
                Entry {
                    device: DeviceId {
                        serial: id.serial.clone().filter(|_| !position),
                        ..id
                    },
                    boot_id: if boot { BOOT.into() } else { "boot-1".into() },
                    uuid: other.filter(|_| !ours).unwrap_or(mine.uuid.clone()),
                    luks_uuid: luks.then(|| luks_uuid(name)),
                    key: if position {
                        Key::Position { size: GIB, order: 1 }
                    } else {
                        mine.key.clone()
                    },
                    ..mine
                }
            },
        )
        .boxed()
}

fn entries() -> BoxedStrategy<Vec<Entry>> {
    let one = |name| option::weighted(0.7, one_entry(name));
    (one("a"), one("b"), one("c"))
        .prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect())
        .boxed()
}

fn mapping(n: u32) -> BoxedStrategy<Mapping> {
    (uuid(), probe(), any::<bool>(), any::<bool>())
        .prop_map(move |(uuid, probe, grown, large)| {
            let could_be = if large { 2 * GIB } else { GIB } - (16 << 20);
            Mapping {
                number: DevNumber {
                    major: 254,
                    minor: 100 + n,
                },
                luks_uuid: uuid.unwrap_or_default(),
                size: if grown { could_be } else { GIB - (64 << 20) },
                could_be,
                probe,
            }
        })
        .boxed()
}

fn point() -> BoxedStrategy<MountPoint> {
    (any::<bool>(), 0_u64..3, 0_u8..10)
        .prop_map(|(exists, entries, rare)| MountPoint {
            exists: exists || entries > 0,
            unusable: (rare == 0).then(|| "a file".into()),
            entries,
            busy: (rare == 1).then(|| "kubelet (7)".into()).into_iter().collect(),
        })
        .boxed()
}

/// A place of a disk that is mounted already.
fn placed_bind(disk: &Wanted, bind: &Bind, number: DevNumber, read_only: bool) -> Mounted {
    Mounted {
        mount_point: bind.path.clone(),
        number,
        root: format!("/{}", bind.directory),
        filesystem: disk.filesystem.word().into(),
        options: vec![if read_only { "ro" } else { "rw" }.into()],
        filesystem_bytes: None,
        owner: None,
    }
}

/// Entries at the mount points, and directories of the filesystems of disks with places: `old` ones
/// have all directories.
fn points_and_directories(
    seen: &mut Seen,
    wanted: &[Wanted],
    points: [MountPoint; 3],
    old: bool,
) -> BTreeMap<(String, String), u64> {
    let mut directories = BTreeMap::new();
    for (disk, point) in wanted.iter().zip(points) {
        let paths = disk.paths().map(|path| (path.to_owned(), point.clone()));
        seen.mount_points.extend(paths);
        let made = disk.binds.iter().filter(|_| old);
        directories.extend(made.map(|bind| ((disk.name.clone(), bind.directory.clone()), 1)));
    }
    directories
}

#[expect(clippy::too_many_lines, reason = "everything that a guest may show")]
fn world(wanted: Vec<Wanted>) -> BoxedStrategy<(Vec<Wanted>, World)> {
    let shape = (
        devices(),
        [probe(), probe(), probe()],
        entries(),
        [
            option::weighted(0.3, mapping(0)),
            option::weighted(0.3, mapping(1)),
            option::weighted(0.3, mapping(2)),
        ],
        [point(), point(), point()],
        (any::<[bool; 3]>(), 0_u8..12, any::<bool>(), any::<bool>()),
        [probe(), probe(), probe()],
        collection::vec((any_of(NAMES.to_vec()), any::<bool>()), 0..2),
    );
    shape
        .prop_map(
            move |(
                devices,
                probes,
                entries,
                mappings,
                points,
                (placed, rare, systemd, old),
                inner,
                approvals,
            )| {
                let probes = NAMES.into_iter().zip(probes).collect();
                let mut seen = seen(&wanted, devices, probes);
                seen.systemd = systemd;
                for (name, mapping) in NAMES.into_iter().zip(mappings) {
                    seen.mappings
                        .extend(mapping.map(|mapping| (format!("virtfleet-{name}"), mapping)));
                }
                let directories = points_and_directories(&mut seen, &wanted, points, old);
                let selections = select(&wanted, &seen.devices, VM);
                for ((disk, selection), placed) in wanted.iter().zip(selections).zip(placed) {
                    let Ok((_, index)) = selection.found else { continue };
                    if !placed || rare < 5 {
                        continue;
                    }
                    let device = &mut seen.devices[index];
                    let mapped = seen
                        .mappings
                        .get(&format!("virtfleet-{}", disk.name))
                        .filter(|_| disk.encryption.is_some());
                    let number = mapped.map_or(device.id.number, |mapping| mapping.number);
                    let size = mapped.map_or(device.id.size, |mapping| mapping.size);
                    match &disk.mount_point {
                        Some(path) => {
                            device.uses.push(Use::Mounted(path.clone()));
                            // Also for the first of its places.
                            let bound = disk.binds.first().filter(|_| old);
                            seen.mounts
                                .extend(bound.map(|bind| placed_bind(disk, bind, number, rare == 6)));
                            seen.mounts.push(Mounted {
                                mount_point: path.clone(),
                                number,
                                root: "/".into(),
                                filesystem: disk.filesystem.word().into(),
                                options: vec![if rare == 6 { "ro" } else { "rw" }.into()],
                                filesystem_bytes: (rare != 7).then_some(if old { GIB / 2 } else { size }),
                                owner: Some(Owner {
                                    user: Some("0".into()),
                                    group: None,
                                    mode: Some(0o755),
                                }),
                            });
                        }
                        None => drop(seen.swaps.insert(number)),
                    }
                }
                if old {
                    seen.files
                        .insert("/etc/systemd/system/old.mount".into(), format!("{MARK}a\n"));
                }
                if rare == 8 {
                    seen.vm_uuid.clear();
                }
                let mut journal = journal(entries);
                // Some refusals are approved, others with a wrong hash.
                let refused = plan(&wanted, &[], &seen, &journal).disks;
                for (name, right) in approvals {
                    let refusal = refused
                        .iter()
                        .filter(|disk| disk.name == name)
                        .flat_map(|disk| &disk.refusals)
                        .next();
                    let hash = refusal.map_or(String::new(), |refusal| refusal.evidence.clone());
                    journal.approvals.push(Approval {
                        name: name.into(),
                        hash: if right { hash } else { "0".repeat(64) },
                        ..Approval::default()
                    });
                }
                if rare == 9 {
                    journal.broken.push(("b".into(), "not JSON".into()));
                }
                let inner = NAMES.into_iter().map(str::to_owned).zip(inner).collect();
                let world = World {
                    seen,
                    journal,
                    inner,
                    directories,
                };
                (wanted.clone(), world)
            },
        )
        .boxed()
}

pub(super) fn worlds() -> BoxedStrategy<(Vec<Wanted>, World)> {
    all_wanted().prop_flat_map(world).boxed()
}
