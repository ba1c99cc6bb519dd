//! Bytes that are not provably ours are never cleared without an approval, whatever the journal
//! says: a tool that failed, a kill between intent and tool, a writer in the window, a filesystem
//! that was used by hand, a tool that outlives the agent.

use std::{fs, os::unix::fs::FileExt as _};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    disks::{LoopDisk, Order, Outcome, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskEncryption, DiskFilesystem, DiskMatch, DiskSettings, Luks2Settings};

use super::{Life, TIER, bytes};

#[path = "healed.rs"]
mod healed;

const KINDS: [DiskFilesystem; 4] = [
    DiskFilesystem::Ext4,
    DiskFilesystem::Xfs,
    DiskFilesystem::Btrfs,
    DiskFilesystem::Swap,
];

fn declared(name: &str, filesystem: DiskFilesystem) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem,
        mount_point: (filesystem != DiskFilesystem::Swap).then(|| format!("/srv/{name}")),
        ..DiskSettings::named(name)
    }
}

/// A declared disk on a stage.
struct Case<'s> {
    stage: &'s Stage,
    disk: LoopDisk,
    settings: DiskSettings,
}

impl<'s> Case<'s> {
    fn new(stage: &'s Stage, name: &str, filesystem: DiskFilesystem) -> Result<Self> {
        let disk = LoopDisk::new(stage.folder(), name, bytes(filesystem))?;
        stage.serial(&disk, &format!("serial-{name}"))?;
        Ok(Self {
            stage,
            disk,
            settings: declared(name, filesystem),
        })
    }

    fn encrypted(stage: &'s Stage, name: &str) -> Result<Self> {
        let mut case = Self::new(stage, name, DiskFilesystem::Ext4)?;
        stage.sh("mkdir -p /etc/keys; umask 077; printf a-key-of-the-test > /etc/keys/right")?;
        case.settings.encryption = Some(DiskEncryption {
            luks2: Luks2Settings {
                key: "/etc/keys/right".to_owned(),
                recovery_key: None,
            },
        });
        Ok(case)
    }

    fn order(&self, order: Order) -> Result<Outcome> {
        self.stage.order(&Order {
            disks: vec![self.settings.clone()],
            ..order
        })
    }

    fn run(&self) -> Result<Outcome> {
        self.order(Order::default())
    }

    /// A run that is killed at the point that ends so.
    fn kill_at(&self, point: &str) -> Result<()> {
        let script = "kill -KILL $PPID; sleep 5".to_owned();
        let outcome = self.order(Order {
            script_at: Some((format!("{} {point}", self.settings.name), script)),
            orphans: true,
            kill_after_us: Some(60_000_000),
            ..Order::default()
        })?;
        ensure!(outcome.killed, "not killed at {point}: {}", outcome.text);
        Ok(())
    }

    /// A shell script with `$NODE`, and `$NAME`.
    fn sh(&self, script: &str) -> Result<String> {
        let (node, name) = (&self.disk.node, &self.settings.name);
        self.stage
            .sh(&format!("set -e; NODE={node}; NAME={name}; {script}"))
    }

    /// A person writes a tar to the raw disk.
    fn tar(&self, at: u64) -> Result<Vec<u8>> {
        self.sh(&format!(
            "mkdir -p /tmp/$NAME; echo precious > /tmp/$NAME/a; tar -cf /tmp/$NAME.tar -C /tmp $NAME; \
             dd if=/tmp/$NAME.tar of=$NODE bs=512 seek={} conv=notrunc,fsync status=none",
            at / 512
        ))?;
        Ok(fs::read(
            self.stage.root().join(format!("tmp/{}.tar", self.settings.name)),
        )?)
    }

    fn holds(&self, at: u64, tar: &[u8]) -> Result<()> {
        let disk = fs::read(&self.disk.file)?;
        let at = usize::try_from(at)?;
        ensure!(
            disk.get(at..at + tar.len()) == Some(tar),
            "what was written is lost"
        );
        Ok(())
    }

