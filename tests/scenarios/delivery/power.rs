//! Killed at seeded moments, then run again: always the same end.

use std::{
    fs,
    time::{Duration, Instant},
};

use virtfleet_tests::{process::Launch, skip};

use super::{guest::Guest, sources::needs};

#[test]
fn tier2_killed_at_any_moment_the_next_run_ends_the_same() {
    let test = "tier2_killed_at_any_moment_the_next_run_ends_the_same";
    if !needs(test, &["dash", "timeout", "setsid"]) {
        return;
    }
    // Every third is killed twice.
    let cuts: &[u32] = if skip::deferred(2, test, "make container-soak") {
        &[1, 2, 7, 11]
    } else {
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    };
    let guest = Guest::new();
    guest.deliver_the_source("");
    let start = Instant::now();
    guest.boot();
    let whole_run = start.elapsed();
    let whole = guest.state();
    for &cut in cuts {
        for folder in [
            "root/etc/systemd",
            "root/etc/virtfleet",
            "root/opt",
            "root/var",
            "root/run",
        ] {
            fs::remove_dir_all(guest.at(folder)).ok();
        }
        fs::create_dir_all(guest.at("root/opt")).unwrap();
        let moment = whole_run * (cut + 1) / 13;
        kill_after(&guest, moment);
        if cut % 3 == 2 {
            kill_after(&guest, moment / 2);
        }
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert_eq!(guest.state(), whole, "cut {cut} at {moment:?}: {}", ran.said);
    }
}

/// Runs the boot command and kills all its processes after `moment`, as a power cut would: without
/// a signal that they can handle, and without cleanup. None is left then, also none that one of
/// them has started while the others were killed.
fn kill_after(guest: &Guest, moment: Duration) {
    // A process group of their own dies at once; `timeout -s KILL` in the script would not reach
    // its own group's children. On a busy machine `setsid` may not have begun by then, so the
    // leader is killed by its number.
    let script = format!(
        "setsid dash '{}' >/dev/null 2>&1 & leader=$!; sleep {:.3}; kill -9 $leader; \
         while left=$(ps -e -o pid= -o sid= -o stat= | awk -v sid=$leader '$2 == sid && $3 !~ /^Z/ {{ print $1 }}') && \
         [ -n \"$left\" ]; do kill -9 $left; done",
        guest.at("boot").display(),
        moment.as_secs_f64()
    );
    let launch: Launch = guest.launch("bash").args(["-c", &script]);
    launch.output(Duration::from_mins(1)).unwrap();
}
