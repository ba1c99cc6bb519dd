//! Several disks in one reconcile run, with a stand-in for systemd: the agent reloads units once, a
//! disk that fails stops no other disk, and a kill at any point, followed by a boot that mounts the
//! units in `/etc`, leaves nothing half filled.

mod places;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    disks::{LoopDisk, ON_READ, Order, Outcome, Stage, needs},
    skip, wait,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings, SeedFrom};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const SOON: std::time::Duration = std::time::Duration::from_secs(30);
/// What a boot does: every unit that the boot's target asks for is mounted, without the agent.
const BOOT_MOUNTS: &str = "set -e; cd /etc/systemd/system 2>/dev/null || exit 0; \
    for want in multi-user.target.d/*.conf; do [ -e \"$want\" ] || continue; \
    unit=$(sed -n s/^Wants=//p \"$want\"); [ -e \"$unit\" ] || continue; \
    uuid=$(sed -n 's,^What=/dev/disk/by-uuid/,,p' \"$unit\"); place=$(sed -n s/^Where=//p \"$unit\"); \
    mkdir -p \"$place\"; mount -t ext4 \"$(findfs UUID=$uuid)\" \"$place\"; done";

fn declared(name: &str, at: &str) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem: DiskFilesystem::Ext4,
        mount_point: Some(at.to_owned()),
        ..DiskSettings::named(name)
    }
}

fn disk(stage: &Stage, name: &str) -> Result<LoopDisk> {
    let disk = LoopDisk::new(stage.folder(), name, 80 * MIB)?;
    stage.serial(&disk, &format!("serial-{name}"))?;
    Ok(disk)
}

fn pass(stage: &Stage, disks: &[DiskSettings]) -> Result<Outcome> {
    let outcome = stage.order(&Order {
        disks: disks.to_vec(),
        systemd: true,
        ..Order::default()
    })?;
    ensure!(outcome.code == 0, "{}", outcome.text);
    Ok(outcome)
}

fn stage(test: &str) -> Result<Option<Stage>> {
    skip::need(TIER, test, needs(&["mkfs.ext4", "findfs"]))?
        .map(|()| Stage::new())
        .transpose()
}

#[test]
fn tier2_units_are_read_again_once_in_a_pass() {
    let Some(stage) = stage("tier2_units_are_read_again_once_in_a_pass").unwrap() else {
        return;
    };
    let mut all = [
        declared("above", "/srv/above"),
        declared("bad", "/srv/bad"),
        declared("on-bad", "/srv/bad/below"),
        declared("filled", "/srv/filled"),
        declared("below", "/srv/above/below"),
    ];
    all[0].required = true;
    all[1].mkfs_options = ["-N", "4000000000"].map(str::to_owned).to_vec();
    all[3].seed_from = SeedFrom::Existing;
    let _loops = ["above", "bad", "on-bad", "filled", "below"].map(|name| disk(&stage, name).unwrap());
    stage
        .sh("mkdir -p /srv/filled && echo old > /srv/filled/file")
        .unwrap();
    let first = stage
        .order(&Order {
            disks: all.to_vec(),
            systemd: true,
            boot: true,
            ..Order::default()
        })
        .unwrap();
    let names = all.clone().map(|disk| disk.name);
    let standing = |outcome: &Outcome| names.clone().map(|name| outcome.standing(&name));
    assert_eq!(
        standing(&first),
        ["ready", "failed", "failed", "ready", "ready"],
        "{}",
        first.state
    );
    let why = first.error("on-bad");
    assert!(why.contains("lies on the disk \"bad\""), "{why}");
    let asked = stage.asked();
    let count = |what: &str| asked.iter().filter(|line| *line == what).count();
    // Once for the gate, which is queued before anything takes long, once for all that is made,
    // once for what is filled: little time passes after its copy.
    assert_eq!(count("daemon-reload"), 3, "{asked:?}");
    assert_eq!(
        asked[..2],
        ["daemon-reload", "start --no-block virtfleet-disks.service"]
    );
    let starts: Vec<&str> = asked
        .iter()
        .filter(|line| line.starts_with("start srv-"))
        .map(String::as_str)
        .collect();
    // What others are mounted on comes first, what is filled last.
    assert_eq!(
        starts,
        [
            "start srv-above.mount",
            "start srv-above-below.mount",
            "start srv-filled.mount"
        ]
    );
    stage
        .sh("grep -q ' /srv/above/below ext4 ' /proc/mounts && grep -q old /srv/filled/file && ! grep ' /srv/bad' /proc/mounts \
             && ! ls /etc/systemd/system | grep srv-bad")
        .unwrap();
    let bad = all[1].mkfs_options.clone();
    all[1].mkfs_options.clear();
    let second = pass(&stage, &all).unwrap();
    assert_eq!(standing(&second), ["ready"; 5], "{}", second.state);
    assert_eq!(
        stage
            .asked()
            .iter()
            .filter(|line| *line == "daemon-reload")
            .count(),
        1
    );
    all[1].mkfs_options = bad;
    let third = pass(&stage, &all).unwrap();
    assert!(!third.changed, "{:?}", third.points);
    let asked = stage.asked();
    assert!(
        !asked
            .iter()
            .any(|line| line == "daemon-reload" || line.contains(".mount")),
        "{asked:?}"
    );
}