    /// Two runs and a reboot-less plan refuse with this kind, and the bytes stay.
    fn refused(&self, kind: &str, at: u64, tar: &[u8]) -> Result<String> {
        let name = &self.settings.name;
        for _ in 0..2 {
            let outcome = self.run()?;
            ensure!(
                outcome.refusals(name) == [kind],
                "{}: {} {}",
                outcome.standing(name),
                outcome.error(name),
                outcome.state["disks"]
            );
            self.holds(at, tar)?;
        }
        let plan = self.order(Order {
            plan: true,
            ..Order::default()
        })?;
        let evidence = &plan.plan["disks"][0]["refusals"][0]["evidence"];
        Ok(evidence.as_str().unwrap_or_default().to_owned())
    }

    /// With a person's approval it is formatted after all.
    fn approved(&self, evidence: &str) -> Result<()> {
        let name = self.settings.name.clone();
        let outcome = self.order(Order {
            approve: Some((name.clone(), evidence.to_owned())),
            ..Order::default()
        })?;
        ensure!(outcome.code == 0, "{}", outcome.text);
        let outcome = self.run()?;
        let swap = self.settings.filesystem == DiskFilesystem::Swap;
        let audit = self.stage.audit(&name)?;
        ensure!(
            outcome.standing(&name) == "ready" || swap && audit.iter().any(|line| line == "done format"),
            "{}",
            outcome.state["disks"]
        );
        Ok(())
    }

    fn has_entry(&self) -> bool {
        let entry = format!("var/lib/virtfleet/journal/{}.json", self.settings.name);
        self.stage.root().join(entry).exists()
    }

    fn end(self) -> Result<()> {
        self.sh("swapoff $NODE 2>/dev/null || true; umount /srv/$NAME 2>/dev/null || true")?;
        self.stage.no_serial(&self.disk)
    }
}

/// Between two runs something that knows no lock writes to a disk that is not formatted yet:
/// nothing is cleared, and when the bytes are taken away again, the next run goes on. False when
/// the disk is formatted already.
pub(super) fn foreign_writer(life: &Life<'_>, random: &mut fastrand::Rng) -> Result<bool> {
    let name = life.name();
    let stage = &life.stage;
    // What a killed run has started may write still.
    stage.sh(
        "i=0; while pidof mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null && [ $i -lt 1200 ]; \
         do sleep 0.05; i=$((i+1)); done",
    )?;
    let entry = stage
        .root()
        .join(format!("var/lib/virtfleet/journal/{name}.json"));
    let begun = |text: &str| text.contains("\"progress\":\"intended\"");
    if fs::read_to_string(entry).is_ok_and(|text| !begun(&text)) {
        return Ok(false);
    }
    let size = fs::metadata(&life.disk.file)?.len();
    // At random, and where a mkfs writes: superblocks, group descriptors, inodes, tree blocks.
    let places = [
        0,
        512,
        1124,
        4096,
        16384,
        65616,
        0x45c00,
        8 << 20,
        22_020_096,
        30_408_704,
    ];
    let at = if random.bool() {
        places[random.usize(..places.len())] + random.u64(..64)
    } else {
        random.u64(..size - (1 << 20))
    };
    let length = if random.bool() {
        random.usize(24..600)
    } else {
        random.usize(600..200_000)
    };
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(1..)).take(length).collect();
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&life.disk.node)?;
    let mut before = vec![0; length];
    device.read_exact_at(&mut before, at)?;
    device.write_all_at(&bytes, at)?;
    device.sync_all()?;
    for _ in 0..2 {
        let outcome = stage.pass(&life.disks)?;
        let mut now = vec![0; length];
        device.read_exact_at(&mut now, at)?;
        ensure!(
            now == bytes && outcome.standing(name) != "ready",
            "{length} foreign bytes at {at} were lost: {} {}",
            outcome.standing(name),
            outcome.state["disks"]
        );
    }
    device.write_all_at(&before, at)?;
    device.sync_all()?;
    Ok(true)
}

