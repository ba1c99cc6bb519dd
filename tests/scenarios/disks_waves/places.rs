//! One disk for several places: directories of its filesystem, bind-mounted at each.
//!
//! `VIRTFLEET_DISK_PLACES_STEP` says how many points between two effects lie between two kills: 1
//! kills at each.

use std::env;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::disks::{LoopDisk, Order, Outcome, Stage};
use virtfleet_wire::settings::{DiskFilesystem, DiskOwner, DiskPlace, DiskSettings, SeedFrom};

use super::{MIB, declared, disk, stage};

/// What a boot does with the units of such a disk, as systemd does: it reads all units, and mounts
/// the filesystem first, then each place whose assertions hold.
const BOOT: &str = "set -e; rm -rf /run/read-units; cd /etc/systemd/system 2>/dev/null || exit 0; cp -a . /run/read-units; \
    for want in multi-user.target.d/*.conf; do [ -e \"$want\" ] || continue; \
    for unit in $(sed -n s/^Wants=//p \"$want\"); do [ -e \"$unit\" ] || continue; \
    place=$(sed -n s/^Where=//p \"$unit\"); what=$(sed -n s/^What=//p \"$unit\"); \
    whole=$(sed -n s/^AssertPathIsMountPoint=//p \"$unit\"); source=$(sed -n s/^AssertPathIsDirectory=//p \"$unit\"); \
    if [ -z \"$whole\" ]; then mkdir -p \"$place\"; disk=$(findfs UUID=${what##*/}) || continue; mount $disk \"$place\"; continue; fi; \
    mountpoint -q \"$whole\" && [ -d \"$source\" ] || continue; \
    mkdir -p \"$place\"; mount --bind \"$what\" \"$place\"; done; done";
/// What `mount -a` does at the boot of a guest without systemd; what fails is passed over, as
/// `nofail` says.
const MOUNT_ALL: &str = "while read -r what place kind options rest; do case $what in \
    UUID=*) mkdir -p $place; disk=$(findfs $what) && mount $disk $place;; /*) mount --bind $what $place;; esac; \
    done < /etc/fstab 2>/dev/null; true";

/// Below `/srv/<name>`: with files, an empty directory, and nothing.
const PLACES: [&str; 3] = ["full", "empty", "none"];

fn shared(name: &str) -> DiskSettings {
    let places = PLACES.map(|place| DiskPlace {
        path: format!("/srv/{name}/{place}"),
        directory: (place == "full").then(|| place.to_owned()),
        ..DiskPlace::default()
    });
    DiskSettings {
        mount_point: None,
        places: places.to_vec(),
        seed_from: SeedFrom::Existing,
        required: true,
        ..declared(name, "")
    }
}

/// Puts files, owners and modes at the places.
fn fill(stage: &Stage, name: &str) -> Result<()> {
    let script = "set -e; mkdir -p D/full/a D/empty; chmod 0750 D/full; chown 12:34 D/full; chmod 0700 D/empty; \
        touch -d 2001-01-01T00:00:00 D/full/a; for i in 1 2 3; do dd if=/dev/urandom of=D/full/a/$i bs=64k count=3 2>/dev/null; done; \
        ln D/full/a/1 D/full/hard; ln -s a D/full/soft; cd D/full; find . -type f | sort | xargs sha256sum > /run/sums-N";
    stage
        .sh(&script.replace('D', &format!("/srv/{name}")).replace('N', name))
        .map(drop)
}

/// Every place has what was there, with owner and mode, from the disk.
fn right(stage: &Stage, name: &str) -> Result<()> {
    let script = "set -e; cd /srv/NAME; sha256sum --quiet --check /run/sums-NAME 2>/dev/null || (cd full && sha256sum --quiet --check /run/sums-NAME); \
        test -h full/soft && test full/a/1 -ef full/hard; \
        test \"$(stat -c '%a %u %g' full empty none)\" = \"$(printf '750 12 34\\n700 0 0\\n755 0 0')\"; \
        for p in full empty none; do mountpoint -q $p; touch $p/written; done; \
        whole=/var/lib/virtfleet-disks/NAME; test \"$(stat -c %a $whole)\" = 700; \
        test -e $whole/full/written -a -e $whole/srv-NAME-empty/written -a -e $whole/srv-NAME-none/written; \
        test -z \"$(ls -A $whole | grep virtfleet)\"; rm $whole/*/written";
    stage
        .sh(&script.replace("NAME", name))
        .map(drop)
        .context("at the places")
}