/// Each slow disk is locked until the good one is mounted, and the gate could know: were it waited
/// for before, it would be given up after ten seconds.
#[test]
fn tier2_disks_that_answer_late_hold_up_no_other_and_have_their_turn_in_the_same_pass() {
    let Some(stage) =
        stage("tier2_disks_that_answer_late_hold_up_no_other_and_have_their_turn_in_the_same_pass").unwrap()
    else {
        return;
    };
    let slow = ["s1", "s2", "s3"];
    let mut all: Vec<DiskSettings> = slow
        .iter()
        .map(|name| declared(name, &format!("/srv/{name}")))
        .collect();
    all.push(declared("below", "/srv/s1/below"));
    all.push(declared("good", "/srv/good"));
    let loops: Vec<LoopDisk> = all
        .iter()
        .map(|disk_| disk(&stage, &disk_.name).unwrap())
        .collect();
    let nodes: Vec<&str> = loops
        .iter()
        .take(slow.len())
        .map(|disk| disk.node.as_str())
        .collect();
    stage
        .sh(&format!(
            "for d in {}; do flock $d sh -c 'touch /run/held-$(basename '$d'); n=0; \
             until [ -e /run/virtfleet/state/disks.json ] && grep -q \" /srv/good \" /proc/mounts || [ $n -ge 600 ]; do n=$((n+1)); sleep 0.1; done; \
             grep -c \"^[0-9]*: -> FLOCK\" /proc/locks > /run/waiters' >/dev/null 2>&1 & done; \
             while [ $(ls /run | grep -c ^held) -lt 3 ]; do sleep 0.1; done",
            nodes.join(" ")
        ))
        .unwrap();
    let outcome = pass(&stage, &all).unwrap();
    for disk in &all {
        assert_eq!(
            outcome.standing(&disk.name),
            "ready",
            "{}: {}",
            disk.name,
            outcome.state
        );
    }
    let points = &outcome.points;
    let place = |point: &str| points.iter().position(|other| other == point);
    assert!(place("good mounted") < place("s1 claimed"), "{points:?}");
    assert!(place("s1 mounted") < place("below mounted"), "{points:?}");
    let waiters = stage.sh("cat /run/waiters").unwrap();
    assert!(
        waiters
            .trim()
            .parse::<usize>()
            .is_ok_and(|count| count <= slow.len()),
        "more than one reader of a disk: {waiters}"
    );
    let again = pass(&stage, &all).unwrap();
    assert!(!again.changed, "{:?}", again.points);
}

#[test]
fn tier2_the_gate_stands_before_anything_can_fail() {
    let Some(stage) = stage("tier2_the_gate_stands_before_anything_can_fail").unwrap() else {
        return;
    };
    let all = [DiskSettings {
        required: true,
        ..declared("data", "/srv/data")
    }];
    let _disk = disk(&stage, "data").unwrap();
    let order = Order {
        disks: all.to_vec(),
        systemd: true,
        ..Order::default()
    };
    stage.sh("mount -t tmpfs none /sys").unwrap();
    let failed = stage.order(&order).unwrap();
    assert!(
        failed.code != 0 && failed.text.contains("cannot list the disks"),
        "{}",
        failed.text
    );
    let gate = "cd /etc/systemd/system && grep -l X-Virtfleet-Gate virtfleet-disks.service kubelet.service.d/50-virtfleet-disks.conf";
    stage.sh(gate).unwrap();
    assert_eq!(
        stage.asked(),
        ["daemon-reload", "start --no-block virtfleet-disks.service"]
    );
    stage.sh("umount /sys").unwrap();
    let ready = pass(&stage, &all).unwrap();
    assert_eq!(ready.standing("data"), "ready", "{}", ready.state);
    // No longer required, and again nothing is known: they stay until a plan says otherwise.
    let free = [declared("data", "/srv/data")];
    stage.sh("mount -t tmpfs none /sys").unwrap();
    let order = Order {
        disks: free.to_vec(),
        ..order
    };
    assert!(stage.order(&order).unwrap().code != 0);
    stage.sh(gate).unwrap();
    stage.sh("umount /sys").unwrap();
    pass(&stage, &free).unwrap();
    stage
        .sh("! ls /etc/systemd/system/virtfleet-disks.service")
        .unwrap();
}