fn stage(test: &str) -> Result<Option<Stage>> {
    let programs = [
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "mkswap",
        "cryptsetup",
        "tar",
        "dd",
        "strace",
    ];
    let needed = skip::need(TIER, test, needs(&programs))?;
    needed.map(|()| Stage::new()).transpose()
}

/// Options that the settings allow and the tool refuses.
fn refused_options(filesystem: DiskFilesystem) -> Vec<String> {
    let words = match filesystem {
        DiskFilesystem::Ext4 => ["-I", "100"],
        DiskFilesystem::Xfs => ["-b", "size=100"],
        DiskFilesystem::Btrfs => ["-n", "5000"],
        DiskFilesystem::Swap => ["-p", "1000"],
    };
    words.map(str::to_owned).to_vec()
}

#[test]
fn tier2_a_failed_tool_restores_the_journal_and_what_is_written_then_stays() {
    let test = "tier2_a_failed_tool_restores_the_journal_and_what_is_written_then_stays";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    for kind in KINDS {
        let work = || -> Result<()> {
            let mut case = Case::new(&stage, &format!("a-{}", kind.word()), kind)?;
            let right = std::mem::replace(&mut case.settings.mkfs_options, refused_options(kind));
            let outcome = case.run()?;
            let name = case.settings.name.clone();
            ensure!(outcome.standing(&name) == "failed", "{}", outcome.state["disks"]);
            ensure!(!case.has_entry(), "the journal still has the intent");
            let audit = stage.audit(&name)?;
            ensure!(
                audit == ["about-to format", "failed format", "restored journal"],
                "{audit:?}"
            );
            let tar = case.tar(0)?;
            case.settings.mkfs_options = right;
            let evidence = case.refused("unknown-data", 0, &tar)?;
            case.approved(&evidence)?;
            case.end()
        };
        work().context(kind.word()).unwrap();
    }
}

#[test]
fn tier2_killed_before_the_tool_wrote_what_is_written_then_stays() {
    let test = "tier2_killed_before_the_tool_wrote_what_is_written_then_stays";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    for (kind, at) in KINDS.into_iter().zip([0, 5 << 20, 1 << 20, 512]) {
        let work = || -> Result<()> {
            let case = Case::new(&stage, &format!("b-{}", kind.word()), kind)?;
            case.kill_at("audited")?;
            ensure!(case.has_entry(), "no intent");
            let tar = case.tar(at)?;
            let evidence = case.refused("unfinished", at, &tar)?;
            case.approved(&evidence)?;
            case.end()
        };
        work().context(kind.word()).unwrap();
    }
    let work = || -> Result<()> {
        let case = Case::encrypted(&stage, "b-luks")?;
        case.kill_at("audited")?;
        let tar = case.tar(0)?;
        case.refused("unfinished", 0, &tar)?;
        case.end()
    };
    work().context("luks").unwrap();
}

#[test]
fn tier2_a_writer_without_a_lock_in_the_window_is_never_formatted_over() {
    let test = "tier2_a_writer_without_a_lock_in_the_window_is_never_formatted_over";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let luks = [(true, DiskFilesystem::Ext4)];
    for (encrypted, kind) in KINDS.map(|kind| (false, kind)).into_iter().chain(luks) {
        let work = || -> Result<()> {
            let name = if encrypted {
                "c-luks".to_owned()
            } else {
                format!("c-{}", kind.word())
            };
            let case = if encrypted {
                Case::encrypted(&stage, &name)?
            } else {
                Case::new(&stage, &name, kind)?
            };
            let at = 21 << 20;
            let script = format!(
                "mkdir -p /tmp/{name}; echo precious > /tmp/{name}/a; tar -cf /tmp/{name}.tar -C /tmp {name}; \
                 dd if=/tmp/{name}.tar of={} bs=512 seek={} conv=notrunc status=none",
                case.disk.node,
                at / 512
            );
            let outcome = case.order(Order {
                script_at: Some((format!("{name} audited"), script)),
                ..Order::default()
            })?;
            ensure!(outcome.standing(&name) == "failed", "{}", outcome.state["disks"]);
            ensure!(
                outcome.error(&name).contains("was not formatted"),
                "{}",
                outcome.error(&name)
            );
            let tar = fs::read(stage.root().join(format!("tmp/{name}.tar")))?;
            case.refused("unfinished", at, &tar)?;
            case.end()
        };
        work()
            .with_context(|| format!("{} {encrypted}", kind.word()))
            .unwrap();
    }
}

