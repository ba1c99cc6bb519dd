//! One volume in two VMs at once, KubeVirt's `shareable: true`. Nothing in a guest shows that it
//! is: the settings say so.

use std::fs::File;

use anyhow::{Context as _, ensure};
use virtfleet_tests::{
    guest::{Disk, MIB, play},
    process::Launch,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

/// An ext4 that two mount may be read by both, and written by none.
const DISKS: &str = "
- { name: both, match: { serial: both }, filesystem: ext4, mountPoint: /data, options: [ro], shared: true }
";

#[test]
fn tier4_a_shared_disk_is_never_formatted_and_its_data_is_mounted_in_both() {
    if skip::deferred(
        4,
        "tier4_a_shared_disk_is_never_formatted_and_its_data_is_mounted_in_both",
        kit::SOAK,
    ) {
        return;
    }
    play(
        "tier4_a_shared_disk_is_never_formatted_and_its_data_is_mounted_in_both",
        |scene| {
            let image = scene.path().join("both");
            File::create(&image)
                .and_then(|file| file.set_len(128 * MIB))
                .with_context(|| format!("create {}", image.display()))?;
            let disk = Disk::shared("both", &image).serial("both");
            let one = kit::guest(scene, &kit::vm("one").disk(disk.clone()), DISKS)?;
            let two = kit::guest(scene, &kit::vm("two").disk(disk), DISKS)?;
            for machine in [&one, &two] {
                kit::apply(machine)?;
                kit::not_mounted(machine, "/data")?;
                let refusal = kit::refused(machine, "both", "maybe-shared")?;
                ensure!(
                    refusal["evidence"] == "",
                    "it must not be approvable: {refusal:#}"
                );
                ensure!(kit::begun(machine, "both", "format")? == 0);
            }
            // Seen from the host: neither guest has written a byte.
            Launch::new("cmp")
                .args(["-n", &(128 * MIB).to_string(), "--"])
                .args([image.as_os_str(), "/dev/zero".as_ref()])
                .text(AGENT_TIMEOUT)?;

            // By hand, in one of them.
            one.run(
                "disk=/dev/disk/by-id/virtio-both; mke2fs -q -t ext4 $disk && mount $disk /mnt && echo theirs >/mnt/mark && umount /mnt",
            )?;
            for machine in [&one, &two] {
                kit::applied(machine)?;
                ensure!(kit::mounted(machine, "/data")?.0 == "ext4");
                ensure!(machine.run("cat /data/mark")? == "theirs");
                kit::settled(machine)?;
            }
            Ok(())
        },
    );
}
