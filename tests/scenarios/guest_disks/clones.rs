//! Clones of the OS image, as KKP attaches them: the root disk and three clones of it, of which one
//! was mounted, one has a byte outside a filesystem changed, and one is untouched. Only the last is
//! erased, formatted and mounted, also after a power cut in between.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, Guest, Image, Scene, Start, Suite, play},
    process::Launch,
    real::AGENT,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const DISKS: &str = "
- { name: untouched, match: { serial: untouched }, mountPoint: /data/untouched, content: image-clone }
- { name: mounted, match: { serial: mounted }, mountPoint: /data/mounted, content: image-clone }
- { name: changed, match: { serial: changed }, mountPoint: /data/changed, content: image-clone }
";
/// Partitions the project's root image: EFI system partition and root, as cloud images have them.
/// It is mounted and written once, as a build does. Its free space is cut to 160 MiB: an emulated
/// guest reads each byte of it several times.
const BUILD: &str = r#"
set -e; cd "$T"
cp --sparse=always "$ROOT" root
e2fsck -fy root >/dev/null || [ $? = 1 ]
size=$(($(resize2fs -P root 2>/dev/null | sed 's/.*: //') / 256 + 160))
resize2fs root ${size}M >/dev/null 2>&1
truncate -s $((size + 20))M os.img
sfdisk -q os.img <<END
label: gpt
start=2048, size=30720, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
start=32768, size=$((size * 2048)), type=L, name=root
END
truncate -s 15M esp; mkfs.vfat esp >/dev/null; dd if=esp of=os.img bs=1M seek=1 conv=notrunc status=none; rm esp
dd if=root of=os.img bs=1M seek=16 count=$size conv=notrunc,sparse status=none; rm root
mkdir mnt; mount -o loop,offset=16777216 os.img mnt
trap 'umount mnt' EXIT; sleep 1.1
mkdir mnt/data; echo built >mnt/data/built; rm -f mnt/etc/ssh/ssh_host_*; : >mnt/etc/machine-id
"#;
/// How long the image may take on a busy machine.
const LONG: Duration = Duration::from_mins(4);

fn os_image(scene: &Scene) -> Result<PathBuf> {
    let root = Image::find(Suite::Trixie)?.file("root.img");
    let output = Launch::new("sh")
        .args(["-c", BUILD])
        .env("T", scene.path())
        .env("ROOT", &root)
        .output(LONG)?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(scene.path().join("os.img"))
}

/// What the two disks hold that must stay as they are, from their files on the host.
fn sums(machine: &Guest) -> Result<String> {
    machine.run("sync")?;
    Launch::new("sha256sum")
        .args(["mounted", "changed"].map(|name| machine.folder().join(format!("{name}.img"))))
        .text(LONG)
}

fn install(machine: &Guest) -> Result<()> {
    let folder = virtfleet_tests::real::agent_folder(machine.folder())?;
    machine.copy_in(&folder, "/root/virtfleet")?;
    machine.run("/root/virtfleet/virtfleet-agent install --no-start && systemd-tmpfiles --create")?;
    // What a first boot leaves; this image keeps its journal in memory.
    machine.run("mkdir -p /etc/ssh /data; : >/etc/ssh/ssh_host_ed25519_key; sync")?;
    kit::declare(machine, DISKS)
}

#[test]
fn tier4_only_the_untouched_clone_is_formatted() {
    let test = "tier4_only_the_untouched_clone_is_formatted";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let image = os_image(scene)?;
        let mut vm = kit::vm("clones").kernel("root=/dev/vdb2");
        for name in ["system", "untouched", "mounted", "changed"] {
            vm = vm.disk(Disk::raw(name, &image).serial(name));
        }
        let machine = scene.start(&vm, Start::Cold)?;
        machine.wait_agent(AGENT_TIMEOUT)?;
        ensure!(
            machine.run("findmnt -no SOURCE /")?.trim() == "/dev/vdb2",
            "another root disk"
        );
        install(&machine)?;
        let node = |serial: &str| format!("$(readlink -f /dev/disk/by-id/virtio-{serial})");
        // The first boot is over when these are touched.
        machine.run(&format!(
            "mkdir -p /mnt/x; mount {}2 /mnt/x; umount /mnt/x; printf x | dd of={} bs=1 seek=1000000 conv=notrunc status=none; sync",
            node("mounted"),
            node("changed")
        ))?;
        let before = sums(&machine)?;
        let (plan, _) = kit::plan(&machine)?;
        for (name, word) in [("mounted", "last mount"), ("changed", "outside the partitions")] {
            let refusals = kit::refusals_in(&plan, name)?;
            let first = refusals
                .first()
                .with_context(|| format!("{name} is not refused: {plan:#}"))?;
            ensure!(
                first["kind"] == "not-a-clone" && first.to_string().contains(word),
                "{first:#}"
            );
        }
        ensure!(kit::refusals_in(&plan, "untouched")?.is_empty(), "{plan:#}");
        // The power goes when the record is written and zeros follow.
        machine.run(&format!("systemd-run --quiet {AGENT} apply disks"))?;
        machine.run_until_within(
            "test -s /var/lib/virtfleet/journal/untouched.erasing",
            "the record of the erasure",
            AGENT_TIMEOUT,
        )?;
        machine.cut_power();
        machine.boot()?;
        machine.wait_agent(AGENT_TIMEOUT)?;
        kit::apply(&machine)?;
        kit::mounted(&machine, "/data/untouched")?;
        let partitions = machine.run(&format!("ls {}*", node("untouched")))?;
        ensure!(
            partitions.lines().count() == 1,
            "its partitions are left: {partitions}"
        );
        ensure!(sums(&machine)? == before, "a refused disk was changed");
        for name in ["mounted", "changed"] {
            ensure!(
                !kit::refusals(&machine, name)?.is_empty(),
                "{name} is not refused any more"
            );
        }
        Ok(())
    });
}
