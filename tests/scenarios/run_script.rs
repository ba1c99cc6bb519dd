//! `tests/run.sh`: what a run reports, and which failed tests run once more. The script and its
//! verdict are the real ones; cargo, the set-up and the builds are stand-ins that do what a file of
//! the test says.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use virtfleet_tests::{process::Launch, wait};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the tests of the file that the selection names: `units`, `scenarios`, or `again` for a test
/// that runs alone. Each line has `pass` or `fail`, and a test.
const CARGO: &str = r#"#!/usr/bin/env bash
case "$*" in
"fmt "*) ;;
"clippy "*)
    [ ! -e "$STANDIN/lint-fails" ] || { echo 'error: a lint'; exit 101; }
    while [ -e "$STANDIN/lint-hangs" ]; do sleep 0.05; done ;;
"check "*) ;;
"build "*) mkdir -p target/debug && cp "$STANDIN/manual" target/debug/virtfleet-manual ;;
*--no-run*) ;;
"nextest run "*)
    case "$*" in
    *--lib*) rows=units ;;
    *"test(="*) rows=again ;;
    *) rows=scenarios ;;
    esac
    mkdir -p target/nextest/default
    exec 3>target/nextest/default/junit.xml
    code=0
    while read -r state name; do
        [ "$rows" != again ] || [[ "$*" = *"test(=$name)"* ]] || continue
        printf '<testcase name="%s" time="1.5">' "$name" >&3
        if [ "$state" = fail ]; then
            echo '<failure type="test failure"></failure>' >&3
            printf '        FAIL [   1.500s] (1/1) virtfleet-tests::scenarios %s\n  stderr ---\n' "$name"
            seq -f "    line %g of $name in $rows" 100
            code=100
        fi
        echo '</testcase>' >&3
    done <"$STANDIN/$rows"
    printf '     Summary [   1.500s]\n'
    exit $code ;;
*) echo "cargo $*: not expected" >&2; exit 9 ;;
esac
"#;
const MANUAL: &str = "#!/bin/sh\nmkdir -p \"$1\"\n";
const NOTHING: &str = "#!/bin/sh\nexit 0\n";
const RUNNER: &str = "#!/bin/sh\necho \"$STANDIN/bin\"\n";
const ABSENT: &str = "#!/bin/sh\nexit 1\n";
const MAKEFILE: &str =
    "static:\n\t@[ ! -e \"$$STANDIN/static-fails\" ] || { echo 'static: no linker'; exit 1; }\n";

/// A project with the real scripts.
struct Project {
    folder: tempfile::TempDir,
}

/// How a run ended.
struct Ended {
    code: i32,
    output: String,
    verdict: String,
}

impl Project {
    /// All tests pass.
    fn new() -> Result<Self> {
        let project = Self {
            folder: tempfile::tempdir()?,
        };
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        for script in ["run.sh", "verdict.sh"] {
            project.program(&format!("tests/{script}"), &fs::read_to_string(own.join(script))?)?;
        }
        for (script, text) in [
            ("tests/parts/setup.sh", NOTHING),
            ("tests/parts/crates.sh", NOTHING),
            ("tests/parts/agent.sh", ABSENT),
            ("tests/parts/leftovers.sh", NOTHING),
            ("tests/parts/nextest.sh", RUNNER),
            ("tests/parts/kubernetes.sh", ABSENT),
            ("tests/parts/kube-apiserver.sh", ABSENT),
            ("packaging/deb/build.sh", NOTHING),
            ("standin/bin/cargo", CARGO),
            ("standin/manual", MANUAL),
        ] {
            project.program(script, text)?;
        }
        project.write("Makefile", MAKEFILE)?;
        project.write("standin/units", "pass a_unit_test\n")?;
        project.write("standin/scenarios", "pass push::a_report_tier3\n")?;
        project.write("standin/again", "")?;
        Ok(project)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.folder.path().join(name);
        fs::create_dir_all(file.parent().context("its folder")?)?;
        Ok(fs::write(file, text)?)
    }

