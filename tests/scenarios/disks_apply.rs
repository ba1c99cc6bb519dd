//! From blank disks to mounted ones, on real loop devices: what is done, done once, and what is
//! refused.

mod partitions;

use std::fs;

use anyhow::Result;
use virtfleet_tests::{
    disks::{LoopDisk, Stage, grows, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings, SeedFrom};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;

fn declared(name: &str, filesystem: DiskFilesystem) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem,
        mount_point: (filesystem != DiskFilesystem::Swap).then(|| format!("/srv/{name}")),
        grow: true,
        ..DiskSettings::named(name)
    }
}

/// The least that the kind's mkfs takes.
fn bytes(filesystem: DiskFilesystem) -> u64 {
    MIB * match filesystem {
        DiskFilesystem::Ext4 | DiskFilesystem::Swap => 80,
        DiskFilesystem::Xfs => 320,
        DiskFilesystem::Btrfs => 160,
    }
}

fn disk(stage: &Stage, name: &str, filesystem: DiskFilesystem) -> Result<LoopDisk> {
    let disk = LoopDisk::new(stage.folder(), name, bytes(filesystem))?;
    stage.serial(&disk, &format!("serial-{name}"))?;
    Ok(disk)
}

const KINDS: [DiskFilesystem; 3] = [DiskFilesystem::Ext4, DiskFilesystem::Xfs, DiskFilesystem::Btrfs];

fn stage(test: &str) -> Result<Option<Stage>> {
    let needed = needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]);
    skip::need(TIER, test, needed)?.map(|()| Stage::new()).transpose()
}

#[test]
fn tier2_blank_disks_are_mounted_once_and_again_after_a_boot() {
    let Some(mut stage) = stage("tier2_blank_disks_are_mounted_once_and_again_after_a_boot").unwrap() else {
        return;
    };
    let all: Vec<DiskSettings> = KINDS.iter().map(|kind| declared(kind.word(), *kind)).collect();
    let mut loops = Vec::new();
    for kind in &KINDS[..2] {
        loops.push(disk(&stage, kind.word(), *kind).unwrap());
    }
    let plan = stage.plan(&all).unwrap();
    assert!(
        !stage.root().join("var/lib/virtfleet").exists(),
        "a plan writes nothing"
    );
    assert!(plan.plan["disks"][0]["steps"].as_array().unwrap().len() > 2);
    let first = stage.pass(&all).unwrap();
    let standing =
        |outcome: &virtfleet_tests::disks::Outcome| KINDS.map(|kind| outcome.standing(kind.word())).to_vec();
    assert_eq!(standing(&first), ["ready", "ready", "missing"], "{}", first.state);
    // Hot-plug.
    loops.push(disk(&stage, "btrfs", DiskFilesystem::Btrfs).unwrap());
    let second = stage.pass(&all).unwrap();
    assert_eq!(standing(&second), ["ready"; 3], "{}", second.state);
    for kind in KINDS {
        stage
            .sh(&format!(
                "echo kept > /srv/{0}/file && grep ' /srv/{0} {0} ' /proc/mounts",
                kind.word()
            ))
            .unwrap();
        let audit = stage.audit(kind.word()).unwrap();
        assert_eq!(audit, ["about-to format", "done format"]);
    }
    let plan = stage.plan(&all).unwrap();
    for disk in plan.plan["disks"].as_array().unwrap() {
        assert_eq!(disk["steps"].as_array().unwrap().len(), 0, "{disk}");
    }
    let fstab = fs::read_to_string(stage.root().join("etc/fstab")).unwrap();
    let third = stage.pass(&all).unwrap();
    assert!(!third.changed && third.points.is_empty(), "{:?}", third.points);
    stage.boot().unwrap();
    // The kernel takes a while to unmount what went with the last boot; until then the disks are
    // busy.
    for kind in KINDS {
        stage.pass_until(&all, kind.word(), "ready").unwrap();
    }
    let booted = stage.pass(&all).unwrap();
    assert_eq!(standing(&booted), ["ready"; 3], "{}", booted.state);
    for kind in KINDS {
        assert_eq!(
            stage.sh(&format!("cat /srv/{}/file", kind.word())).unwrap(),
            "kept\n"
        );
        assert_eq!(stage.audit(kind.word()).unwrap().len(), 2);
    }
    assert_eq!(fs::read_to_string(stage.root().join("etc/fstab")).unwrap(), fstab);
    // Taken away, it is missing and nothing happens to the others.
    stage.sh("umount /srv/ext4").unwrap();
    stage.no_serial(&loops[0]).unwrap();
    let gone = stage.pass(&all).unwrap();
    assert_eq!(standing(&gone), ["missing", "ready", "ready"], "{}", gone.state);
}