fn run(stage: &Stage, disk: &DiskSettings, systemd: bool) -> Result<Outcome> {
    let outcome = stage.order(&Order {
        disks: vec![disk.clone()],
        systemd,
        ..Order::default()
    })?;
    ensure!(outcome.code == 0, "{}", outcome.text);
    Ok(outcome)
}

fn until_ready(stage: &Stage, disk: &DiskSettings, systemd: bool) -> Result<Outcome> {
    let name = &disk.name;
    virtfleet_tests::wait::eventually(std::time::Duration::from_secs(30), name, || {
        let outcome = run(stage, disk, systemd)?;
        ensure!(outcome.standing(name) == "ready", "{}", outcome.state);
        Ok(outcome)
    })
}

fn bytes(kind: DiskFilesystem) -> u64 {
    MIB * match kind {
        DiskFilesystem::Xfs => 320,
        DiskFilesystem::Btrfs => 160,
        DiskFilesystem::Ext4 | DiskFilesystem::Swap => 80,
    }
}

#[test]
fn tier2_one_disk_is_mounted_at_several_places_and_again_after_a_boot() {
    let Some(mut stage) =
        stage("tier2_one_disk_is_mounted_at_several_places_and_again_after_a_boot").unwrap()
    else {
        return;
    };
    for kind in [DiskFilesystem::Ext4, DiskFilesystem::Xfs, DiskFilesystem::Btrfs] {
        for systemd in [false, true] {
            let name = format!("{}-{}", kind.word(), if systemd { "u" } else { "f" });
            let loops = LoopDisk::new(stage.folder(), &name, bytes(kind)).unwrap();
            stage.serial(&loops, &format!("serial-{name}")).unwrap();
            fill(&stage, &name).unwrap();
            let all = DiskSettings {
                filesystem: kind,
                options: vec!["nodev".to_owned()],
                ..shared(&name)
            };
            let first = run(&stage, &all, systemd).unwrap();
            assert_eq!(first.standing(&name), "ready", "{}", first.state);
            right(&stage, &name).unwrap();
            let places = first.state["disks"][0]["places"].as_array().unwrap();
            assert!(
                places.len() == 3 && places.iter().all(|place| place["mounted"] == true),
                "{}",
                first.state
            );
            assert_eq!(stage.audit(&name).unwrap(), ["about-to format", "done format"]);
            let again = run(&stage, &all, systemd).unwrap();
            assert!(!again.changed && again.points.is_empty(), "{:?}", again.points);
            // Options of the filesystem are those of its places.
            let options = |word: &str| {
                let script =
                    format!("grep ' /srv/{name}/' /proc/mounts | cut -d ' ' -f 4 | grep -c {word} || true");
                stage.sh(&script).unwrap().trim().to_owned()
            };
            assert_eq!(options("nodev"), "3");
            let changed = DiskSettings {
                options: vec!["noexec".to_owned()],
                ..all.clone()
            };
            until_ready(&stage, &changed, systemd).unwrap();
            assert_eq!(
                (options("nodev"), options("noexec")),
                ("0".to_owned(), "3".to_owned())
            );
            // The agent finds everything mounted by the boot, and has nothing to do.
            stage.sh(&format!("echo kept > /srv/{name}/none/file")).unwrap();
            stage.boot().unwrap();
            stage.sh(if systemd { BOOT } else { MOUNT_ALL }).unwrap();
            let booted = until_ready(&stage, &changed, systemd).unwrap();
            assert!(
                !booted.points.iter().any(|point| point.ends_with("bound")),
                "{:?}",
                booted.points
            );
            right(&stage, &name).unwrap();
            // Without the boot's help the agent mounts all of it.
            stage.boot().unwrap();
            until_ready(&stage, &changed, systemd).unwrap();
            right(&stage, &name).unwrap();
            assert_eq!(stage.sh(&format!("cat /srv/{name}/none/file")).unwrap(), "kept\n");
            assert_eq!(stage.audit(&name).unwrap().len(), 2);
            stage
                .sh(&format!(
                    "umount /srv/{name}/* /var/lib/virtfleet-disks/{name}; rm -rf /etc/systemd /etc/fstab"
                ))
                .unwrap();
            stage.no_serial(&loops).unwrap();
        }
    }
}

