//! What a person or another program writes to a disk around our `mkfs` is never formatted without
//! an approval: after a tool that failed, after a kill before it wrote, and in the moment before
//! it.

use anyhow::{Result, ensure};
use virtfleet_tests::guest::{Disk, GIB, Guest, Suite, needs, play};
use virtfleet_tests::{skip, wait::eventually};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

/// `%` stands for further keys of the first disk.
const DISKS: &str = "
- { name: failed, match: { serial: failed }, filesystem: ext4, mountPoint: /data/failed% }
- { name: killed, match: { serial: killed }, filesystem: xfs, mountPoint: /data/killed }
- { name: window, match: { serial: window }, filesystem: btrfs, mountPoint: /data/window }
- name: inner
  match: { serial: inner }
  mountPoint: /data/inner
  filesystem: ext4
  label: inner
  encryption: { luks2: { key: /etc/virtfleet/keys/inner } }
";
const NAMES: [&str; 3] = ["failed", "killed", "window"];

/// Stand-ins for tools: mkfs.xfs kills the agent before it writes, mkfs.btrfs lets a person write
/// to the disk when it is asked for its version, and mkfs.ext4 fails in a container.
const STAND_INS: &str = r#"set -e
umask 077; mkdir -p /etc/virtfleet/keys /root/real /root/fake /root/data; umask 022
head -c 64 /dev/urandom >/etc/virtfleet/keys/inner; chmod 0400 /etc/virtfleet/keys/inner
echo precious >/root/data/a; tar -cf /root/tar -C /root data
for tool in xfs btrfs ext4; do cp /usr/sbin/mkfs.$tool /root/real/; done
cat >/root/fake/mkfs.xfs <<'END'
#!/bin/sh
case "$*" in *-V*) exec /root/real/mkfs.xfs "$@";; esac
kill -KILL $PPID
exit 1
END
cat >/root/fake/mkfs.btrfs <<'END'
#!/bin/sh
dd if=/root/tar of=/dev/disk/by-id/virtio-window bs=1M seek=700 conv=notrunc status=none
exec /root/real/mkfs.btrfs "$@"
END
cat >/root/fake/mkfs.ext4 <<'END'
#!/bin/sh
case "$*" in *dm-*|*mapper*) exit 1;; esac
exec /root/real/mkfs.ext4 "$@"
END
chmod 755 /root/fake/*
for tool in xfs btrfs ext4; do mount --bind /root/fake/mkfs.$tool /usr/sbin/mkfs.$tool; done"#;
const REAL_AGAIN: &str = "for tool in xfs btrfs ext4; do umount /usr/sbin/mkfs.$tool; done";

/// Whether what was written is there.
fn holds(machine: &Guest, device: &str, mebibyte: u64) -> Result<()> {
    let script = format!(
        "dd if={device} bs=1M skip={mebibyte} count=1 iflag=direct status=none | \
         head -c $(stat -c %s /root/tar) | cmp - /root/tar"
    );
    machine.run_within(&script, AGENT_TIMEOUT).map(drop)
}

/// After a boot, a pass of its own may read the disk at the same moment.
fn until_refused(machine: &Guest, name: &str, kind: &str) -> Result<()> {
    eventually(AGENT_TIMEOUT, &format!("{name} refused as {kind}"), || {
        kit::refused(machine, name, kind).map(drop)
    })
}

#[test]
fn tier4_what_is_written_around_a_mkfs_stays() {
    let test = "tier4_what_is_written_around_a_mkfs_stays";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(4, test, needs(Suite::Trixie))?.is_none() {
            return Ok(());
        }
        let mut vm = kit::vm("guard");
        for name in NAMES.into_iter().chain(["inner"]) {
            vm = vm.disk(Disk::blank(name, GIB).serial(name));
        }
        let bad = DISKS.replace('%', ", mkfsOptions: [\"-I\", \"100\"]");
        let machine = kit::guest(scene, &vm, &bad)?;
        machine.run(STAND_INS)?;
        let tar = |device: &str| format!("dd if=/root/tar of={device} conv=notrunc,fsync status=none");
        // The first run is killed by mkfs.xfs; the next one comes to the others.
        let output = kit::apply(&machine)?;
        println!("{}{}", output.stdout, output.stderr);
        machine.run(&tar("/dev/disk/by-id/virtio-killed"))?;
        let output = kit::apply(&machine)?;
        println!("{}{}", output.stdout, output.stderr);
        machine.run(REAL_AGAIN)?;
        machine.run("test -b /dev/mapper/virtfleet-inner")?;
        machine.run(&tar("/dev/disk/by-id/virtio-failed"))?;
        machine.run(&tar("/dev/mapper/virtfleet-inner"))?;
        kit::declare(&machine, &DISKS.replace('%', ""))?;
        for round in 0..2 {
            let output = kit::apply(&machine)?;
            println!("{}{}", output.stdout, output.stderr);
            until_refused(&machine, "failed", "unknown-data")?;
            until_refused(&machine, "killed", "unfinished")?;
            until_refused(&machine, "window", "unfinished")?;
            until_refused(&machine, "inner", "unknown-data")?;
            holds(&machine, "/dev/disk/by-id/virtio-failed", 0)?;
            holds(&machine, "/dev/disk/by-id/virtio-killed", 0)?;
            holds(&machine, "/dev/disk/by-id/virtio-window", 700)?;
            if round == 0 {
                holds(&machine, "/dev/mapper/virtfleet-inner", 0)?;
                machine.run("sync")?;
                machine.cut_power();
                machine.boot_to_agent()?;
            }
        }
        // Overwritten with zeros again, the device provably holds no data.
        machine.run(
            "dd if=/dev/zero of=/dev/mapper/virtfleet-inner bs=64k count=1 conv=notrunc,fsync status=none",
        )?;
        kit::apply(&machine)?;
        kit::mounted(&machine, "/data/inner")?;
        ensure!(kit::begun(&machine, "failed", "format")? >= 1);
        Ok(())
    });
}