#[test]
fn tier2_filesystems_grow_online_while_somebody_writes() {
    let Some(stage) = stage("tier2_filesystems_grow_online_while_somebody_writes").unwrap() else {
        return;
    };
    // Where the kernel refuses to grow an ext4, the scenarios on real guests cover it.
    let kinds = KINDS.iter().filter(|kind| grows(kind.word()).is_ok());
    let kinds: Vec<DiskFilesystem> = kinds.copied().collect();
    assert!(kinds.len() >= 2);
    let all: Vec<DiskSettings> = kinds.iter().map(|kind| declared(kind.word(), *kind)).collect();
    let loops: Vec<LoopDisk> = kinds
        .iter()
        .map(|kind| disk(&stage, kind.word(), *kind).unwrap())
        .collect();
    stage.pass(&all).unwrap();
    for (kind, disk) in kinds.iter().zip(&loops) {
        let name = kind.word();
        stage
            .sh(&format!(
                "(i=0; while [ -e /srv/{name} ] && [ ! -e /run/stop ]; do i=$((i+1)); \
                 dd if=/dev/urandom of=/srv/{name}/w$((i%8)) bs=64k count=16 2>/dev/null; done) >/dev/null 2>&1 & \
                 dd if=/dev/urandom of=/srv/{name}/kept bs=1M count=8 2>/dev/null; sha256sum < /srv/{name}/kept > /run/sum-{name}"
            ))
            .unwrap();
        disk.grow(bytes(*kind) * 2).unwrap();
    }
    let grown = stage.pass(&all).unwrap();
    for (index, kind) in kinds.iter().enumerate() {
        let name = kind.word();
        assert_eq!(grown.standing(name), "ready", "{}", grown.state);
        let now = grown.state["disks"][index]["filesystemBytes"].as_u64().unwrap();
        assert!(now > bytes(*kind) * 19 / 10, "{name} has {now} bytes");
    }
    stage.sh("touch /run/stop").unwrap();
    for kind in kinds {
        let name = kind.word();
        stage
            .sh(&format!("sha256sum < /srv/{name}/kept | cmp - /run/sum-{name}"))
            .unwrap();
    }
    let again = stage.pass(&all).unwrap();
    assert!(!again.changed, "{:?}", again.points);
}

#[test]
fn tier2_existing_files_are_copied_with_everything_and_busy_ones_refuse() {
    let Some(stage) = stage("tier2_existing_files_are_copied_with_everything_and_busy_ones_refuse").unwrap()
    else {
        return;
    };
    let tree = "set -e; mkdir -p /srv/ext4/a/b; cd /srv/ext4; dd if=/dev/urandom of=a/f bs=1k count=300 2>/dev/null; ln a/f a/b/g; \
                ln -s nowhere l; mkfifo p; mknod n c 1 3; mknod d b 7 250; truncate -s 8M sparse; cp /bin/true s; chmod 4755 s; \
                chown 12:34 a/b; touch -d 2001-01-01T00:00:00.123456789 a/f; chmod 1777 a; \
                if command -v setfattr >/dev/null; then setfattr -n user.x -v 1 a/f; setfattr -n trusted.y -v 2 a; fi; \
                if command -v setfacl >/dev/null; then setfacl -m u:12:rx a/f; setfacl -d -m g:34:rwx a/b; fi";
    stage.sh(tree).unwrap();
    let list = "cd /srv/ext4; find . -path ./lost+found -prune -o -printf '%p %y %m %U %G %n %s %T@ %l\\n' | grep -v '^\\. d' | \
                sed 's/ d \\([0-7]*\\) \\([0-9]* [0-9]*\\) [0-9]* [0-9]* / d \\1 \\2 /' | sort; find . -type f | sort | xargs sha256sum; \
                if command -v getfattr >/dev/null; then find . -path ./lost+found -prune -o -print | sort | xargs getfattr -h -d -m -; fi; \
                stat -c '%t %T' n d";
    let before = stage.sh(list).unwrap();
    let _disk = disk(&stage, "ext4", DiskFilesystem::Ext4).unwrap();
    let mut disks = [declared("ext4", DiskFilesystem::Ext4)];
    let refused = stage.pass(&disks).unwrap();
    assert_eq!(
        refused.refusals("ext4"),
        ["mount-point-taken"],
        "{}",
        refused.state
    );
    disks[0].seed_from = SeedFrom::Existing;
    let sleeper = stage.hold("< /srv/ext4/a/f").unwrap();
    let busy = stage.pass(&disks).unwrap();
    assert_ne!(busy.standing("ext4"), "ready", "{}", busy.state);
    assert!(busy.state.to_string().contains("sleep ("), "{}", busy.state);
    stage.let_go(&[&sleeper]).unwrap();
    let done = stage.pass_until(&disks, "ext4", "ready").unwrap();
    assert_eq!(stage.sh(list).unwrap(), before, "{}", done.state);
    assert_eq!(
        stage.sh("stat -c %b /srv/ext4/sparse").unwrap(),
        "0\n",
        "holes stay"
    );
    stage.sh("umount /srv/ext4 && test -e /srv/ext4/a/f").unwrap();
}