    fn program(&self, name: &str, text: &str) -> Result<()> {
        self.write(name, text)?;
        let file = self.folder.path().join(name);
        Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
    }

    fn read(&self, name: &str) -> Result<String> {
        let file = self.folder.path().join(name);
        fs::read_to_string(&file).with_context(|| file.display().to_string())
    }

    fn launch(&self) -> Result<Launch> {
        let own = self.folder.path();
        let path = std::env::var("PATH").context("PATH")?;
        Ok(Launch::new(own.join("tests/run.sh"))
            .arg("test")
            .env("STANDIN", own.join("standin"))
            .env("XDG_CACHE_HOME", own.join("cache"))
            .env("TMPDIR", own)
            .env("PATH", format!("{}:{path}", own.join("standin/bin").display())))
    }

    /// Whether a process works in the folder.
    fn is_in_use(&self) -> bool {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut folders = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
        folders.any(|folder| folder.starts_with(self.folder.path()))
    }

    fn run(&self) -> Result<Ended> {
        let (code, output) = self.launch()?.said(TIMEOUT)?;
        let verdict = self.read("target/verdict")?;
        // The same for each place; this folder is no clone of git.
        ensure!(self.read("cache/virtfleet/verdicts/unknown")? == verdict);
        Ok(Ended {
            code,
            output,
            verdict,
        })
    }
}

#[test]
fn a_green_run_says_so() {
    let ended = Project::new().unwrap().run().unwrap();
    assert_eq!(ended.code, 0, "{}", ended.output);
    assert!(ended.verdict.starts_with("verdict  green\n"), "{}", ended.verdict);
    for part in ["set-up 0:0", "scenarios 0:0", "memory: ", "free space: "] {
        assert!(ended.verdict.contains(part), "{part}: {}", ended.verdict);
    }
    assert!(
        ended
            .output
            .contains("\n2 passed, 0 failed, 0 skipped, 0 deferred\n"),
        "{}",
        ended.output
    );
}

#[test]
fn a_failed_lint_or_set_up_is_quoted_with_its_phase() {
    let project = Project::new().unwrap();
    project.write("standin/lint-fails", "").unwrap();
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 101, "{}", ended.output);
    let first = "verdict  red, exit code 101, in the phase 'lints and build'\n";
    assert!(ended.verdict.starts_with(first), "{}", ended.verdict);
    assert!(ended.verdict.contains("    error: a lint\n"), "{}", ended.verdict);

    project
        .program(
            "tests/parts/setup.sh",
            "#!/bin/sh\necho 'setup: no network'\nexit 3\n",
        )
        .unwrap();
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 3, "{}", ended.output);
    assert!(
        ended.verdict.contains("in the phase 'set-up'\n"),
        "{}",
        ended.verdict
    );
    assert!(
        ended.verdict.contains("    setup: no network\n"),
        "{}",
        ended.verdict
    );
}

#[test]
fn a_failed_static_build_ends_the_lints_that_run_beside_it() {
    let project = Project::new().unwrap();
    for name in ["lint-hangs", "static-fails"] {
        project.write(&format!("standin/{name}"), "").unwrap();
    }
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 2, "{}", ended.output);
    assert!(
        ended.verdict.contains("    static: no linker\n"),
        "{}",
        ended.verdict
    );
}

#[test]
fn a_killed_run_leaves_a_verdict_with_its_phase() {
    let project = Project::new().unwrap();
    project.write("standin/lint-hangs", "").unwrap();
    let mut process = project.launch().unwrap().start(project.folder.path()).unwrap();
    let verdict = process
        .wait_for(TIMEOUT, "a verdict", |_| {
            let verdict = project.read("target/verdict")?;
            ensure!(verdict.contains("'lints and build'"), "{verdict}");
            Ok(verdict)
        })
        .unwrap();
    process.signal(Signal::SIGKILL).unwrap();
    process.wait(TIMEOUT).unwrap();
    fs::remove_file(project.folder.path().join("standin/lint-hangs")).unwrap();
    wait::until(TIMEOUT, "its background jobs end", || !project.is_in_use()).unwrap();
    assert_eq!(project.read("target/verdict").unwrap(), verdict);
    assert!(verdict.starts_with("verdict  did not end;"), "{verdict}");
}

