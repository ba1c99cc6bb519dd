//! The stage's own faults, before anything is proven with them: bad sectors, slow disks, and the
//! device-mapper targets that the guests' kernels have.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{self, Disk, Io, MIB, Start, Vm},
    skip,
};

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";

#[test]
fn tier4_a_sector_fails_and_a_disk_is_slow() {
    let test = "tier4_a_sector_fails_and_a_disk_is_slow";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        let vm = Vm::new("one")
            .disk(Disk::blank("data", 64 * MIB).serial("data"))
            .disk(Disk::blank("more", 64 * MIB).scsi());
        let guest = scene.start(&vm, Start::Booted)?;
        for (name, device) in [("data", "/dev/vdc"), ("more", "/dev/sda")] {
            let works = |command: &str| -> Result<bool> { Ok(guest.sh(command)?.code == 0) };
            let at = |mib: u32| format!("dd if={device} of=/dev/null bs=1M count=1 skip={mib} iflag=direct");
            guest.fail_at(name, &[Io::Read], 8 * 2048 + 7)?;
            ensure!(
                works(&at(7))? && !works(&at(8))? && works(&at(9))?,
                "{name}: MiB 8 alone"
            );
            ensure!(
                works(&format!(
                    "dd if=/dev/zero of={device} bs=1M count=1 seek=8 oflag=direct"
                ))?,
                "{name}: writes"
            );
            guest.heal(name)?;
            ensure!(works(&at(8))?, "{name}: healed");

            guest.slow(name, 4, 0)?;
            let begun = Instant::now();
            guest.run(&format!("dd if={device} of=/dev/null bs=4k count=8 iflag=direct"))?;
            ensure!(
                begun.elapsed() > Duration::from_millis(900),
                "{name}: 8 reads at 4 a second: {:?}",
                begun.elapsed()
            );
        }
        // In the guest: a device that fails in its second half, one that waits, one that comes and
        // goes.
        guest.run(
            "set -e
            printf '0 65536 linear /dev/vdc 0\n65536 65536 error\n' | dmsetup create half
            dd if=/dev/mapper/half of=/dev/null bs=1M count=32 iflag=direct
            ! dd if=/dev/mapper/half of=/dev/null bs=1M count=1 skip=32 iflag=direct
            dmsetup remove half
            for target in delay flakey; do modprobe dm-$target; done
            test $(dmsetup targets | grep -c -E '^(delay|flakey|error) ') = 3",
        )?;
        Ok(())
    });
}