#[test]
fn tier2_without_a_good_journal_nothing_is_formatted() {
    let Some(mut stage) = stage("tier2_without_a_good_journal_nothing_is_formatted").unwrap() else {
        return;
    };
    let disk = disk(&stage, "ext4", DiskFilesystem::Ext4).unwrap();
    let disks = [declared("ext4", DiskFilesystem::Ext4)];
    let journal = "/var/lib/virtfleet/journal";
    let blank = || is_blank(&disk);
    for (prepare, undo) in [
        (
            format!("mkdir -p {journal} && mount -t tmpfs none {journal} && chmod 0700 {journal}"),
            format!("umount {journal}"),
        ),
        (
            format!("mkdir -p {journal} && chmod 0777 {journal}"),
            format!("rmdir {journal}"),
        ),
        (
            format!("mkdir -p /var/lib/virtfleet && touch {journal}"),
            format!("rm {journal}"),
        ),
        (
            format!(
                "mkdir -p -m 0700 {journal} && mount --bind {journal} {journal} && mount -o remount,bind,ro {journal}"
            ),
            format!("umount {journal}"),
        ),
        (
            format!("mkdir -p -m 0700 {journal} && echo '{{\"format\":' > {journal}/ext4.json"),
            format!("rm {journal}/ext4.json"),
        ),
    ] {
        stage.sh(&prepare).unwrap();
        let outcome = stage.pass(&disks).unwrap();
        assert!(
            matches!(outcome.standing("ext4").as_str(), "refused" | "failed"),
            "{prepare}: {}",
            outcome.state
        );
        assert!(blank(), "{prepare}");
        stage.sh(&undo).unwrap();
    }
    stage.pass_until(&disks, "ext4", "ready").unwrap();
    stage.sh("echo kept > /srv/ext4/file").unwrap();
    // A journal of a newer version: nothing is done, and nothing is lost.
    stage.boot().unwrap();
    stage
        .sh(&format!("sed -i 's/\"format\":1/\"format\":2/' {journal}/ext4.json && grep -q '\"format\":2' {journal}/ext4.json"))
        .unwrap();
    let newer = stage.pass(&disks).unwrap();
    assert_eq!(newer.refusals("ext4"), ["no-journal"], "{}", newer.state);
    stage
        .sh(&format!(
            "sed -i 's/\"format\":2/\"format\":1/' {journal}/ext4.json"
        ))
        .unwrap();
    stage.pass_until(&disks, "ext4", "ready").unwrap();
    assert_eq!(stage.sh("cat /srv/ext4/file").unwrap(), "kept\n");
    assert_eq!(stage.audit("ext4").unwrap(), ["about-to format", "done format"]);
}

#[test]
fn tier2_a_disk_that_fails_leaves_no_line_in_fstab_and_hides_nothing() {
    let Some(stage) = stage("tier2_a_disk_that_fails_leaves_no_line_in_fstab_and_hides_nothing").unwrap()
    else {
        return;
    };
    let fstab = || fs::read_to_string(stage.root().join("etc/fstab")).unwrap_or_default();
    let mut all = ["bad", "good"].map(|name| declared(name, DiskFilesystem::Ext4));
    all[0].mkfs_options = ["-N", "4000000000"].map(str::to_owned).to_vec();
    let _disks = ["bad", "good"].map(|name| disk(&stage, name, DiskFilesystem::Ext4).unwrap());
    let first = stage.pass(&all).unwrap();
    assert_eq!(first.standing("bad"), "failed", "{}", first.state);
    assert!(!fstab().contains("/srv/bad"), "{}", fstab());
    stage.sh("grep ' /srv/good ext4 ' /proc/mounts").unwrap();
    all[0].mkfs_options.clear();
    stage.pass_until(&all, "bad", "ready").unwrap();
    let ready = stage.pass_until(&all, "good", "ready").unwrap();
    assert_eq!(
        fstab().matches("# virtfleet disk ").count(),
        2,
        "{} {}",
        fstab(),
        ready.state
    );

    // A disk below a disk: what the plan saw of its mount point is hidden by then.
    let mut below = declared("below", DiskFilesystem::Ext4);
    below.mount_point = Some("/srv/good/below".to_owned());
    stage
        .sh("mkdir /srv/good/below && echo kept > /srv/good/below/file && umount /srv/good && mkdir -p /srv/good/below")
        .unwrap();
    let _below = disk(&stage, "below", DiskFilesystem::Ext4).unwrap();
    let all = [all[1].clone(), below];
    let hidden = stage.pass(&all).unwrap();
    assert_eq!(
        [hidden.standing("good"), hidden.standing("below")],
        ["ready", "failed"],
        "{}",
        hidden.state
    );
    assert!(
        hidden
            .state
            .to_string()
            .contains("entries are in /srv/good/below"),
        "{}",
        hidden.state
    );
    assert_eq!(stage.sh("cat /srv/good/below/file").unwrap(), "kept\n");
    let again = stage.pass(&all).unwrap();
    assert_eq!(again.refusals("below"), ["mount-point-taken"], "{}", again.state);
}

/// The file has no data at all.
fn is_blank(disk: &LoopDisk) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(&disk.file).is_ok_and(|file| file.blocks() == 0)
}