#[test]
fn tier2_one_disk_for_several_places_is_killed_between_two_effects() {
    let Some(mut stage) = stage("tier2_one_disk_for_several_places_is_killed_between_two_effects").unwrap()
    else {
        return;
    };
    let step = env::var("VIRTFLEET_DISK_PLACES_STEP")
        .ok()
        .and_then(|text| text.parse().ok());
    let step: usize = step.unwrap_or(5);
    let mut kills = 0;
    for systemd in [false, true] {
        // Each run of the tests begins elsewhere.
        let mut point = 1 + fastrand::usize(..step);
        loop {
            let name = format!("{}{point}", if systemd { "u" } else { "f" });
            let loops = disk(&stage, &name).unwrap();
            fill(&stage, &name).unwrap();
            let all = shared(&name);
            let killed = stage
                .order(&Order {
                    disks: vec![all.clone()],
                    systemd,
                    kill_at: Some(point),
                    ..Order::default()
                })
                .unwrap();
            let at = format!("{name}: {:?}", killed.text);
            if killed.killed && point % 2 == 0 {
                stage.boot().unwrap();
                stage.sh(if systemd { BOOT } else { MOUNT_ALL }).unwrap();
            }
            until_ready(&stage, &all, systemd).context(at.clone()).unwrap();
            right(&stage, &name).context(at.clone()).unwrap();
            let audit = stage.audit(&name).unwrap();
            let formats = audit.iter().filter(|line| *line == "done format").count();
            assert!(formats <= 1, "{at}: {audit:?}");
            let again = run(&stage, &all, systemd).unwrap();
            assert!(!again.changed, "{at}: not at rest: {:?}", again.points);
            stage
                .sh(&format!(
                    "umount /srv/{name}/* /var/lib/virtfleet-disks/{name}; rm -rf /etc/systemd /etc/fstab"
                ))
                .unwrap();
            stage.no_serial(&loops).unwrap();
            if !killed.killed {
                break;
            }
            kills += 1;
            point += step;
        }
    }
    println!("killed at {kills} points between two effects (every {step}.); every next run completed");
    assert!(kills * step > 60, "{kills}");
}

#[test]
fn tier2_a_place_is_filled_later_and_only_from_what_it_still_has() {
    let Some(stage) = stage("tier2_a_place_is_filled_later_and_only_from_what_it_still_has").unwrap() else {
        return;
    };
    let name = "data";
    let _loops = disk(&stage, name).unwrap();
    fill(&stage, name).unwrap();
    let full = shared(name);
    let whole = "/var/lib/virtfleet-disks/data";
    // Files at a place: refused before anything is formatted, unless they may be copied.
    let refusing = DiskSettings {
        seed_from: SeedFrom::None,
        ..full.clone()
    };
    let refused = run(&stage, &refusing, true).unwrap();
    assert_eq!(refused.refusals(name), ["mount-point-taken"], "{}", refused.state);
    assert!(stage.audit(name).unwrap().is_empty());
    // First without the place that has files; it is declared later.
    let mut fewer = full.clone();
    fewer.places.remove(0);
    fewer.places[0].owner = Some(DiskOwner {
        user: Some("12".to_owned()),
        mode: Some("0711".to_owned()),
        ..DiskOwner::default()
    });
    until_ready(&stage, &fewer, true).unwrap();
    assert_eq!(
        stage.sh("stat -c '%a %u %g' /srv/data/empty").unwrap(),
        "711 12 0\n"
    );
    let refused = run(&stage, &refusing, true).unwrap();
    assert_eq!(refused.refusals(name), ["mount-point-taken"], "{}", refused.state);
    stage
        .sh("test ! -e /etc/systemd/system/srv-data-full.mount && mountpoint -q /srv/data/empty")
        .unwrap();
    // A file that is changed after the copy: it is copied again by the next run.
    let changed = stage
        .order(&Order {
            disks: vec![full.clone()],
            systemd: true,
            script_at: Some((
                "directory-complete".to_owned(),
                "echo late > /srv/data/full/late".to_owned(),
            )),
            ..Order::default()
        })
        .unwrap();
    assert!(
        changed.error(name).contains("was changed after it was copied"),
        "{}",
        changed.state
    );
    stage
        .sh(&format!(
            "test ! -e {whole}/full && ! mountpoint -q /srv/data/full"
        ))
        .unwrap();
    // Killed when the directory is complete and not mounted, and then changed by others: that needs
    // a person.
    let killed = stage
        .order(&Order {
            disks: vec![full.clone()],
            systemd: true,
            script_at: Some(("directory-complete".to_owned(), "kill -KILL $PPID".to_owned())),
            ..Order::default()
        })
        .unwrap();
    assert!(killed.killed, "{killed:?}");
    stage
        .sh(&format!(
            "test -e {whole}/full/late && echo later > /srv/data/full/late"
        ))
        .unwrap();
    let outdated = run(&stage, &full, true).unwrap();
    assert!(
        outdated.error(name).contains("by a run that was cut short"),
        "{}",
        outdated.state
    );
    stage.sh(&format!("rm -r {whole}/full")).unwrap();
    until_ready(&stage, &full, true).unwrap();
    assert_eq!(stage.sh("cat /srv/data/full/late").unwrap(), "later\n");
}

