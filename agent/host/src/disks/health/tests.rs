use std::{
    os::unix::fs::{MetadataExt as _, symlink},
    sync::Mutex,
    sync::mpsc::{Receiver, channel},
};

use super::*;

/// A filesystem of 1,000 bytes with 600 used, or one that hangs until the channel's other end is
/// dropped.
struct Fake(Mutex<Option<Receiver<()>>>);

impl Statfs for Fake {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        if path.ends_with("hung") {
            let gate = self.0.lock().unwrap().take();
            gate.map(|gate| gate.recv());
        }
        if path.ends_with("closed") {
            return Err(Errno::EACCES);
        }
        if path.ends_with("shut") {
            return Err(Errno::EIO);
        }
        Ok(FsSpace {
            size: 1000,
            free: 400,
            available: 350,
            files: 10,
            files_free: 4,
        })
    }
}

/// The result of the write probe for each mount point of the test.
struct FakeWrites;

impl Statfs for FakeWrites {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let name = path.file_name().unwrap().to_str().unwrap();
        match name {
            "aborted" => Err(Errno::EIO),
            "emergency" => Err(Errno::EROFS),
            "private" => Err(Errno::EACCES),
            "continues" => Ok(FsSpace::default()),
            other => panic!("a write probe of {other}, which has no recorded error"),
        }
    }
}

struct Guest {
    folder: tempfile::TempDir,
    roots: Roots,
}

