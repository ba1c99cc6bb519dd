//! A crash anywhere: SIGKILL before and after every effect, and at random moments inside mkfs,
//! mount, copy and grow. The next run completes, or refuses before anything was mounted; it never
//! formats twice, and never loses a file that was written after the first mount.
//!
//! `VIRTFLEET_DISK_KILLS` says how many kills at random moments there are (`make disk-soak`: 500),
//! `VIRTFLEET_DISK_SEED` where the moments come from.

mod guard;

use std::{collections::BTreeMap, env, time::Instant};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    disks::{LoopDisk, Order, Stage, grows, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings, ProofKind, SeedFrom};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const KINDS: [DiskFilesystem; 3] = [DiskFilesystem::Ext4, DiskFilesystem::Xfs, DiskFilesystem::Btrfs];
/// What is counted beside the kills.
const FOREIGN: &str = "foreign writes that were kept";
/// How many kills at random moments, unless the environment variable gives a number.
const USUAL_KILLS: u64 = 24;

fn declared(name: &str, filesystem: DiskFilesystem, seeded: bool) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem,
        mount_point: Some(format!("/srv/{name}")),
        grow: true,
        // Of a larger disk a part is read, and a foreign write in between is not seen.
        proof: if bytes(filesystem) > 256 * MIB {
            ProofKind::Full
        } else {
            ProofKind::Sampled
        },
        seed_from: if seeded {
            SeedFrom::Existing
        } else {
            SeedFrom::None
        },
        ..DiskSettings::named(name)
    }
}

fn bytes(filesystem: DiskFilesystem) -> u64 {
    MIB * match filesystem {
        DiskFilesystem::Ext4 | DiskFilesystem::Swap => 80,
        DiskFilesystem::Xfs => 320,
        DiskFilesystem::Btrfs => 160,
    }
}

/// One declared disk through its life.
struct Life<'s> {
    stage: &'s mut Stage,
    disk: LoopDisk,
    disks: [DiskSettings; 1],
    seeded: bool,
}

impl<'s> Life<'s> {
    fn new(stage: &'s mut Stage, name: &str, kind: DiskFilesystem, seeded: bool) -> Result<Self> {
        let disk = LoopDisk::new(stage.folder(), name, bytes(kind))?;
        stage.serial(&disk, &format!("serial-{name}"))?;
        if seeded {
            let script = "set -e; mkdir -p D/a; for i in 1 2 3 4 5 6; do dd if=/dev/urandom of=D/a/$i bs=64k count=4 2>/dev/null; done; \
                          ln D/a/1 D/hard; ln -s a D/soft; cd D; find . -type f | sort | xargs sha256sum > /run/sums";
            stage.sh(&script.replace('D', &format!("/srv/{name}")))?;
        }
        Ok(Self {
            stage,
            disk,
            disks: [declared(name, kind, seeded)],
            seeded,
        })
    }

    fn name(&self) -> &str {
        &self.disks[0].name
    }

    /// A pass that is killed, perhaps; whether it was, and how many points a whole one passed.
    fn killed(&self, order: &Order) -> Result<(bool, Vec<String>)> {
        let outcome = self.stage.order(&Order {
            disks: self.disks.to_vec(),
            ..order.clone()
        })?;
        ensure!(outcome.killed || outcome.code == 0, "{}", outcome.text);
        Ok((outcome.killed, outcome.points))
    }

    /// Runs it to its end: what was promised holds.
    fn complete(&self) -> Result<()> {
        let name = self.name();
        let outcome = self.stage.pass_until(&self.disks, name, "ready")?;
        let audit = self.stage.audit(name)?;
        let done = audit.iter().position(|line| line == "done format");
        if let Some(done) = done {
            let after = &audit[done + 1..];
            ensure!(
                !after
                    .iter()
                    .any(|line| line.ends_with("format") || line.ends_with("clear-unfinished")),
                "formatted twice: {audit:?}"
            );
        }
        ensure!(!audit.is_empty(), "nothing was written down: {}", outcome.state);
        if self.seeded {
            self.stage
                .sh(&format!("cd /srv/{name} && sha256sum --check --quiet /run/sums && test -h soft && test a/1 -ef hard"))
                .context("what was copied")?;
        }
        let again = self.stage.pass(&self.disks)?;
        ensure!(!again.changed, "not at rest: {:?}", again.points);
        Ok(())
    }

    /// A file that must never be lost.
    fn write(&self) -> Result<()> {
        let name = self.name();
        self.stage
            .sh(&format!(
                "echo precious > /srv/{name}/precious && sync -f /srv/{name}/precious"
            ))
            .map(drop)
    }

    fn kept(&self) -> Result<()> {
        let name = self.name();
        let text = self.stage.sh(&format!("cat /srv/{name}/precious"))?;
        ensure!(text == "precious\n", "{text:?}");
        Ok(())
    }

    fn end(self) -> Result<()> {
        let name = self.name().to_owned();
        self.stage.sh(&format!(
            "umount /srv/{name}; rm -rf --one-file-system /srv/{name}"
        ))?;
        self.stage.no_serial(&self.disk)
    }
}

#[test]
fn tier2_ext4_killed_at_every_point_between_two_effects() {
    killed_at_every_point(
        "tier2_ext4_killed_at_every_point_between_two_effects",
        DiskFilesystem::Ext4,
    )
    .unwrap();
}