#[test]
fn tier2_places_come_and_go_and_keep_their_files() {
    let Some(stage) = stage("tier2_places_come_and_go_and_keep_their_files").unwrap() else {
        return;
    };
    let name = "data";
    let _loops = disk(&stage, name).unwrap();
    fill(&stage, name).unwrap();
    let full = shared(name);
    let whole = "/var/lib/virtfleet-disks/data";
    let mut fewer = full.clone();
    fewer.places.remove(0);
    until_ready(&stage, &full, true).unwrap();
    stage.sh("echo later > /srv/data/full/late").unwrap();
    // Taken out, it stays mounted until the next boot, and a note says so; its unit goes at once.
    let without = run(&stage, &fewer, true).unwrap();
    assert_eq!(without.standing(name), "ready", "{}", without.state);
    assert!(
        without.state["disks"][0]["notes"]
            .to_string()
            .contains("no longer a place"),
        "{}",
        without.state
    );
    stage
        .sh("test ! -e /etc/systemd/system/srv-data-full.mount && umount /srv/data/full && test -e /srv/data/full/hard")
        .unwrap();
    let without = run(&stage, &fewer, true).unwrap();
    assert_eq!(
        without.state["disks"][0]["notes"],
        serde_json::json!([]),
        "{}",
        without.state
    );
    // Declared again: what it had, although files lie at the place.
    until_ready(&stage, &full, true).unwrap();
    stage
        .sh("grep -q later /srv/data/full/late && echo mine > /srv/data/full/mine")
        .unwrap();
    // The agent does not silently recreate a directory that was in use and is gone; it still
    // processes the other mount points.
    stage
        .sh(&format!(
            "umount /srv/data/full /srv/data/none && mv {whole}/full {whole}/away"
        ))
        .unwrap();
    let gone = run(&stage, &full, true).unwrap();
    assert!(
        gone.error(name).contains("is not there any more"),
        "{}",
        gone.state
    );
    stage.sh("mountpoint -q /srv/data/none").unwrap();
    stage.sh(&format!("mv {whole}/away {whole}/full")).unwrap();
    until_ready(&stage, &full, true).unwrap();
    assert_eq!(stage.sh("cat /srv/data/full/mine").unwrap(), "mine\n");
}

#[test]
fn tier2_a_filesystem_that_was_mounted_as_a_whole_gets_no_empty_directories() {
    let test = "tier2_a_filesystem_that_was_mounted_as_a_whole_gets_no_empty_directories";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let _loops = disk(&stage, "data").unwrap();
    let before = declared("data", "/srv/data/full");
    until_ready(&stage, &before, false).unwrap();
    stage.sh("echo theirs > /srv/data/full/file").unwrap();
    let all = DiskSettings {
        seed_from: SeedFrom::None,
        ..shared("data")
    };
    let busy = run(&stage, &all, false).unwrap();
    assert_eq!(busy.refusals("data"), ["in-use"], "{}", busy.state);
    stage.sh("umount /srv/data/full").unwrap();
    let strange = run(&stage, &all, false).unwrap();
    assert!(
        strange
            .error("data")
            .contains("belong to no place, e.g. \"file\""),
        "{}",
        strange.state
    );
    stage
        .sh("cd /var/lib/virtfleet-disks/data && mkdir full && mv file full/")
        .unwrap();
    until_ready(&stage, &all, false).unwrap();
    assert_eq!(stage.sh("cat /srv/data/full/file").unwrap(), "theirs\n");
}