#[test]
fn tier2_a_filesystem_that_was_used_by_hand_is_never_cleared() {
    let test = "tier2_a_filesystem_that_was_used_by_hand_is_never_cleared";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    // After the tool has ended and before the journal says so, a person uses it. Then a fault.
    for (kind, fault, check) in [
        // e2fsck resets the count of mounts.
        (
            DiskFilesystem::Ext4,
            "seek=5 bs=4096 count=1",
            "tune2fs -C 0 $NODE >/dev/null; e2fsck -fy $NODE >/dev/null || true",
        ),
        (DiskFilesystem::Xfs, "seek=1 bs=4096 count=1", "true"),
        (DiskFilesystem::Btrfs, "seek=20 bs=1M count=40", "true"),
    ] {
        for broken in [false, true] {
            let work = || -> Result<()> {
                let case = Case::new(&stage, &format!("u-{}-{broken}", kind.word()), kind)?;
                case.kill_at("formatted")?;
                case.sh(&format!(
                    "mkdir -p /mnt/$NAME; mount $NODE /mnt/$NAME; echo precious > /mnt/$NAME/a; umount /mnt/$NAME; {check}"
                ))?;
                let name = case.settings.name.clone();
                if broken {
                    case.sh(&format!(
                        "dd if=/dev/urandom of=$NODE conv=notrunc,fsync status=none {fault}"
                    ))?;
                    let before = fs::read(&case.disk.file)?;
                    case.refused("unfinished", 0, &before)?;
                } else {
                    let outcome =
                        case.stage
                            .pass_until(std::slice::from_ref(&case.settings), &name, "ready")?;
                    ensure!(
                        case.sh("cat /srv/$NAME/a")? == "precious\n",
                        "{}",
                        outcome.state["disks"]
                    );
                }
                case.end()
            };
            work()
                .with_context(|| format!("{} {broken}", kind.word()))
                .unwrap();
        }
    }
}

#[test]
fn tier2_a_tool_that_outlives_the_agent_ends_before_anything_else_touches_the_disk() {
    let test = "tier2_a_tool_that_outlives_the_agent_ends_before_anything_else_touches_the_disk";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let work = || -> Result<()> {
        let case = Case::new(&stage, "orphan", DiskFilesystem::Btrfs)?;
        let outcome = case.order(Order::freezing("orphan", "mkfs.btrfs"))?;
        ensure!(outcome.killed, "{}", outcome.text);
        let frozen = case.sh("sed 's/.*) //' /proc/$(pidof mkfs.btrfs)/stat | cut -c1")?;
        ensure!(frozen == "T\n", "{frozen}");
        // The disk is locked by the tool alone.
        ensure!(case.sh("flock -n $NODE true && echo free || echo locked")? == "locked\n");
        // A plan touches neither the tool nor the disk.
        let plan = case.order(Order {
            plan: true,
            ..Order::default()
        })?;
        let refusals = plan.refusals("orphan");
        ensure!(
            refusals == ["in-use"] || refusals == ["unreadable"],
            "{}",
            plan.plan
        );
        ensure!(case.sh("pidof mkfs.btrfs >/dev/null && echo there")? == "there\n");
        let outcome = case.run()?;
        ensure!(
            outcome.standing("orphan") == "ready",
            "{}",
            outcome.state["disks"]
        );
        ensure!(case.sh("pidof mkfs.btrfs || echo gone")? == "gone\n");
        case.sh("btrfs scrub start -B /srv/$NAME >/dev/null")?;
        case.end()
    };
    work().unwrap();
}