impl Guest {
    /// Disks with one mount each: `(device, block, number, mount point, filesystem, superblock
    /// options)`.
    fn new(mounts: &[(&str, &str, &str, &str, &str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let roots = Roots {
            rootfs: at("root"),
            procfs: at("proc"),
            sysfs: at("sys"),
            ..Roots::default()
        };
        let guest = Self { folder, roots };
        let mut text = String::new();
        for (id, (device, block, number, place, kind, options)) in mounts.iter().enumerate() {
            fs::create_dir_all(guest.at("root").join(place)).unwrap();
            guest.write(&format!("sys/block/{device}/holders/{block}"), "");
            fs::create_dir_all(guest.at("sys/dev/block")).unwrap();
            symlink(
                format!("../../block/{block}"),
                guest.at(&format!("sys/dev/block/{number}")),
            )
            .unwrap();
            let root = guest.at("root");
            let place = root.join(place);
            let line = format!(
                "{id} 1 {number} / {} rw - {kind} /dev/{block} {options}\n",
                place.display()
            );
            text.push_str(&line);
        }
        guest.write("proc/1/mountinfo", &text);
        guest
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn inspect(&self, asked: &[(&str, &str)], gate: Option<Receiver<()>>) -> Vec<Option<DiskSample>> {
        let asked: Vec<Asked<'_>> = asked
            .iter()
            .map(|(device, place)| Asked {
                device,
                mount_point: Some(place),
            })
            .collect();
        let statfs = Arc::new(Fake(Mutex::new(gate)));
        let mut health = DiskHealth::with_write_probe(statfs, Arc::new(FakeWrites), Duration::from_secs(3));
        health.inspect(&self.roots, &asked).unwrap()
    }
}

#[test]
fn ext4_on_luks_reports_errors_of_its_superblock_and_its_disk() {
    let guest = Guest::new(&[("sda", "dm-0", "254:0", "data", "ext4", "ro")]);
    for (file, text) in [
        ("fs/ext4/dm-0/errors_count", "3\n"),
        ("fs/ext4/dm-0/warning_count", "1\n"),
        ("fs/ext4/dm-0/last_error_time", "1700000000\n"),
        ("fs/ext4/dm-0/last_error_func", "ext4_lookup\n"),
        ("fs/ext4/dm-0/lifetime_write_kbytes", "2\n"),
        ("block/sda/device/ioerr_cnt", "0x1f\n"),
        ("block/sda/device/iotmo_cnt", "0x0\n"),
    ] {
        guest.write(&format!("sys/{file}"), text);
    }
    let health = guest.inspect(&[("sda", "/data")], None).remove(0).unwrap();
    let expected = DiskSample {
        block: "dm-0".into(),
        answer: StatfsResult::Yes,
        read_only: Some(true),
        write_error: None,
        space: Some(Usage {
            used: 600,
            available: 350,
        }),
        inodes: Some(Usage {
            used: 6,
            available: 4,
        }),
        errors: [("error".to_owned(), 3), ("warning".to_owned(), 1)].into(),
        last_error_s: Some(1_700_000_000),
        last_error_in: Some("ext4_lookup".into()),
        written_bytes: Some(2048),
        io_errors: Some(31),
        io_timeouts: Some(0),
    };
    assert_eq!(health, expected);
}

#[test]
fn btrfs_errors_are_summed_over_devices() {
    let guest = Guest::new(&[("vdb", "vdb", "253:16", "data", "btrfs", "rw")]);
    guest.write("sys/fs/btrfs/features/none", "");
    guest.write("sys/fs/btrfs/other/devices/vdc", "");
    guest.write("sys/fs/btrfs/uuid/devices/vdb", "");
    let stats = "write_errs 1\nread_errs 2\nflush_errs 0\ncorruption_errs 0\ngeneration_errs 0\n";
    guest.write("sys/fs/btrfs/uuid/devinfo/1/error_stats", stats);
    guest.write("sys/fs/btrfs/uuid/devinfo/2/error_stats", stats);
    let health = guest.inspect(&[("vdb", "/data")], None).remove(0).unwrap();
    assert_eq!(health.error_count(), 6);
    assert_eq!(
        (health.errors["write"], health.errors["read"], health.errors.len()),
        (2, 4, 5)
    );
}

#[test]
fn a_hanging_or_failing_filesystem_affects_only_its_own_result() {
    let guest = Guest::new(&[
        ("vdb", "vdb", "253:16", "hung", "xfs", "rw"),
        ("vdc", "vdc", "253:32", "shut", "xfs", "rw"),
        ("vdd", "vdd", "253:48", "closed", "xfs", "rw"),
        ("vde", "vde", "253:64", "well", "xfs", "rw"),
        ("vdf", "vdf", "253:80", "others", "xfs", "rw"),
    ]);
    let (open, gate) = channel();
    let asked = [
        ("vdb", "/hung"),
        ("vdc", "/shut"),
        ("vdd", "/closed"),
        ("vde", "/well"),
        ("vdg", "/others"),
        ("vdh", "/nowhere"),
    ];
    let answers: Vec<Option<StatfsResult>> = guest
        .inspect(&asked, Some(gate))
        .into_iter()
        .map(|health| health.map(|health| health.answer))
        .collect();
    assert_eq!(
        answers,
        [
            Some(StatfsResult::Silent),
            Some(StatfsResult::Error("I/O error".into())),
            Some(StatfsResult::Unknown),
            Some(StatfsResult::Yes),
            // A different disk is mounted there; nothing is mounted.
            None,
            None,
        ]
    );
    drop(open);
}

#[test]
fn in_another_mount_namespace_only_the_superblock_is_checked_for_read_only() {
    let guest = Guest::new(&[("vdb", "vdb", "253:16", "data", "xfs", "rw")]);
    let text = fs::read_to_string(guest.at("proc/1/mountinfo")).unwrap();
    let hardened = text.replace(" rw - ", " ro - ");
    let read_only = || {
        guest
            .inspect(&[("vdb", "/data")], None)
            .remove(0)
            .unwrap()
            .read_only
    };
    guest.write("proc/1/mountinfo", &hardened);
    assert_eq!(read_only(), Some(true));
    fs::remove_file(guest.at("proc/1/mountinfo")).unwrap();
    guest.write("proc/self/mountinfo", &hardened);
    assert_eq!(read_only(), Some(false));
    guest.write(
        "proc/self/mountinfo",
        &hardened.replace("/dev/vdb rw", "/dev/vdb rw,emergency_ro"),
    );
    assert_eq!(read_only(), Some(true));
}

#[test]
fn an_ext4_with_errors_is_probed_for_writes() {
    let mounts = [
        ("vdb", "253:16", "aborted", "rw,errors=remount-ro", "1"),
        ("vdc", "253:32", "emergency", "rw", "2"),
        ("vdd", "253:48", "private", "rw", "1"),
        ("vde", "253:64", "continues", "rw,errors=continue", "9"),
        ("vdf", "253:80", "well", "rw", "0"),
        ("vdg", "253:96", "known", "rw,emergency_ro", "1"),
    ];
    let lines =
        mounts.map(|(device, number, place, options, _)| (device, device, number, place, "ext4", options));
    let guest = Guest::new(&lines);
    for (device, .., errors) in mounts {
        guest.write(&format!("sys/fs/ext4/{device}/errors_count"), errors);
    }
    let paths = mounts.map(|(device, _, place, ..)| (device, format!("/{place}")));
    let asked: Vec<_> = paths
        .iter()
        .map(|(device, path)| (*device, path.as_str()))
        .collect();
    let seen: Vec<_> = guest
        .inspect(&asked, None)
        .into_iter()
        .map(|sample| sample.map(|sample| (sample.read_only, sample.write_error)))
        .collect();
    assert_eq!(
        seen,
        [
            Some((Some(true), Some("I/O error".into()))),
            Some((Some(true), Some("Read-only file system".into()))),
            Some((Some(false), None)),
            Some((Some(false), None)),
            Some((Some(false), None)),
            Some((Some(true), None)),
        ]
    );
}

#[test]
fn a_working_filesystem_takes_writes_and_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let changed = || fs::metadata(folder.path()).unwrap().ctime_nsec();
    let before = changed();
    assert_eq!(WriteProbe.statfs(folder.path()), Ok(FsSpace::default()));
    assert_eq!(changed(), before);
    let missing = folder.path().join("missing");
    assert_eq!(WriteProbe.statfs(&missing), Err(Errno::ENOENT));
}
