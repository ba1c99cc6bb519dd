//! The agent's own filesystems, in use, whose files make blkid find something else: they are
//! mounted and keep their data. Other content on them is refused.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_agent_host::{Roots, SystemCommands};
use virtfleet_agent_provision::disks::udev_properties;
use virtfleet_tests::{
    bins,
    disks::{LoopDisk, Stage, needs},
    process::Launch,
    scratch, skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const DEADLINE: Duration = Duration::from_mins(2);
/// blkid(8): the content is ambivalent.
const AMBIVALENT: i32 = 8;
/// Primary volume descriptor of an ISO image, at its first 32 KiB.
const ISO: &[u8] = b"\x01CD001\x01\0";
/// An uberblock of ZFS: its magic number and a version.
const UBERBLOCK: [u64; 2] = [0x00ba_b10c, 5000];

fn declared(filesystem: DiskFilesystem) -> DiskSettings {
    let name = filesystem.word();
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem,
        mount_point: Some(format!("/srv/{name}")),
        ..DiskSettings::named(name)
    }
}

fn disk(stage: &Stage, filesystem: DiskFilesystem, bytes: u64) -> Result<LoopDisk> {
    let disk = LoopDisk::new(stage.folder(), filesystem.word(), bytes)?;
    stage.serial(&disk, &format!("serial-{}", filesystem.word()))?;
    Ok(disk)
}

fn stage(test: &str) -> Result<Option<Stage>> {
    let needed = needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "wipefs"]);
    skip::need(TIER, test, needed)?.map(|()| Stage::new()).transpose()
}

fn uberblock() -> Vec<u8> {
    UBERBLOCK.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A MiB in which each block of a filesystem begins as an ISO image and continues as uberblocks.
fn poison() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    for (index, part) in bytes.chunks_mut(1 << 10).enumerate() {
        let text = if index % 4 == 0 { ISO.to_vec() } else { uberblock() };
        part[..text.len()].copy_from_slice(&text);
    }
    bytes
}

/// The second header of a LUKS2 container (`struct luks2_hdr_disk`), as at this offset.
fn second_luks_header(offset: u64) -> Vec<u8> {
    let mut header = vec![0; 4096];
    for (at, bytes) in [
        (0, &b"SKUL\xba\xbe\0\x02"[..]),
        (8, &16384_u64.to_be_bytes()),
        (168, b"c7d586b5-8bd3-4f78-909e-4741104fcf8c"),
        (256, &offset.to_be_bytes()),
    ] {
        header[at..at + bytes.len()].copy_from_slice(bytes);
    }
    header
}

/// Writes to the disk while nothing has it mounted. What lies in free space is as the data of a
/// deleted file.
fn write(disk: &LoopDisk, offset: u64, bytes: &[u8]) -> Result<()> {
    let file = File::options().write(true).open(&disk.node)?;
    file.write_all_at(bytes, offset)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("write to {}", disk.node))
}

fn uberblocks(disk: &LoopDisk, offset: u64) -> Result<()> {
    (0..8).try_for_each(|index| write(disk, offset + index * 4 * KIB, &uberblock()))
}

