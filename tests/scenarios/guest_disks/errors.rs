//! Disks that cannot be read, that answer slowly, and that cannot be written.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Io, play},
    skip,
};

use crate::guest_disks::kit;

const DISKS: &str = "
- { name: bad, match: { serial: bad }, filesystem: ext4, mountPoint: /data/bad }
- { name: slow, match: { serial: slow }, filesystem: xfs, mountPoint: /data/slow }
- { name: good, match: { serial: good }, filesystem: ext4, mountPoint: /data/good }
";

#[test]
fn tier4_what_cannot_be_read_is_never_taken_for_blank() {
    if skip::deferred(4, "tier4_what_cannot_be_read_is_never_taken_for_blank", kit::SOAK) {
        return;
    }
    play("tier4_what_cannot_be_read_is_never_taken_for_blank", |scene| {
        let vm = kit::vm("errors")
            .disk(Disk::blank("bad", GIB).serial("bad"))
            .disk(Disk::blank("slow", GIB).serial("slow"))
            .disk(Disk::blank("good", GIB).serial("good"));
        let machine = kit::guest(scene, &vm, DISKS)?;
        // A single sector that the proof reads, all reads, and reads that take for ever.
        machine.hang("slow")?;
        for (round, sector) in [Some(8 * 2048), None].into_iter().enumerate() {
            match sector {
                Some(sector) => machine.fail_at("bad", &[Io::Read], sector)?,
                None => machine.fail("bad", &[Io::Read])?,
            }
            let begun = Instant::now();
            let output = kit::apply(&machine)?;
            println!(
                "a pass with a disk that hangs took {:?}: {}",
                begun.elapsed(),
                output.stdout
            );
            ensure!(begun.elapsed().as_secs() < 90, "{:?}", begun.elapsed());
            let (plan, _) = kit::plan(&machine)?;
            for name in ["bad", "slow"] {
                let refusal = kit::refused_in(&plan, name, "unreadable")?;
                let said = refusal["message"].as_str().context("no message")?;
                println!("{said}");
                ensure!(name == "slow" || said.contains("error"), "{said}");
                kit::not_mounted(&machine, &format!("/data/{name}"))?;
                ensure!(
                    kit::begun(&machine, name, "format")? == 0,
                    "{name} in round {round}"
                );
            }
            ensure!(kit::mounted(&machine, "/data/good")?.0 == "ext4");
        }
        machine.heal("bad")?;
        machine.slow("slow", 0, 0)?;
        kit::applied(&machine)?;
        for name in ["bad", "slow", "good"] {
            kit::mounted(&machine, &format!("/data/{name}"))?;
        }
        kit::settled(&machine)
    });
}

#[test]
fn tier4_a_disk_that_cannot_be_written_is_not_mounted_and_is_completed_later() {
    play(
        "tier4_a_disk_that_cannot_be_written_is_not_mounted_and_is_completed_later",
        |scene| {
            let vm = kit::vm("writes")
                .disk(Disk::blank("bad", GIB).serial("bad"))
                .disk(Disk::blank("good", GIB).serial("good"))
                .disk(Disk::blank("slow", GIB).serial("slow"));
            let machine = kit::guest(scene, &vm, DISKS)?;
            machine.fail("bad", &[Io::Write, Io::Flush])?;
            // In the middle of what mkfs.xfs writes: the log.
            machine.fail_at("slow", &[Io::Write], 2048 * 512 + 64)?;
            let output = kit::apply(&machine)?;
            ensure!(
                output.code != 0,
                "a format has failed, and the pass succeeds: {}",
                output.stdout
            );
            kit::not_mounted(&machine, "/data/bad")?;
            kit::not_mounted(&machine, "/data/slow")?;
            ensure!(kit::mounted(&machine, "/data/good")?.0 == "ext4");
            machine.heal("bad")?;
            machine.heal("slow")?;
            kit::applied(&machine)?;
            for name in ["bad", "slow"] {
                kit::mounted(&machine, &format!("/data/{name}"))?;
            }
            kit::settled(&machine)
        },
    );
}
