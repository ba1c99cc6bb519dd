//! What is shipped as an example works as it is: settings, units, scrape configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use virtfleet_agent::{host::Roots, settings};
use virtfleet_collector::config::CollectorConfig;
use virtfleet_tests::{parts, process::Launch, skip};
use virtfleet_wire::layered::Fragment;

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn problems(file: &Path) -> Vec<String> {
    settings::load(&Roots::default(), Some(file))
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_agents_default_settings_lack_nothing_but_certificates() {
    let problems = problems(&shipped("packaging/agent.yaml"));
    assert!(
        problems.len() == 1 && problems[0].contains("server.tls.certificate"),
        "{problems:?}"
    );
}

#[test]
fn the_collectors_example_settings_are_valid() {
    let path = shipped("packaging/collector/collector.yaml");
    let fragment = Fragment {
        file: path.display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let loaded = CollectorConfig::load(&[fragment]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
}

#[test]
fn no_hardening_option_of_the_unit_hides_what_is_measured() {
    let unit = fs::read_to_string(shipped("packaging/systemd/virtfleet-agent.service")).unwrap();
    for hides in [
        "ProtectProc=",
        "ProcSubset=",
        "PrivateDevices=",
        "PrivateNetwork=",
        "PrivateTmp=",
        "PrivateUsers=",
        "ProtectHome=",
        "ProtectHostname=",
        "ProtectClock=",
        "ProtectKernelModules=",
        "RestrictFileSystems=",
        "InaccessiblePaths=",
        "TemporaryFileSystem=",
    ] {
        assert!(
            !unit.lines().any(|line| line.trim_start().starts_with(hides)),
            "{hides} hides metrics"
        );
    }
    for needed in [
        "Type=notify",
        "ExecStartPre=-+/usr/bin/virtfleet-agent state",
        "RestartPreventExitStatus=78",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "ReadWritePaths=-/run/virtfleet/ask",
    ] {
        assert!(unit.lines().any(|line| line == needed), "{needed} is missing");
    }
}

#[test]
fn tier3_prometheus_accepts_the_scrape_configuration() {
    let test = "tier3_prometheus_accepts_the_scrape_configuration";
    let Some(promtool) = skip::need(3, test, parts::promtool()).unwrap() else {
        return;
    };
    let config = shipped("packaging/collector/prometheus.yaml");
    // The certificates are not there, so only the syntax can be checked.
    let said = Launch::new(promtool)
        .args(["check", "config", "--syntax-only"])
        .arg(&config)
        .text(Duration::from_secs(30))
        .unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}