fn blkid(disk: &LoopDisk) -> Result<(i32, String)> {
    let output = Launch::new("blkid")
        .args(["--probe", "--output", "export", &disk.node])
        .output(DEADLINE)?;
    let code = output.status.code().context("blkid was killed")?;
    Ok((code, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// What udev would import, with the stage's journal, if its blkid has reported these kinds.
fn udev(stage: &Stage, disk: &LoopDisk, kinds: &[&str]) -> Result<String> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let roots = Roots {
        rootfs: stage.root(),
        ..Roots::default()
    };
    let node = Path::new(&disk.node);
    Ok(udev_properties(&roots, &SystemCommands, node, &kinds)?)
}

fn journaled_uuid(stage: &Stage, name: &str) -> Result<String> {
    let file = stage
        .root()
        .join(format!("var/lib/virtfleet/journal/{name}.json"));
    let entry: serde_json::Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    Ok(entry["uuid"]
        .as_str()
        .context("no UUID in the journal")?
        .to_owned())
}

/// Makes and mounts the filesystem and writes a file, of which this is the checksum.
fn used(stage: &Stage, settings: &[DiskSettings]) -> Result<String> {
    let name = &settings[0].name;
    stage.pass_until(settings, name, "ready")?;
    stage.sh(&format!(
        "dd if=/dev/urandom of=/srv/{name}/kept bs=64k count=4 2>/dev/null; sync; sha256sum </srv/{name}/kept"
    ))
}

/// Mounted by a run after a boot, with its data, and formatted once in its life. Returns the notes
/// of the plan.
fn mounted_again(stage: &mut Stage, settings: &[DiskSettings], disk: &LoopDisk, sum: &str) -> Result<String> {
    let name = settings[0].name.clone();
    stage.boot()?;
    let plan = stage.plan(settings)?;
    let notes = plan.plan["disks"][0]["notes"].to_string();
    stage.pass_until(settings, &name, "ready")?;
    ensure!(
        stage.sh(&format!("sha256sum </srv/{name}/kept"))? == sum,
        "{name}: other data"
    );
    ensure!(
        stage.audit(&name)? == ["about-to format", "done format"],
        "{name}: {:?}",
        stage.audit(&name)?
    );
    // In use it stays in place, also when its UUID has to be read from the disk again.
    let again = stage.pass(settings)?;
    ensure!(
        !again.changed && again.standing(&name) == "ready",
        "{}",
        again.state
    );
    let uuid = journaled_uuid(stage, &name)?;
    let expected =
        format!("ID_FS_TYPE={name}\nID_FS_USAGE=filesystem\nID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n");
    let properties = udev(stage, disk, &[])?;
    ensure!(properties == expected, "{name}: {properties}");
    Ok(notes)
}

/// The refusal of a disk, which is of the kind `foreign-data`: message and remedy.
fn refused(stage: &Stage, settings: &[DiskSettings]) -> Result<(String, String)> {
    let name = &settings[0].name;
    let plan = stage.plan(settings)?;
    ensure!(plan.refusals(name) == ["foreign-data"], "{}", plan.plan);
    let refusal = &plan.plan["disks"][0]["refusals"][0];
    let text = |key: &str| refusal[key].as_str().unwrap_or_default().to_owned();
    ensure!(text("evidence").is_empty(), "it could be approved: {refusal}");
    Ok((text("message"), text("remedy")))
}

/// ext4 and xfs, filled to the last block.
#[test]
fn tier2_an_own_filesystem_full_of_foreign_signatures_is_mounted() {
    let Some(mut stage) = stage("tier2_an_own_filesystem_full_of_foreign_signatures_is_mounted").unwrap()
    else {
        return;
    };
    fs::write(stage.root().join("tmp/poison"), poison()).unwrap();
    for (filesystem, bytes) in [(DiskFilesystem::Ext4, 80 * MIB), (DiskFilesystem::Xfs, 320 * MIB)] {
        let name = filesystem.word();
        let settings = [declared(filesystem)];
        let disk = disk(&stage, filesystem, bytes).unwrap();
        let sum = used(&stage, &settings).unwrap();
        stage
            .sh(&format!(
                "while cat /tmp/poison; do :; done 2>/dev/null >/srv/{name}/poison; sync; umount /srv/{name}"
            ))
            .unwrap();
        let (code, said) = blkid(&disk).unwrap();
        println!("{name}: blkid {code} {said}");
        assert_eq!(code, AMBIVALENT, "{name}: {said}");
        let notes = mounted_again(&mut stage, &settings, &disk, &sum).unwrap();
        assert!(notes.contains("blkid does not identify"), "{notes}");
        stage.sh(&format!("umount /srv/{name}")).unwrap();
    }
}

/// Data of deleted files, at each place where blkid is known to have been deceived.
#[test]
fn tier2_an_own_filesystem_with_a_foreign_signature_in_free_space_is_mounted() {
    let Some(mut stage) =
        stage("tier2_an_own_filesystem_with_a_foreign_signature_in_free_space_is_mounted").unwrap()
    else {
        return;
    };
    for (filesystem, bytes) in [
        (DiskFilesystem::Ext4, 80 * MIB),
        (DiskFilesystem::Btrfs, 160 * MIB),
        (DiskFilesystem::Xfs, 320 * MIB),
    ] {
        let name = filesystem.word();
        let settings = [declared(filesystem)];
        let disk = disk(&stage, filesystem, bytes).unwrap();
        let sum = used(&stage, &settings).unwrap();
        stage.sh(&format!("umount /srv/{name}")).unwrap();
        // The fourth label of a pool.
        uberblocks(&disk, bytes - 128 * KIB).unwrap();
        assert_eq!(blkid(&disk).unwrap().0, AMBIVALENT, "{name}");
        mounted_again(&mut stage, &settings, &disk, &sum).unwrap();
        stage.sh(&format!("umount /srv/{name}")).unwrap();
        if filesystem == DiskFilesystem::Xfs {
            write(&disk, 32 * KIB, ISO).unwrap();
            mounted_again(&mut stage, &settings, &disk, &sum).unwrap();
            stage.sh(&format!("umount /srv/{name}")).unwrap();
        }
    }
}

/// blkid reports it alone, and not the filesystem.
#[test]
fn tier2_an_own_xfs_with_the_second_header_of_a_luks_image_is_mounted() {
    let Some(mut stage) =
        stage("tier2_an_own_xfs_with_the_second_header_of_a_luks_image_is_mounted").unwrap()
    else {
        return;
    };
    let settings = [declared(DiskFilesystem::Xfs)];
    let disk = disk(&stage, DiskFilesystem::Xfs, 320 * MIB).unwrap();
    let sum = used(&stage, &settings).unwrap();
    stage.sh("umount /srv/xfs").unwrap();
    write(&disk, 4 * MIB, &second_luks_header(4 * MIB)).unwrap();
    let (code, said) = blkid(&disk).unwrap();
    assert!(
        code == 0 && said.contains("TYPE=crypto_LUKS"),
        "blkid {code} {said}"
    );
    let notes = mounted_again(&mut stage, &settings, &disk, &sum).unwrap();
    assert!(notes.contains("crypto_LUKS at byte 4194304"), "{notes}");
    let properties = udev(&stage, &disk, &["crypto_LUKS"]).unwrap();
    assert!(properties.starts_with("ID_FS_TYPE=xfs\n"), "{properties}");
    assert_eq!(
        udev(&stage, &disk, &["crypto_LUKS", "sun"]).unwrap(),
        "",
        "blkid reports what wipefs does not list"
    );
}

#[test]
fn tier2_other_content_on_an_own_filesystem_is_refused_without_advice_to_erase_it() {
    let test = "tier2_other_content_on_an_own_filesystem_is_refused_without_advice_to_erase_it";
    if stage(test).unwrap().is_none() {
        return;
    }
    // A partition table with one partition, in the first sector.
    let mut table = vec![0; 512 - 446];
    table[4..8].copy_from_slice(&[0x83, 0, 0, 0]);
    table[8..16].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
    table[64..].copy_from_slice(&[0x55, 0xAA]);
    let pool: Vec<u8> = (0..8)
        .flat_map(|_| uberblock().into_iter().chain(vec![0; 4096 - 16]))
        .collect();
    for (filesystem, bytes, offset, content, said) in [
        (DiskFilesystem::Ext4, 80 * MIB, 446, &table, "dos at byte 510"),
        (DiskFilesystem::Xfs, 320 * MIB, 446, &table, "dos"),
        // A label at the start, which a pool on the whole device has.
        (
            DiskFilesystem::Ext4,
            80 * MIB,
            128 * KIB,
            &pool,
            "zfs_member at byte",
        ),
        (
            DiskFilesystem::Btrfs,
            160 * MIB,
            128 * KIB,
            &pool,
            "zfs_member at byte",
        ),
    ] {
        let name = filesystem.word();
        let mut stage = Stage::new().unwrap();
        let settings = [declared(filesystem)];
        let disk = disk(&stage, filesystem, bytes).unwrap();
        let sum = used(&stage, &settings).unwrap();
        stage.sh(&format!("umount /srv/{name}")).unwrap();
        let mut before = vec![0; content.len()];
        let file = File::open(&disk.file).unwrap();
        file.read_exact_at(&mut before, offset).unwrap();
        write(&disk, offset, content).unwrap();
        stage.boot().unwrap();
        let (message, remedy) = refused(&stage, &settings).unwrap();
        println!("{message}\n  {remedy}");
        assert!(message.contains(said), "{message}");
        assert!(message.contains("the agent's own"), "{message}");
        assert!(
            remedy.starts_with("erase nothing") && !remedy.contains("wipefs"),
            "{remedy}"
        );
        assert_eq!(udev(&stage, &disk, &[]).unwrap(), "", "{name}");
        // Nothing was changed, and when the content is gone, the filesystem is mounted.
        let outcome = stage.pass(&settings).unwrap();
        assert_eq!(outcome.standing(name), "refused", "{}", outcome.state);
        let mut after = vec![0; content.len()];
        file.read_exact_at(&mut after, offset).unwrap();
        assert_eq!(after, *content);
        write(&disk, offset, &before).unwrap();
        mounted_again(&mut stage, &settings, &disk, &sum).unwrap();
    }
}

#[test]
fn tier2_another_filesystem_in_place_of_an_own_one_is_refused_as_before() {
    let Some(mut stage) =
        stage("tier2_another_filesystem_in_place_of_an_own_one_is_refused_as_before").unwrap()
    else {
        return;
    };
    let settings = [declared(DiskFilesystem::Ext4)];
    let disk = disk(&stage, DiskFilesystem::Ext4, 320 * MIB).unwrap();
    used(&stage, &settings).unwrap();
    stage.sh("umount /srv/ext4").unwrap();
    Launch::new("mkfs.xfs")
        .args(["-q", "-f", &disk.node])
        .text(DEADLINE)
        .unwrap();
    // Ambivalent, too.
    uberblocks(&disk, 320 * MIB - 128 * KIB).unwrap();
    assert_eq!(blkid(&disk).unwrap().0, AMBIVALENT);
    stage.boot().unwrap();
    let (message, remedy) = refused(&stage, &settings).unwrap();
    assert!(
        !message.contains("the agent's own") && remedy.contains("wipefs --all"),
        "{message}: {remedy}"
    );
    assert_eq!(udev(&stage, &disk, &[]).unwrap(), "");
}

/// An error in it would fail the event of a device, and with it the link of the device.
#[test]
fn the_verb_that_udev_runs_prints_nothing_and_does_not_fail() {
    let folder = scratch::marked().unwrap();
    let run = || {
        let output = Launch::new(bins::agent().unwrap())
            .arg("--path.rootfs")
            .arg(folder.path())
            .args(["disks", "udev", "/dev/vdz"])
            .output(DEADLINE)
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(0), String::new())
        );
        text(&output.stderr)
    };
    assert_eq!(run(), "", "no journal");
    let place = folder.path().join("var/lib/virtfleet");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("journal"), "").unwrap();
    assert!(run().contains("cannot tell whether the agent uses"));
}
