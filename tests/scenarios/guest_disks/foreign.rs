//! Disks that the agent must not touch: configuration as KubeVirt attaches it, existing data, bytes
//! of unknown content, a clone.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, MIB, play},
    process::Launch,
    real::AGENT,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const TOOL: Duration = Duration::from_mins(1);

/// An image of so many bytes.
fn blank(path: &Path, bytes: u64) -> Result<()> {
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .with_context(|| format!("create {}", path.display()))
}

/// What the kinds of KubeVirt's own disks, and data of others, look like: name of the disk, its
/// maker, its size.
fn images(folder: &Path) -> Result<Vec<Disk>> {
    let mut disks = Vec::new();
    let tree = folder.join("tree");
    std::fs::create_dir_all(&tree)?;
    std::fs::write(tree.join("meta-data"), "instance-id: x\n")?;
    for (name, label, tool) in [
        ("seed", "cidata", "genisoimage"),
        ("drive", "config-2", "genisoimage"),
        ("config", "cfgdata", "genisoimage"),
        ("sysprep", "unattendCD", "genisoimage"),
    ] {
        let image = folder.join(name);
        Launch::new(tool)
            .args(["-quiet", "-J", "-R", "-V", label, "-o"])
            .args([&image, &tree])
            .text(TOOL)?;
        // Configuration of this size is hardly to be expected; the size alone must not be what
        // protects it.
        File::options().write(true).open(&image)?.set_len(128 * MIB)?;
        disks.push(Disk::raw(name, &image).scsi().serial(name));
    }
    for (name, tool, arguments) in [
        ("ext", "mke2fs", &["-q", "-t", "ext4"][..]),
        ("swap", "mkswap", &[][..]),
        ("vfat", "mkfs.vfat", &["-n", "STUFF"][..]),
        ("table", "sfdisk", &["-q", "--label", "gpt"][..]),
    ] {
        let image = folder.join(name);
        blank(&image, 128 * MIB)?;
        let launch = Launch::new(tool).args(arguments).arg(&image);
        if name == "table" {
            launch.stdin(",,L\n").output(TOOL)?;
        } else {
            launch.text(TOOL)?;
        }
        disks.push(Disk::raw(name, &image).scsi().serial(name));
    }
    // Somebody's own format, 9 MiB into the disk, which is large enough for an xfs.
    let image = folder.join("bytes");
    blank(&image, 512 * MIB)?;
    let mut file = File::options().write(true).open(&image)?;
    file.seek(SeekFrom::Start(9 * MIB + 77))?;
    file.write_all(b"precious")?;
    disks.push(Disk::raw("bytes", &image).scsi().serial("bytes"));
    Ok(disks)
}

/// What the host has of these disks, a line a disk. The guest brings to them what it holds back.
fn sums(machine: &Guest, names: &[&str]) -> Result<String> {
    machine.run("sync")?;
    let file = |name: &&str| {
        let file = if *name == "metrics" {
            "downwardmetrics"
        } else {
            name
        };
        machine.folder().join(format!("{file}.img"))
    };
    Launch::new("sha256sum").args(names.iter().map(file)).text(TOOL)
}

/// Each as an xfs of its own.
fn declared(names: &[&str]) -> String {
    let item = |name: &&str| {
        format!(
            "- {{ name: {name}, match: {{ serial: {name} }}, filesystem: xfs, mountPoint: /data/{name} }}\n"
        )
    };
    names.iter().map(item).collect::<Vec<_>>().concat()
}

#[test]
fn tier4_disks_with_anything_on_them_are_refused_and_stay_as_they_are() {
    if skip::deferred(
        4,
        "tier4_disks_with_anything_on_them_are_refused_and_stay_as_they_are",
        kit::SOAK,
    ) {
        return;
    }
    play(
        "tier4_disks_with_anything_on_them_are_refused_and_stay_as_they_are",
        |scene| {
            let mut vm = kit::vm("foreign")
                .disk(Disk::downward_metrics("<metrics/>").serial("metrics"))
                .disk(Disk::blank("small", 32 * MIB).scsi().serial("small"))
                .disk(Disk::blank("locked", GIB).scsi().serial("locked").read_only())
                .disk(Disk::blank("blank", GIB).scsi().serial("blank"));
            for disk in images(scene.path())? {
                vm = vm.disk(disk);
            }
            let wanted = [
                ("metrics", "not-eligible"),
                ("small", "not-eligible"),
                ("locked", "not-eligible"),
                ("seed", "foreign-data"),
                ("drive", "foreign-data"),
                ("config", "foreign-data"),
                ("sysprep", "foreign-data"),
                ("ext", "foreign-data"),
                ("swap", "foreign-data"),
                ("vfat", "foreign-data"),
                ("table", "foreign-data"),
                ("bytes", "unknown-data"),
            ];
            let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).chain(["blank"]).collect();
            let machine = kit::guest(scene, &vm, &declared(&names))?;
            let others = &names[..wanted.len()];
            let before = sums(&machine, others)?;
            let output = kit::apply(&machine)?;
            println!("{}{}", output.stdout, output.stderr);
            ensure!(before == sums(&machine, others)?, "a disk was written to");
            let (plan, code) = kit::plan(&machine)?;
            ensure!(code == 3, "refusals, and the plan ends with {code}");
            let mut wrong = Vec::new();
            for (name, kind) in wanted {
                if let Err(error) = kit::refused_in(&plan, name, kind) {
                    wrong.push(format!("{error:#}"));
                }
            }
            ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
            // One disk's refusal is not another's.
            ensure!(kit::mounted(&machine, "/data/blank")?.0 == "xfs");

            // Content that a tool identifies cannot be approved. Unknown content can be approved
            // once, by quoting the evidence.
            let approve = |name: &str, hash: &str| {
                machine.sh(&format!("{AGENT} disks approve {name} --evidence {hash}"))
            };
            let known = kit::refused_in(&plan, "ext", "foreign-data")?;
            ensure!(known["evidence"] == "", "{known:#}");
            let guess = "0".repeat(64);
            ensure!(
                approve("ext", &guess)?.code != 0 && approve("bytes", &guess)?.code != 0,
                "a guess is approved"
            );
            let unknown = kit::refused_in(&plan, "bytes", "unknown-data")?;
            let hash = unknown["evidence"].as_str().context("no evidence")?;
            let approved = approve("bytes", hash)?;
            ensure!(approved.code == 0, "{approved:?}");
            let output = kit::apply(&machine)?;
            let mounted = kit::mounted(&machine, "/data/bytes").with_context(|| output.stdout)?;
            ensure!(mounted.0 == "xfs");
            ensure!(before.lines().count() == wanted.len(), "sums of all");
            let after = sums(&machine, &others[..others.len() - 1])?;
            ensure!(
                before.starts_with(&after),
                "another disk was written to:\n{before}\n{after}"
            );
            Ok(())
        },
    );
}

