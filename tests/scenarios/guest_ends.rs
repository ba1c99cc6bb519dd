//! How scenes of guests end: a failure keeps the logs, and nothing else is left, also when the
//! process is killed.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    panic::catch_unwind,
    path::Path,
    process,
    sync::{Arc, Mutex},
    time::Duration,
};

use virtfleet_tests::{
    bins,
    guest::{self, Start, Suite, Vm},
    process::Launch,
    skip, wait,
};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn tier4_a_failure_keeps_the_logs_and_leaves_nothing_else() {
    let test = "tier4_a_failure_keeps_the_logs_and_leaves_nothing_else";
    if skip::need(4, test, guest::needs(Suite::Trixie))
        .unwrap()
        .is_none()
    {
        return;
    }
    let seen = Arc::new(Mutex::new((0, Path::new("/").to_owned())));
    let report = Arc::clone(&seen);
    let panic = catch_unwind(move || {
        guest::play("a-failure-that-is-wanted", |scene| {
            let guest = scene.start(&Vm::new("one"), Start::Booted)?;
            scene.namespace()?;
            *report.lock().unwrap() = (guest.qemu()?, scene.path().to_owned());
            guest.run("echo a word for the console >/dev/ttyS0; logger a word for the journal")?;
            guest.run_until(
                "journalctl --boot | grep -q 'a word for the journal'",
                "its journal",
            )?;
            assert_eq!(1, 2, "the test's own reason");
            Ok(())
        });
    })
    .unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("the test's own reason"), "{said}");
    let (_, kept) = said.split_once("the guests' logs: ").unwrap();
    let log = |name: &str| fs::read_to_string(Path::new(kept).join("one").join(name)).unwrap();
    assert!(log("console.log").contains("a word for the console"));
    assert!(log("journal").contains("a word for the journal"));
    fs::remove_dir_all(kept).unwrap();
    let (qemu, folder) = seen.lock().unwrap().clone();
    assert_gone(qemu, &folder, process::id());
}

fn assert_gone(qemu: u32, folder: &Path, process: u32) {
    let namespaces = || {
        let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        all.filter(|name| {
            name.file_name()
                .to_string_lossy()
                .starts_with(&format!("virtfleet-{process}-"))
        })
        .count()
    };
    wait::until(SOON, "QEMU, files and namespaces to be gone", || {
        !Path::new(&format!("/proc/{qemu}")).exists() && !folder.exists() && namespaces() == 0
    })
    .unwrap();
}

#[test]
fn tier4_nothing_is_left_by_a_process_that_is_killed() {
    let test = "tier4_nothing_is_left_by_a_process_that_is_killed";
    if skip::need(4, test, guest::needs(Suite::Trixie))
        .unwrap()
        .is_none()
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut tool = Launch::new(bins::guest().unwrap())
        .args(["run", "--", "echo begun >/dev/ttyS0; sleep 600"])
        .env("TMPDIR", folder.path())
        .start(folder.path())
        .unwrap();
    let id = tool.id();
    let scene = || {
        let entries = fs::read_dir(folder.path()).unwrap().flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| path.join("guest/console.log").exists())
    };
    let found = tool
        .wait_for(Duration::from_mins(4), "the command to begin", |_| {
            let scene = scene().filter(|scene| {
                fs::read_to_string(scene.join("guest/console.log")).is_ok_and(|text| text.contains("begun"))
            });
            scene.ok_or_else(|| anyhow::anyhow!("not yet"))
        })
        .unwrap();
    let qemu = fs::read_to_string(found.join("guest/qemu.pid")).unwrap();
    drop(tool);
    assert_gone(qemu.trim().parse().unwrap(), &found, id);
}