#[test]
fn tier2_xfs_killed_at_every_point_between_two_effects() {
    killed_at_every_point(
        "tier2_xfs_killed_at_every_point_between_two_effects",
        DiskFilesystem::Xfs,
    )
    .unwrap();
}

#[test]
fn tier2_btrfs_killed_at_every_point_between_two_effects() {
    killed_at_every_point(
        "tier2_btrfs_killed_at_every_point_between_two_effects",
        DiskFilesystem::Btrfs,
    )
    .unwrap();
}

/// One test for each filesystem, so that they run side by side.
fn killed_at_every_point(test: &str, kind: DiskFilesystem) -> Result<()> {
    let Some(()) = skip::need(TIER, test, needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]))? else {
        return Ok(());
    };
    let mut stage = Stage::new()?;
    let mut kills = 0;
    for seeded in [false, true] {
        kills += killed_at_each(&mut stage, kind, seeded)?;
    }
    println!(
        "killed at {kills} points between two effects; every next run completed, none formatted twice, no file was lost"
    );
    ensure!(kills > 20, "only {kills} kills");
    Ok(())
}

/// Kills the first pass at point 1, 2, … until it has no more points. Returns the number of kills.
fn killed_at_each(stage: &mut Stage, kind: DiskFilesystem, seeded: bool) -> Result<usize> {
    let mut point = 1;
    loop {
        let name = format!("{}-{}{point}", kind.word(), if seeded { "s" } else { "n" });
        let life = Life::new(stage, &name, kind, seeded)?;
        let order = Order {
            kill_at: Some(point),
            ..Order::default()
        };
        let (killed, points) = life.killed(&order)?;
        let at = format!("{name}: {points:?}");
        if killed && point % 3 == 0 {
            life.stage.boot()?;
            if seeded {
                life.stage.sh(&format!(
                    "cd /srv/{name}; find . -type f | sort | xargs sha256sum > /run/sums"
                ))?;
            }
        }
        life.complete().context(at.clone())?;
        life.write()?;
        // And in what comes after: the next boot's mount, killed at the same point.
        life.stage.boot()?;
        life.killed(&order)?;
        life.stage
            .pass_until(&life.disks, &name, "ready")
            .context(at.clone())?;
        life.kept().context(at)?;
        life.end()?;
        if !killed {
            return Ok(point - 1);
        }
        point += 1;
    }
}

#[test]
fn tier2_killed_at_random_moments() {
    let test = "tier2_killed_at_random_moments";
    let Some(()) = skip::need(TIER, test, needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"])).unwrap() else {
        return;
    };
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wanted = number("VIRTFLEET_DISK_KILLS").unwrap_or(USUAL_KILLS);
    let seed = number("VIRTFLEET_DISK_SEED").unwrap_or(7);
    let mut random = fastrand::Rng::with_seed(seed);
    let begun = Instant::now();
    let mut stage = Stage::new().unwrap();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut episode = 0;
    let kills = |counts: &BTreeMap<&str, u64>| {
        let kills = counts.iter().filter(|(what, _)| **what != FOREIGN);
        kills.map(|(_, count)| count).sum::<u64>()
    };
    // Each filesystem once at least.
    while kills(&counts) < wanted || episode < KINDS.len() {
        episode += 1;
        let kind = KINDS[episode % 3];
        let seeded = random.bool();
        let name = format!("e{episode}");
        let told = format!(
            "seed {seed}, episode {episode}, {}, seeded: {seeded}",
            kind.word()
        );
        live(&mut stage, &name, kind, seeded, &mut random, &mut counts)
            .context(told)
            .unwrap();
    }
    println!(
        "{} kills at random moments in {episode} lives (seed {seed}, {:?}): {counts:?}; every next run completed, none formatted twice, \
         no file was lost",
        kills(&counts),
        begun.elapsed()
    );
}

/// From blank to mounted, grown and mounted again, with kills all along.
fn live(
    stage: &mut Stage,
    name: &str,
    kind: DiskFilesystem,
    seeded: bool,
    random: &mut fastrand::Rng,
    counts: &mut BTreeMap<&str, u64>,
) -> Result<()> {
    let life = Life::new(stage, name, kind, seeded)?;
    let mut foreign = 0;
    // About as long as a whole pass takes on this machine, twice over.
    let mut kill =
        |life: &Life<'_>, phase: &'static str, longest: u64, random: &mut fastrand::Rng| -> Result<()> {
            let order = Order {
                kill_after_us: Some(random.u64(1_000..longest)),
                orphans: random.u8(..) < 64,
                ..Order::default()
            };
            if life.killed(&order)?.0 {
                *counts.entry(phase).or_default() += 1;
            }
            Ok(())
        };
    for _ in 0..random.u8(3..8) {
        kill(&life, "while it is made", 400_000, random)?;
        if random.u8(..) < 96 && guard::foreign_writer(&life, random)? {
            foreign += 1;
        }
    }
    life.complete()?;
    life.write()?;
    if grows(kind.word()).is_ok() {
        life.disk.grow(bytes(kind) * 2)?;
        for _ in 0..3 {
            kill(&life, "while it grows", 120_000, random)?;
        }
        life.complete()?;
        life.kept()?;
    }
    if random.u8(..) < 128 {
        life.stage.sh(&format!("umount /srv/{name}"))?;
        for _ in 0..3 {
            kill(&life, "while it is mounted again", 120_000, random)?;
        }
        life.stage.pass_until(&life.disks, name, "ready")?;
        life.kept()?;
    }
    *counts.entry(FOREIGN).or_default() += foreign;
    life.end()
}
