use std::{fs, path::Path, time::Duration};

use super::{fake::FakeCommands, *};

fn sh(script: &str) -> Tool {
    Tool::new("sh").args(["-c", script])
}

fn gone(pid: &str) -> bool {
    // A zombie that is not reaped yet has ended too.
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

fn eventually(what: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if what() {
            return true;
        }
        thread::yield_now();
    }
    false
}

#[test]
fn exit_code_and_output_are_returned() {
    let done = SystemCommands.run(&sh("echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.as_str()),
        (3, "out\n", "err\n")
    );
    let error = SystemCommands
        .check(&sh("echo out; printf 'why\\033[1m' >&2; exit 3"))
        .unwrap_err();
    assert!(
        error.to_string().ends_with("`: exit code 3: why\\u{1b}[1m"),
        "{error}"
    );
    let error = SystemCommands.check(&sh("echo only this; exit 1")).unwrap_err();
    assert!(error.to_string().ends_with("exit code 1: only this"), "{error}");
    assert!(SystemCommands.check(&Tool::new("true")).unwrap().success());
}

#[test]
fn the_environment_is_cleared_and_standard_input_is_empty() {
    let done = SystemCommands.run(&Tool::new("env")).unwrap();
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["LC_ALL=C".to_owned(), format!("PATH={SEARCH_PATH}")]);
    assert_eq!(SystemCommands.run(&Tool::new("cat")).unwrap().stdout, "");
    assert_eq!(SystemCommands.run(&Tool::new("pwd")).unwrap().stdout, "/\n");
}

#[test]
fn a_command_past_its_deadline_is_killed_with_its_children() {
    let start = Instant::now();
    let error = SystemCommands
        .run(&sh("sleep 600 & echo $! >&2; wait").deadline(Duration::from_secs(3)))
        .unwrap_err();
    let CommandError::Late { stderr, .. } = &error else {
        panic!("{error}")
    };
    assert!(start.elapsed() < Duration::from_mins(1));
    assert!(error.to_string().contains("took longer than 3 s"), "{error}");
    assert!(eventually(|| gone(stderr)), "{stderr}");
}

#[test]
fn a_leftover_child_does_not_delay_the_result() {
    let start = Instant::now();
    let done = SystemCommands.run(&sh("sleep 600 & echo $!")).unwrap();
    assert!(start.elapsed() < Duration::from_mins(1));
    assert!(eventually(|| gone(&done.stdout)), "{}", done.stdout);
    // A child with its own session survives and holds the pipe open; the runner does not wait for
    // it.
    let done = SystemCommands.run(&sh("setsid sleep 600 & echo $!")).unwrap();
    let id = Pid::from_raw(done.stdout.trim().parse().unwrap());
    nix::sys::signal::kill(id, Signal::SIGKILL).ok();
    assert!(start.elapsed() < Duration::from_mins(1));
}

#[test]
fn long_output_is_truncated_and_never_blocks_the_program() {
    let script = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2; echo end; exit 4";
    let done = SystemCommands.run(&sh(script)).unwrap();
    assert_eq!(
        (done.code, done.stdout.len(), done.stderr.len()),
        (4, MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES)
    );
    let error = SystemCommands
        .run(&Tool::new("yes").deadline(Duration::from_millis(200)))
        .unwrap_err();
    assert!(matches!(error, CommandError::Late { .. }), "{error}");
}

#[test]
fn each_failure_has_its_own_message() {
    let error = SystemCommands
        .run(&Tool::new("virtfleet-no-such-program").arg("--x"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`virtfleet-no-such-program --x`: there is no such program"),
        "{error}"
    );
    let error = SystemCommands.run(&Tool::new("/etc/passwd")).unwrap_err();
    assert_eq!(error.to_string(), "`/etc/passwd`: cannot start it");
    let error = SystemCommands
        .run(&sh("echo late >&2; kill -TERM $$"))
        .unwrap_err();
    assert!(error.to_string().ends_with("ended by signal 15: late"), "{error}");
}

#[test]
fn the_fake_records_lines() {
    let fake = FakeCommands::new(|line| line.starts_with("a ").then(CommandOutput::default));
    fake.check(&Tool::new("a").arg("b")).unwrap();
    let error = fake.check(&Tool::new("b")).unwrap_err();
    assert!(matches!(error, CommandError::Missing(_)));
    assert_eq!(fake.take(), ["a b", "b"]);
    FakeCommands::content().check(&Tool::new("b")).unwrap();
}
