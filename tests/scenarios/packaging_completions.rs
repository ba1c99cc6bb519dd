//! Completion of names by the shells: what `packaging/completions` adds to the generated scripts;
//! and what virtfleetctl prints of completions and man pages.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, time::Duration};

use clap::ValueEnum as _;
use clap_complete::Shell;
use virtfleet_tests::{bins, manual, process::Launch, skip};

/// Maximum time of one run of a program.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs the completion of a line in bash, with a stand-in for the program and for the generated
/// completion. Returns the words offered, and the arguments with which the program was called.
fn complete(line: &str) -> (Vec<String>, String) {
    const SCRIPT: &str = r#"
        virtfleetctl() {
            echo "$*" >&3
            case "$*" in
                *unreachable*) return 1 ;;
                *" vms "*) printf '%s\n' cluster-a/worker-0 cluster-a/worker-1 cluster-b/web-0 ;;
                *" hosts "*) printf '%s\n' infra-1 infra-2 ;;
            esac
        }
        _virtfleetctl() { COMPREPLY=(generated); }
        source "$1"
        COMP_LINE=$2 COMP_POINT=${#2}
        exec 3>"$3"
        _virtfleetctl_with_names
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    let addition = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/completions/virtfleetctl.bash");
    let output = Launch::new("bash")
        .args(["-euc", SCRIPT, "bash"])
        .arg(addition)
        .arg(line)
        .arg(&calls)
        .output(DEADLINE)
        .unwrap();
    assert!(output.status.success(), "{line:?}: {output:?}");
    let words = String::from_utf8(output.stdout).unwrap();
    let words = words.lines().map(str::to_owned).collect();
    (
        words,
        std::fs::read_to_string(calls).unwrap().trim_end().to_owned(),
    )
}

#[test]
fn bash_offers_the_names_that_the_collector_knows() {
    if skip::need(
        1,
        "bash_offers_the_names_that_the_collector_knows",
        skip::program("bash"),
    )
    .unwrap()
    .is_none()
    {
        return;
    }
    for (line, words, call) in [
        (
            "virtfleetctl vm ",
            "cluster-a/worker-0 cluster-a/worker-1 cluster-b/web-0",
            "--timeout 3s vms -o name",
        ),
        (
            "virtfleetctl why cluster-a/",
            "cluster-a/worker-0 cluster-a/worker-1",
            "--timeout 3s vms -o name",
        ),
        ("virtfleetctl vm we", "web-0", "--timeout 3s vms -o name"),
        ("virtfleetctl history we", "web-0", "--timeout 3s vms -o name"),
        (
            "virtfleetctl drain infra-2",
            "infra-2",
            "--timeout 3s hosts -o name",
        ),
        (
            "virtfleetctl --server http://127.0.0.1:10912 host ",
            "infra-1 infra-2",
            "--server http://127.0.0.1:10912 --timeout 3s hosts -o name",
        ),
        (
            "virtfleetctl vm --context=prod revoke web",
            "web-0",
            "--context=prod --timeout 3s vms -o name",
        ),
        ("virtfleetctl vm -", "generated", ""),
        ("virtfleetctl vm -o ", "generated", ""),
        ("virtfleetctl findings ", "generated", ""),
        ("virtfleetctl ", "generated", ""),
        ("virtfleetctl vm nothing", "generated", "--timeout 3s vms -o name"),
        (
            "virtfleetctl --server unreachable vm ",
            "generated",
            "--server unreachable --timeout 3s vms -o name",
        ),
    ] {
        let (found, called) = complete(line);
        assert_eq!(
            (found.join(" "), called),
            (words.to_owned(), call.to_owned()),
            "{line:?}"
        );
    }
}

/// The scripts call the program with arguments that it has, and know its options with a value.
#[test]
fn the_scripts_know_the_command_line() {
    for what in ["vms", "hosts"] {
        let arguments = [
            "--server",
            "http://127.0.0.1:1",
            "--timeout",
            "3s",
            what,
            "-o",
            "name",
        ];
        let output = Launch::new(bins::ctl().unwrap())
            .args(arguments)
            .output(DEADLINE)
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    let command = virtfleet_collector::ctl::cli::command();
    let options = command
        .get_arguments()
        .filter(|one| one.get_action().takes_values());
    let options: Vec<_> = options
        .filter_map(clap::Arg::get_long)
        .filter(|long| *long != "timeout")
        .collect();
    assert!(options.contains(&"server"), "{options:?}");
    for file in ["virtfleetctl.bash", "_virtfleetctl", "virtfleetctl.fish"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../packaging/completions")
            .join(file);
        let text = std::fs::read_to_string(path).unwrap();
        for option in &options {
            assert!(
                text.contains(&format!("--{option}")),
                "{file} does not know --{option}"
            );
        }
    }
}

/// Images and packages have the same files.
#[test]
fn virtfleetctl_prints_the_completions_and_man_pages_of_the_packages() {
    let run = |arguments: &[&str]| {
        let launch = Launch::new(bins::ctl().unwrap()).args(arguments);
        launch.output(DEADLINE).unwrap()
    };
    let [_, _, program] = manual::commands();
    for shell in Shell::value_variants() {
        let output = run(&["completion", &shell.to_string()]);
        let (file, script) = manual::completion(&program, *shell);
        assert!(output.status.success() && output.stdout == script, "{file}");
    }
    let pages = manual::pages(&program).unwrap();
    for (words, file) in [
        (&[][..], "virtfleetctl.1"),
        (&["vm", "revoke"], "virtfleetctl-vm-revoke.1"),
    ] {
        let output = run(&[&["man"], words].concat());
        let page = pages.iter().find(|(name, _)| name == file);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(page.map(|(_, page)| page), Some(&output.stdout), "{file}");
    }
    let output = run(&["man", "vmz"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");

    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), manual::completion(&program, Shell::Bash).1).unwrap();
    let check = Launch::new("bash").arg("-n").arg(script.path());
    assert_eq!(check.said(DEADLINE).unwrap(), (0, String::new()));
}