#[test]
fn tier2_a_disk_is_filled_from_the_one_above_and_not_from_what_that_hides() {
    let Some(stage) =
        stage("tier2_a_disk_is_filled_from_the_one_above_and_not_from_what_that_hides").unwrap()
    else {
        return;
    };
    let mut all = [
        declared("above", "/srv/above"),
        declared("below", "/srv/above/below"),
    ];
    let _above = disk(&stage, "above").unwrap();
    pass(&stage, &all[..1]).unwrap();
    stage
        .sh(
            "mkdir /srv/above/below && echo real > /srv/above/below/file && umount /srv/above && \
             mkdir -p /srv/above/below && echo hidden > /srv/above/below/file",
        )
        .unwrap();
    all[1].seed_from = SeedFrom::Existing;
    let _below = disk(&stage, "below").unwrap();
    stage.asked();
    // What lies under the mount point of the disk above is hidden by it, as it was before.
    let outcome = pass(&stage, &all).unwrap();
    assert_eq!(outcome.standing("below"), "ready", "{}", outcome.state);
    assert_eq!(stage.sh("cat /srv/above/below/file").unwrap(), "real\n");
    let asked = stage.asked();
    let place = |what: &str| asked.iter().position(|line| line == what);
    assert!(
        place("start srv-above.mount") < place("start srv-above-below.mount"),
        "{asked:?}"
    );
}

#[test]
fn tier2_what_is_changed_after_its_copy_is_copied_anew_and_never_hidden() {
    let Some(stage) = stage("tier2_what_is_changed_after_its_copy_is_copied_anew_and_never_hidden").unwrap()
    else {
        return;
    };
    let all = [DiskSettings {
        seed_from: SeedFrom::Existing,
        ..declared("data", "/srv/data")
    }];
    let _disk = disk(&stage, "data").unwrap();
    // Units are read between the copy and the mount.
    stage
        .sh(&format!(
            "mkdir -p /srv/data/sub && echo old > /srv/data/sub/file && echo 'echo new > /srv/data/sub/file' > {ON_READ}"
        ))
        .unwrap();
    let refused = pass(&stage, &all).unwrap();
    assert_eq!(refused.standing("data"), "failed", "{}", refused.state);
    let why = refused.error("data");
    assert!(why.contains("/srv/data was changed after it was copied"), "{why}");
    stage
        .sh(&format!("! grep ' /srv/data ' /proc/mounts && rm {ON_READ}"))
        .unwrap();
    let again = pass(&stage, &all).unwrap();
    assert_eq!(again.standing("data"), "ready", "{}", again.state);
    assert_eq!(stage.sh("cat /srv/data/sub/file").unwrap(), "new\n");
}

#[test]
fn tier2_killed_at_every_point_of_a_pass_over_two_disks() {
    let Some(mut stage) = stage("tier2_killed_at_every_point_of_a_pass_over_two_disks").unwrap() else {
        return;
    };
    let mut point = 1;
    loop {
        let names = [format!("plain{point}"), format!("filled{point}")];
        let mut all = names.clone().map(|name| declared(&name, &format!("/srv/{name}")));
        all[1].seed_from = SeedFrom::Existing;
        let loops = names.clone().map(|name| disk(&stage, &name).unwrap());
        stage
            .sh(&format!(
                "mkdir -p /srv/{0}/a && dd if=/dev/urandom of=/srv/{0}/a/f bs=64k count=9 2>/dev/null && sha256sum < /srv/{0}/a/f > /run/sum",
                names[1]
            ))
            .unwrap();
        let outcome = stage
            .order(&Order {
                disks: all.to_vec(),
                systemd: true,
                kill_at: Some(point),
                ..Order::default()
            })
            .unwrap();
        let at = format!("point {point}: {:?}", outcome.points);
        let killed = outcome.killed;
        if point % 2 == 0 {
            stage.boot().unwrap();
            stage.sh(BOOT_MOUNTS).context(at.clone()).unwrap();
        }
        let sum = stage
            .sh(&format!("cd /srv/{}; sha256sum < a/f | cmp - /run/sum", names[1]))
            .context(at.clone());
        sum.unwrap();
        // What the killed run has started may be busy still.
        let done = wait::eventually(SOON, "both are ready and nothing is left to do", || {
            let done = pass(&stage, &all)?;
            let ready = names.iter().all(|name| done.standing(name) == "ready");
            ensure!(ready && !done.changed, "{:?} {}", done.points, done.state);
            Ok(done)
        })
        .context(at.clone())
        .unwrap();
        for name in &names {
            assert_eq!(done.standing(name), "ready", "{at}: {}", done.state);
            let audit = stage.audit(name).unwrap();
            let formats = audit.iter().filter(|line| *line == "done format").count();
            assert!(formats <= 1, "{at}: {audit:?}");
            let journal = stage
                .root()
                .join(format!("var/lib/virtfleet/journal/{name}.json"));
            let entry = std::fs::read_to_string(journal).unwrap();
            assert!(entry.contains("\"used\""), "{at}: {entry}");
        }
        assert!(!done.changed, "{at}: {:?}", done.points);
        stage
            .sh(&format!(
                "sha256sum < /srv/{}/a/f | cmp - /run/sum && grep -c ' /srv/.* ext4 ' /proc/mounts",
                names[1]
            ))
            .context(at)
            .unwrap();
        stage
            .sh(&format!(
                "umount /srv/{0} /srv/{1}; rm -rf --one-file-system /srv/* /etc/systemd/system /run/read-units",
                names[0], names[1]
            ))
            .unwrap();
        for disk in &loops {
            stage.no_serial(disk).unwrap();
        }
        if !killed {
            break;
        }
        point += 1;
    }
    println!("killed at {point} points");
    assert!(point > 30, "{point}");
}
