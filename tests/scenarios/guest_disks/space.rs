//! Swap on a disk, and discarding unused blocks, which frees them in the volume.

use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, MIB, play},
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const DISKS: &str = "
- { name: swap, match: { serial: swap }, filesystem: swap, options: [discard, \"pri=10\"] }
- { name: thin, match: { serial: thin }, filesystem: ext4, mountPoint: /data/thin, discard: true }
- { name: thick, match: { serial: thick }, filesystem: xfs, mountPoint: /data/thick }
";

/// The UUID of the swap area on the disk `swap`, which is the one that is swapped to, by its unit
/// and with its priority.
fn swapped(machine: &Guest) -> Result<String> {
    let node = machine.run("readlink -e /dev/disk/by-id/virtio-swap")?;
    let swaps = machine.run("tail -n +2 /proc/swaps")?;
    let words: Vec<&str> = swaps.split_whitespace().collect();
    ensure!(
        swaps.lines().count() == 1 && words.first() == Some(&node.as_str()) && words.last() == Some(&"10"),
        "/proc/swaps, and the disk is {node}:\n{swaps}"
    );
    let uuid = machine.run(&format!("blkid -p -s UUID -o value {node}"))?;
    machine.run(&format!(
        "systemctl is-active --quiet \"$(systemd-escape --path --suffix=swap /dev/disk/by-uuid/{uuid})\""
    ))?;
    Ok(uuid)
}

/// The bytes that a disk's file takes on the host.
fn taken(machine: &Guest, name: &str) -> Result<u64> {
    let file = machine.folder().join(format!("{name}.img"));
    let about = file.metadata().with_context(|| format!("{}", file.display()))?;
    Ok(about.blocks() * 512)
}

#[test]
fn tier4_swap_is_used_again_after_a_boot_and_unused_blocks_are_discarded() {
    play(
        "tier4_swap_is_used_again_after_a_boot_and_unused_blocks_are_discarded",
        |scene| {
            let vm = kit::vm("space")
                .disk(Disk::blank("swap", 512 * MIB).serial("swap"))
                .disk(Disk::blank("thin", GIB).serial("thin"))
                .disk(Disk::blank("thick", GIB).serial("thick"));
            let machine = kit::guest(scene, &vm, DISKS)?;
            kit::applied(&machine)?;
            kit::settled(&machine)?;
            let uuid = swapped(&machine)?;
            machine.run(
                "for place in /data/thin /data/thick; do
                 dd if=/dev/zero of=$place/big bs=1M count=256 conv=fsync status=none; rm $place/big; sync -f $place; done",
            )?;
            let before = [taken(&machine, "thin")?, taken(&machine, "thick")?];
            ensure!(before.iter().all(|bytes| *bytes > 256 * MIB), "{before:?} bytes");
            machine.run("systemctl is-enabled --quiet virtfleet-discard.timer")?;
            machine.run_within("systemctl start virtfleet-discard.service", AGENT_TIMEOUT)?;
            let after = [taken(&machine, "thin")?, taken(&machine, "thick")?];
            println!("taken on the host, thin and thick: {before:?} bytes, after the discard {after:?}");
            // ext4 may write some metadata meanwhile, so the other disk may grow by a block.
            ensure!(
                after[0] + 200 * MIB < before[0] && after[1] >= before[1],
                "{before:?} bytes before, {after:?} after"
            );

            if skip::deferred(
                4,
                "tier4_swap_is_used_again_after_a_boot_and_unused_blocks_are_discarded",
                kit::SOAK,
            ) {
                return Ok(());
            }
            machine.power_off()?;
            machine.boot_to_agent()?;
            machine.run_until(
                "systemctl is-active --quiet swap.target && test $(wc -l </proc/swaps) = 2",
                "swap",
            )?;
            ensure!(swapped(&machine)? == uuid, "the swap area is another one");
            machine.run("systemctl is-active --quiet virtfleet-discard.timer")?;
            machine.run_until("systemctl is-active --quiet virtfleet-provision", "provisioning")?;
            kit::settled(&machine)?;
            for name in ["swap", "thin", "thick"] {
                ensure!(
                    kit::begun(&machine, name, "format")? == 1,
                    "{name} was formatted again"
                );
            }
            Ok(())
        },
    );
}