#[test]
fn tier4_of_two_clones_neither_is_mounted() {
    play("tier4_of_two_clones_neither_is_mounted", |scene| {
        let image = scene.path().join("image");
        blank(&image, 256 * MIB)?;
        Launch::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(&image)
            .text(TOOL)?;
        let vm = kit::vm("clones")
            .disk(Disk::raw("one", &image).serial("one"))
            .disk(Disk::raw("two", &image).serial("two"));
        let machine = kit::guest(
            scene,
            &vm,
            "- { name: one, match: { serial: one }, filesystem: ext4, mountPoint: /data }\n",
        )?;
        kit::apply(&machine)?;
        kit::not_mounted(&machine, "/data")?;
        kit::refused(&machine, "one", "duplicate-uuid")?;
        let findings = kit::findings(&machine)?;
        ensure!(findings.iter().any(|id| id.starts_with("disk-")), "{findings:?}");
        // The clone goes: what is left is one disk with its data.
        machine.unplug_disk("two")?;
        kit::applied(&machine)?;
        ensure!(kit::mounted(&machine, "/data")?.0 == "ext4");
        kit::settled(&machine)
    });
}

/// Writes what an ISO image in a file can leave in the filesystem's first blocks, so that blkid
/// finds two contents: util-linux #4031. Version 2.38 exits with 8 then, and 2.41.5 with 2, as on a
/// blank disk.
const DECEIVE_BLKID: &str =
    "set -e; disk=$(readlink -e /dev/disk/by-id/virtio-data); systemctl stop data.mount
printf '\\001CD001\\001\\000' | dd of=$disk bs=1 seek=32768 conv=notrunc,fsync status=none
code=0; blkid --probe $disk || code=$?; test $code = 8 || test $code = 2; udevadm settle";

#[test]
fn tier4_udev_finds_a_filesystem_of_the_agent_that_blkid_does_not_identify() {
    let test = "tier4_udev_finds_a_filesystem_of_the_agent_that_blkid_does_not_identify";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let vm = kit::vm("own")
            .disk(Disk::blank("data", GIB).serial("data"))
            .disk(Disk::blank("other", GIB).serial("other"));
        let data = "- { name: data, match: { serial: data }, filesystem: xfs, mountPoint: /data }\n";
        let machine = kit::guest(scene, &vm, data)?;
        // The same content on a disk that is not the agent's.
        machine.run("mkfs.xfs -q $(readlink -e /dev/disk/by-id/virtio-other)")?;
        kit::applied(&machine)?;
        let (kind, uuid) = kit::mounted(&machine, "/data")?;
        ensure!(kind == "xfs");
        machine.run("echo kept >/data/file && sync")?;
        machine.run(DECEIVE_BLKID)?;
        let disk = "$(readlink -e /dev/disk/by-id/virtio-data)";
        let found = format!(
            "test \"$(readlink -e /dev/disk/by-uuid/{uuid})\" = {disk} && \
             udevadm info --query=property --name={disk} | grep -x 'ID_FS_TYPE=xfs'"
        );
        machine.run(&found)?;
        let other = DECEIVE_BLKID
            .replace("virtio-data", "virtio-other")
            .replace("systemctl stop data.mount", "");
        machine.run(&other)?;
        let properties = "udevadm info --query=property --name=/dev/disk/by-id/virtio-other";
        let properties = machine.run(properties)?;
        ensure!(!properties.contains("ID_FS_TYPE="), "{properties}");
        let other = data.replace("data", "other");
        kit::declare(&machine, &format!("{data}{other}"))?;
        kit::refused(&machine, "other", "foreign-data")?;
        kit::declare(&machine, data)?;

        // A run mounts it, and the next boot does so without the agent's run.
        kit::applied(&machine)?;
        ensure!(kit::mounted(&machine, "/data")?.1 == uuid);
        machine.power_off()?;
        machine.boot_with(&["virtfleet.provision=off"])?;
        machine.wait_agent(AGENT_TIMEOUT)?;
        kit::until_mounted(&machine, "/data")?;
        machine.run(&found)?;
        ensure!(machine.run("cat /data/file")? == "kept");
        ensure!(kit::begun(&machine, "data", "format")? == 1);
        kit::settled(&machine)
    });
}