#[test]
fn a_scenario_that_passes_alone_is_unstable_and_both_outputs_are_kept() {
    let project = Project::new().unwrap();
    project
        .write("standin/scenarios", "fail push::a_report_tier3\npass b_tier2\n")
        .unwrap();
    project
        .write("standin/again", "pass push::a_report_tier3\n")
        .unwrap();
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 0, "{}", ended.output);
    assert!(ended.verdict.starts_with("verdict  green\n"), "{}", ended.verdict);
    assert!(
        ended.verdict.contains("\nunstable push::a_report_tier3 "),
        "{}",
        ended.verdict
    );
    let line = "3 passed, 0 failed, 0 skipped, 0 deferred; 1 of the passed ones are unstable";
    assert!(ended.output.contains(line), "{}", ended.output);
    let first = project.read("target/unstable/push-a_report_tier3.log").unwrap();
    assert!(
        first.contains("line 100 of push::a_report_tier3 in scenarios"),
        "{first}"
    );
    project
        .read("target/unstable/push-a_report_tier3.again.log")
        .unwrap();
}

#[test]
fn a_scenario_that_fails_twice_is_red_with_its_last_lines() {
    let project = Project::new().unwrap();
    project
        .write("standin/scenarios", "fail push::a_report_tier3\n")
        .unwrap();
    project
        .write("standin/again", "fail push::a_report_tier3\n")
        .unwrap();
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 1, "{}", ended.output);
    assert!(
        ended.verdict.contains("\nfail     push::a_report_tier3 "),
        "{}",
        ended.verdict
    );
    let line = |number: u8| format!("    line {number} of push::a_report_tier3 in scenarios\n");
    assert!(
        ended.verdict.contains(&line(100)) && !ended.verdict.contains(&line(50)),
        "{}",
        ended.verdict
    );
}

#[test]
fn lost_data_and_open_doors_are_never_tried_again() {
    for test in [
        "disks_clones::tier2_one",
        "guest_disks::boots::tier4_one",
        "access::one_tier3",
        "cluster_rights::one_tier3",
        "enrolment::attacks::one_tier3",
        "network_policies::one_tier2",
        "delivery::without_a_tier",
    ] {
        let project = Project::new().unwrap();
        project
            .write("standin/scenarios", &format!("fail {test}\n"))
            .unwrap();
        project.write("standin/again", &format!("pass {test}\n")).unwrap();
        let ended = project.run().unwrap();
        assert_eq!(ended.code, 1, "{test}: {}", ended.output);
    }
    // Nor is a unit test, whatever its name.
    let project = Project::new().unwrap();
    project.write("standin/units", "fail dns::tier2_one\n").unwrap();
    project.write("standin/again", "pass dns::tier2_one\n").unwrap();
    assert_eq!(project.run().unwrap().code, 1);
}

#[test]
fn a_failure_that_the_report_does_not_name_is_red() {
    let project = Project::new().unwrap();
    let unnamed = CARGO.replace("failure", "success");
    project.program("standin/bin/cargo", &unnamed).unwrap();
    project
        .write("standin/scenarios", "fail push::a_report_tier3\n")
        .unwrap();
    let ended = project.run().unwrap();
    assert_eq!(ended.code, 1, "{}", ended.output);
    assert!(ended.verdict.starts_with("verdict  red"), "{}", ended.verdict);
}

#[test]
fn more_than_five_failures_are_no_coincidence() {
    let project = Project::new().unwrap();
    let rows = |state: &str, count: u8| -> String {
        let row = |number: u8| format!("{state} push::number_{number}_tier3\n");
        (0..count).map(row).collect::<Vec<_>>().concat()
    };
    project.write("standin/again", &rows("pass", 6)).unwrap();
    for (count, code) in [(5, 0), (6, 1)] {
        project.write("standin/scenarios", &rows("fail", count)).unwrap();
        let ended = project.run().unwrap();
        assert_eq!(ended.code, code, "{count}: {}", ended.output);
    }
}
