//! Clones of the OS image, declared with `content: image-clone`: the agent erases only an unchanged
//! clone, and resumes an interrupted erasure only if nothing else was written in between.
//!
//! The kernel of a container may have no partition scan, so everything here goes by offsets.

use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use virtfleet_agent_core::disks::regions;
use virtfleet_tests::{
    disks::{LoopDisk, Order, Outcome, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskContent, DiskFilesystem, DiskMatch, DiskSettings, ProofKind};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
/// Bytes of the image, and of a clone that the platform made larger.
const IMAGE: u64 = 64 * MIB;
const LARGER: u64 = 80 * MIB;
/// First byte and bytes of the ext4 partition, as [`BUILD`] makes it.
const ROOT_START: u64 = 20 * MIB;
/// Set (`make disk-soak`): kill at every point. Else at these.
const ALL_KILLS: &str = "VIRTFLEET_DISK_KILLS";
const KILLS: [&str; 6] = [
    "recorded",
    "erasing 1",
    "erasing 4",
    "erasing 8",
    "erased",
    "forgotten",
];
const PROGRAMS: [&str; 8] = [
    "sfdisk",
    "sgdisk",
    "mke2fs",
    "mkfs.vfat",
    "mkfs.ext4",
    "debugfs",
    "mount",
    "cmp",
];

/// Makes `/srv/elsewhere`, which another VM has mounted before this VM was there, and `/srv/image`:
/// a BIOS boot partition, an EFI system partition with a file, and an ext4 that was mounted and
/// written while the image was built.
const BUILD: &str = r"
cd /srv; umask 022
truncate -s 64M image
sfdisk -q image <<END
label: gpt
start=2048, size=4096, type=21686148-6449-6E6F-744E-656564454649, name=bios
start=8192, size=30720, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
start=40960, size=81920, type=L, name=root
END
dd if=/dev/urandom of=image bs=440 count=1 conv=notrunc status=none
dd if=/dev/urandom of=image bs=1M seek=1 count=1 conv=notrunc status=none
truncate -s 15M esp; mkfs.vfat esp >/dev/null; dd if=esp of=image bs=1M seek=4 conv=notrunc status=none
mkdir tree; for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=tree/$i bs=64k count=9 status=none; done
mke2fs -q -t ext4 -d tree -L root rootfs 40M
mkdir -p mnt; mount -o loop rootfs mnt; sleep 1.1; echo built >mnt/built; rm mnt/8; umount mnt
dd if=rootfs of=image bs=1M seek=20 conv=notrunc status=none; rm rootfs esp
sleep 1.1; cp image elsewhere; mount -o loop,offset=20971520 elsewhere mnt; umount mnt
";

/// Boots the root disk for the first time: its partition grows, it is mounted, and the files of a
/// first boot appear.
const FIRST_BOOT: &str = r"
sgdisk -e $D >/dev/null; echo ', +' | sfdisk -q --no-reread -N 3 $D >/dev/null 2>&1
mount -o loop,offset=20971520 $D /srv/mnt; echo one >/srv/mnt/log; rm /srv/mnt/7; umount /srv/mnt
mount -o loop,offset=20971520 $D /srv/mnt; echo two >>/srv/mnt/log; umount /srv/mnt
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
mkdir -p /var/log/journal/0123456789abcdef0123456789abcdef; sync
";

/// A root disk, and clones of its image.
struct Scene {
    // In the order of their drop.
    root: LoopDisk,
    stage: Stage,
}

impl Scene {
    fn new() -> Result<Self> {
        let stage = Stage::new()?;
        stage.sh(&format!("set -e; {BUILD}"))?;
        let root = LoopDisk::new(stage.folder(), "root", LARGER)?;
        let scene = Self { root, stage };
        scene.copy(&scene.root)?;
        // Times in superblocks are whole seconds, and the clones' must be before the first boot.
        scene.on(&scene.root, &format!("sleep 1.1; {FIRST_BOOT}"))?;
        Ok(scene)
    }

    fn copy(&self, disk: &LoopDisk) -> Result<()> {
        self.on(
            disk,
            "dd if=/srv/image of=$D bs=1M conv=notrunc,sparse,fsync status=none",
        )
    }

    /// A script about a disk, whose node is `$D`.
    fn on(&self, disk: &LoopDisk, script: &str) -> Result<()> {
        self.stage
            .sh(&format!("set -e; D={}; {script}", disk.node))
            .map(drop)
    }

    /// A clone of the image.
    fn clone(&self, name: &str, bytes: u64) -> Result<LoopDisk> {
        let disk = LoopDisk::new(self.stage.folder(), name, bytes)?;
        self.copy(&disk)?;
        self.stage.serial(&disk, &format!("serial-{name}"))?;
        Ok(disk)
    }

    fn order(&self, disks: &[DiskSettings], order: Order) -> Result<Outcome> {
        let number = self.root.node.trim_start_matches("/dev/loop").parse()?;
        let outcome = self.stage.order(&Order {
            disks: disks.to_vec(),
            root_loop: Some(number),
            ..order
        })?;
        ensure!(outcome.killed || outcome.code == 0, "{}", outcome.text);
        Ok(outcome)
    }

    fn plan(&self, disks: &[DiskSettings]) -> Result<Outcome> {
        self.order(
            disks,
            Order {
                plan: true,
                ..Order::default()
            },
        )
    }

    /// A pass that must leave the disk as it is.
    fn refuses(&self, disk: &LoopDisk, name: &str, words: &[&str]) -> Result<()> {
        let before = content(disk)?;
        let outcome = self.order(&[declared(name)], Order::default())?;
        let refusals = &outcome.state["disks"][0]["refusals"];
        ensure!(
            outcome.refusals(name) == ["not-a-clone"] && refusals[0]["evidence"] == "",
            "{name}: {refusals}"
        );
        let text = refusals.to_string();
        for word in words {
            ensure!(text.contains(word), "{name}: {word:?} is missing in {text}");
        }
        ensure!(content(disk)? == before, "{name}: the refused disk was changed");
        Ok(())
    }

    /// A pass after which the disk is formatted and mounted.
    fn formats(&self, name: &str) -> Result<()> {
        let outcome = self.order(&[declared(name)], Order::default())?;
        ensure!(outcome.standing(name) == "ready", "{name}: {}", outcome.state);
        self.stage.sh(&format!("umount /srv/{name}")).map(drop)
    }
}

fn declared(name: &str) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem: DiskFilesystem::Ext4,
        mount_point: Some(format!("/srv/{name}")),
        content: DiskContent::ImageClone,
        ..DiskSettings::named(name)
    }
}

