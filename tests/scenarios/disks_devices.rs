//! The disks of this machine as the agent sees them: which one carries the system, and who uses the
//! others.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use virtfleet_agent_core::disks::{Probe, Use};
use virtfleet_agent_host::{
    Roots, SystemCommands,
    disks::{Disks, Kinds},
};
use virtfleet_tests::{
    loops::{self, Loop, disks},
    process::{AtEnd, Launch},
    scratch, skip,
};
use virtfleet_wire::settings::ProofKind;

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
/// Maximum time of a command, or for a helper process to become ready.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

fn run(test: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let needs = || {
        loops::needs()?;
        let programs = ["mkfs.ext4", "mkswap", "sfdisk", "unshare"];
        programs.iter().try_for_each(|name| skip::program(name).map(drop))
    };
    skip::need(TIER, test, needs())?.map_or(Ok(()), |()| work())
}

fn tool(words: &[&str], node: &Path) -> Result<()> {
    Launch::new(words[0])
        .args(&words[1..])
        .arg(node)
        .text(COMMAND_TIMEOUT)
        .map(drop)
}

#[test]
fn tier2_the_disk_below_the_root_carries_the_system_and_loops_are_no_disks() {
    run(
        "tier2_the_disk_below_the_root_carries_the_system_and_loops_are_no_disks",
        || {
            let folder = scratch::marked()?;
            let device = Loop::blank(folder.path(), "disk", 64 * MIB)?;
            let roots = Roots::default();
            let real = Disks {
                roots: &roots,
                commands: &SystemCommands,
                kinds: Kinds::Real,
            }
            .devices()?;
            ensure!(
                !real.iter().any(|found| found.id.name == device.name()),
                "{real:?}"
            );
            let root = fs::read_to_string("/proc/1/mountinfo")?;
            let number = root
                .lines()
                .map(|line| line.split(' ').collect::<Vec<_>>())
                .find(|words| words[4] == "/");
            // On a machine whose root is no block device there is nothing to be found.
            if number.is_some_and(|words| !words[2].starts_with("0:")) {
                ensure!(
                    real.iter()
                        .any(|found| found.carries_system && !found.uses.is_empty()),
                    "{real:?}"
                );
            }
            ensure!(!device.device()?.carries_system);
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_partitions_swap_and_mounts_of_other_namespaces_are_uses() {
    run(
        "tier2_partitions_swap_and_mounts_of_other_namespaces_are_uses",
        || {
            let folder = scratch::marked()?;
            let roots = Roots::default();
            let device = Loop::blank(folder.path(), "disk", 64 * MIB)?;
            ensure!(device.device()?.uses.is_empty());
            tool(&["mkfs.ext4", "-q"], device.node())?;
            let (place, ready) = (folder.path().join("place"), folder.path().join("ready"));
            fs::create_dir(&place)?;
            let mut other = Launch::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c"])
                .arg("mount \"$0\" \"$1\" && touch \"$2\" && exec sleep 600")
                .arg(device.node())
                .args([&place, &ready])
                .tied()
                .start(folder.path())?;
            other.wait_for(COMMAND_TIMEOUT, "it is mounted there", |_| {
                Ok(fs::metadata(&ready)?)
            })?;
            let seen = device.device()?;
            let there = format!("{} (process {})", place.display(), other.id());
            ensure!(seen.uses == [Use::Mounted(there)], "{:?}", seen.uses);
            // The probe identifies the content, although the mount holds the device exclusively.
            let probe = disks(&roots).probe(&seen, ProofKind::Sampled, &mut |_, _| {});
            ensure!(
                matches!(&probe, Probe::HasData(content) if content.kind == "ext4"),
                "{probe:?}"
            );
            drop(other);

            let device = Loop::blank(folder.path(), "swap", 64 * MIB)?;
            tool(&["mkswap"], device.node())?;
            let off = AtEnd::new("swapoff \"$1\"", [device.node()])?;
            let on = Launch::new("swapon").arg(device.node()).output(COMMAND_TIMEOUT)?;
            // A kernel without swap says so.
            if on.status.success() {
                ensure!(
                    device.device()?.uses == [Use::Swap],
                    "{:?}",
                    device.device()?.uses
                );
            }
            drop(off);

            let image = folder.path().join("parts");
            fs::File::create(&image)?.set_len(64 * MIB)?;
            Launch::new("sfdisk")
                .args(["-q"])
                .arg(&image)
                .stdin(",,83\n")
                .text(COMMAND_TIMEOUT)?;
            let device = Loop::attach_with(&image, &["--partscan"])?;
            let seen = device.device()?;
            // A kernel that does not read this kind of table knows no partition.
            let partition = format!("{}p1", device.name());
            if Path::new("/sys/class/block").join(&partition).exists() {
                ensure!(seen.uses == [Use::Partition(partition)], "{:?}", seen.uses);
            }
            Ok(())
        },
    )
    .unwrap();
}
