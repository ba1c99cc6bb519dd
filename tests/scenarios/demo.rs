//! `make demo`: what a newcomer sees first ends well, alone and with real VMs.

use std::time::Duration;

use anyhow::{Result, ensure};
use virtfleet_tests::{
    bins,
    guest::{Suite, needs},
    process::Launch,
    real::GUEST_TIMEOUT,
    skip,
};

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";

/// Runs the demonstration until it ends by itself; returns what it printed.
fn demo(arguments: &[&str], deadline: Duration) -> Result<String> {
    let (code, said) = Launch::new(bins::demo()?)
        .arg("--once")
        .args(arguments)
        .said(deadline)?;
    ensure!(code == 0, "{code}: {said}");
    Ok(said)
}

#[test]
fn the_fleet_is_printed_once_and_the_demo_ends_tier3() {
    let said = demo(&["--guests", "2"], Duration::from_mins(4)).unwrap();
    for part in [
        "all 3 agents enrolled",
        "all 3 VMs answered",
        "$ virtfleetctl vms",
        "$ virtfleetctl mla",
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    // The agent of this machine has no reconcile run, and its settings leave DNS alone.
    let detail = said.split("$ virtfleetctl vm ").nth(1).unwrap_or_default();
    let dns = detail
        .lines()
        .find(|line| line.trim_start().starts_with("DNSReady"));
    assert!(dns.is_some_and(|line| line.contains("NotManaged")), "{said}");
}

#[test]
fn tier4_two_real_vms_enrol_and_one_is_migrated() {
    let test = "tier4_two_real_vms_enrol_and_one_is_migrated";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    let play = || -> Result<()> {
        if skip::need(4, test, needs(Suite::Trixie))?.is_none() {
            return Ok(());
        }
        let said = demo(&["--guests", "2", "--vms", "2"], GUEST_TIMEOUT * 3)?;
        for part in [
            "real-1: enrolled with a key of its own; its blank disk",
            "real-2: enrolled with a key of its own; its blank disk",
            "formatted and mounted at /var/lib/data",
            "real-1: live migration from",
            "fleet and metrics followed within",
            "all 5 agents enrolled",
        ] {
            ensure!(said.contains(part), "{part} is missing: {said}");
        }
        Ok(())
    };
    play().unwrap();
}