/// All bytes of the file behind a disk.
fn content(disk: &LoopDisk) -> Result<Vec<u8>> {
    std::fs::read(PathBuf::from(&disk.file)).context("the disk's file")
}

/// Changes one byte through the device.
fn flip(disk: &LoopDisk, offset: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(&disk.node)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    byte[0] ^= 0x55;
    file.write_all_at(&byte, offset)?;
    file.sync_all().context("write out")
}

#[test]
fn tier2_only_an_untouched_clone_is_erased() -> Result<()> {
    let name = "tier2_only_an_untouched_clone_is_erased";
    if skip::need(TIER, name, needs(&PROGRAMS))?.is_none() {
        return Ok(());
    }
    let scene = Scene::new()?;
    // Without the opt-in it is what it was.
    let _plain = scene.clone("plain", IMAGE)?;
    let blank = DiskSettings {
        content: DiskContent::Blank,
        ..declared("plain")
    };
    let refused = scene.plan(&[blank])?;
    ensure!(refused.refusals("plain") == ["foreign-data"], "{}", refused.plan);
    // As it is, and on a volume that is larger than the image.
    for (name, bytes) in [("same", IMAGE), ("larger", LARGER)] {
        let disk = scene.clone(name, bytes)?;
        let plan = scene.plan(&[declared(name)])?.plan.to_string();
        for word in [
            "eraseClone",
            "inode",
            "every byte is as on the root disk",
            "behind the image",
        ] {
            ensure!(plan.contains(word), "{word:?} is missing in {plan}");
        }
        let steps: Vec<String> = scene.plan(&[declared(name)])?.plan["disks"][0]["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|step| step["step"].to_string())
            .collect();
        ensure!(steps[..2] == ["\"eraseClone\"", "\"format\""], "{steps:?}");
        scene.formats(name)?;
        let audit = scene.stage.audit(name)?;
        ensure!(
            audit
                == [
                    "about-to erase-clone",
                    "done erase-clone",
                    "about-to format",
                    "done format"
                ],
            "{audit:?}"
        );
        scene.stage.no_serial(&disk)?;
    }
    Ok(())
}

#[test]
fn tier2_what_is_behind_the_image_is_read_for_as_long_as_there_is_time() -> Result<()> {
    let name = "tier2_what_is_behind_the_image_is_read_for_as_long_as_there_is_time";
    if skip::need(TIER, name, needs(&PROGRAMS))?.is_none() {
        return Ok(());
    }
    let scene = Scene::new()?;
    let bytes = 384 * MIB;
    let disk = scene.clone("behind", bytes)?;
    // Reading it takes longer than the usual time on a busy machine.
    let timed = DiskSettings {
        proof_seconds: Some(180),
        ..declared("behind")
    };
    let whole = scene.plan(std::slice::from_ref(&timed))?.plan.to_string();
    ensure!(
        whole.contains("behind the image were read and are zero"),
        "{whole}"
    );
    // A byte that the samples do not meet.
    let always = regions::regions(bytes, ProofKind::Sampled);
    let place = (300 * MIB..bytes).find(|place| !regions::holds(&always, *place));
    let place = place.context("the samples leave nothing out")?;
    flip(&disk, place)?;
    let sampled = DiskSettings {
        proof: ProofKind::Sampled,
        ..declared("behind")
    };
    let missed = scene.plan(&[sampled])?.plan.to_string();
    ensure!(
        missed.contains("eraseClone") && missed.contains("the largest run that could have been missed"),
        "{missed}"
    );
    let refused = scene.plan(std::slice::from_ref(&timed))?;
    ensure!(refused.refusals("behind") == ["not-a-clone"], "{}", refused.plan);
    let text = refused.plan.to_string();
    ensure!(text.contains(&format!("byte {place} is 0x55")), "{text}");
    // Read whole, a clone above `approveAbove` is erased; else it needs the word of the platform.
    flip(&disk, place)?;
    let large = |proof, new| DiskSettings {
        proof,
        proof_seconds: (proof == ProofKind::Timed).then_some(180),
        new,
        approve_above: Some("256Mi".to_owned()),
        ..declared("behind")
    };
    let partly = scene.plan(&[large(ProofKind::Sampled, false)])?;
    ensure!(partly.refusals("behind") == ["not-a-clone"], "{}", partly.plan);
    for (proof, new) in [(ProofKind::Timed, false), (ProofKind::Sampled, true)] {
        let plan = scene.plan(&[large(proof, new)])?.plan.to_string();
        ensure!(plan.contains("eraseClone"), "{plan}");
    }
    Ok(())
}

#[test]
fn tier2_each_deviation_of_a_clone_is_refused() -> Result<()> {
    let name = "tier2_each_deviation_of_a_clone_is_refused";
    if skip::need(TIER, name, needs(&PROGRAMS))?.is_none() {
        return Ok(());
    }
    let scene = Scene::new()?;
    let at = |offset: u64| offset.to_string();
    let mounted = "mount -o loop,offset=20971520 $D /srv/mnt; umount /srv/mnt; sync";
    // As another VM has mounted it, after the image was built and before this VM's first boot.
    let elsewhere = "dd if=/srv/elsewhere of=$D bs=1M conv=notrunc,fsync status=none";
    for (name, script, words) in [
        (
            "mounted",
            mounted,
            &["last mount", "after this VM's first boot"][..],
        ),
        (
            "elsewhere",
            elsewhere,
            &["may have been mounted after it was cloned"],
        ),
        ("guid", "sgdisk -u 2:R $D >/dev/null", &["partition 2: GUID"]),
        ("disk-guid", "sgdisk -U R $D >/dev/null", &["disk GUID"]),
        ("type", "sgdisk -t 2:8300 $D >/dev/null", &["partition 2: type"]),
        ("label", "sgdisk -c 3:data $D >/dev/null", &["partition 3: name"]),
        (
            "more",
            "sgdisk -n 9:38912:39000 $D >/dev/null",
            &["partition 9", "missing"],
        ),
        (
            "uuid",
            "debugfs -w -R 'ssv uuid random' \"$D?offset=20971520\" 2>/dev/null",
            &["partition 3 (ext4): UUID"],
        ),
    ] {
        let disk = scene.clone(name, IMAGE)?;
        scene.on(&disk, script)?;
        scene.refuses(&disk, name, words)?;
        scene.stage.no_serial(&disk)?;
    }
    let superblock = ROOT_START + 1024;
    for (name, offset, word) in [
        ("code", 100, "boot code"),
        ("table", 512 + 60, "checksum of its header"),
        ("entries", 1024 + 130, "checksum of its entries"),
        ("backup", IMAGE - 512 + 60, "backup partition table"),
        ("gap", 900 << 10, "outside the partitions"),
        ("between", 19 * MIB + 512, "outside the partitions"),
        ("after", 61 * MIB, "outside the partitions"),
        ("bios", MIB + 77, "partition 1: byte"),
        ("esp", 5 * MIB, "partition 2: byte"),
        ("count", superblock + 0x34, "checksum of its superblock"),
        ("behind", LARGER - MIB, "behind the image"),
    ] {
        let disk = scene.clone(name, LARGER)?;
        flip(&disk, offset)?;
        let place = if ["code", "table", "entries", "backup", "count"].contains(&name) {
            word.to_owned()
        } else {
            at(offset)
        };
        scene.refuses(&disk, name, &[word, &place])?;
        scene.stage.no_serial(&disk)?;
    }
    Ok(())
}

#[test]
fn tier2_an_erasure_that_was_cut_short_goes_on_or_refuses() -> Result<()> {
    let name = "tier2_an_erasure_that_was_cut_short_goes_on_or_refuses";
    if skip::need(TIER, name, needs(&PROGRAMS))?.is_none() {
        return Ok(());
    }
    let scene = Scene::new()?;
    let whole = scene.clone("whole", LARGER)?;
    let points = scene.order(&[declared("whole")], Order::default())?.points;
    scene.stage.sh("umount /srv/whole")?;
    scene.stage.no_serial(&whole)?;
    let begin = points
        .iter()
        .position(|point| point.ends_with("before erase-clone"));
    let end = points.iter().position(|point| point.ends_with("after format"));
    let (begin, end) = begin.zip(end).context("the points of an erasure")?;
    ensure!(
        points[begin..end]
            .iter()
            .any(|point| point.ends_with("erasing 5")),
        "{points:?}"
    );
    let chosen = |at: &usize| {
        std::env::var_os(ALL_KILLS).is_some() || KILLS.iter().any(|end| points[*at].ends_with(end))
    };
    for at in (begin..=end).filter(chosen) {
        let name = format!("kill-{at}");
        let disk = scene.clone(&name, LARGER)?;
        let killed = scene.order(
            &[declared(&name)],
            Order {
                kill_at: Some(at + 1),
                ..Order::default()
            },
        )?;
        ensure!(killed.killed, "{}: {:?}", points[at], killed.points);
        scene.formats(&name).with_context(|| points[at].clone())?;
        let audit = scene.stage.audit(&name)?;
        ensure!(
            audit.iter().filter(|line| *line == "done format").count() <= 1,
            "{audit:?}"
        );
        scene.stage.no_serial(&disk)?;
    }
    // A byte that somebody writes between the kill and the next run, where it was erased already
    // and where not yet.
    for (name, point, offset) in [
        ("erased", "erasing 5", IMAGE - 2 * MIB),
        ("left", "erasing 1", ROOT_START + 2 * MIB),
        ("table", "recorded", 512 + 60),
        ("before", "erasing 1", LARGER - MIB),
        ("late", "erasing 9", 7 * MIB),
    ] {
        let disk = scene.clone(name, LARGER)?;
        let at = points
            .iter()
            .position(|other| other.ends_with(point))
            .context("no such point")?;
        let killed = scene.order(
            &[declared(name)],
            Order {
                kill_at: Some(at + 1),
                ..Order::default()
            },
        )?;
        ensure!(killed.killed, "{point}: {:?}", killed.points);
        flip(&disk, offset)?;
        scene.refuses(&disk, name, &[])?;
        scene.stage.no_serial(&disk)?;
    }
    Ok(())
}
