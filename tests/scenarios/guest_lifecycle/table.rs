//! Platforms × events. Each row is two guests: one that lives from its first boot to the removal
//! of the agent, and one whose power is cut in its first installation.
//!
//! `make guest-life-soak` runs all of them. The other tests of `guest_lifecycle` and of
//! `guest_delivery` have one event of most platforms in `make test`, with more checks.
//!
//! Not here: NoCloud (`guest_delivery`), RPM, for which no image can be had, and Gardener
//! (`gardener_machine`). The extension image is for Flatcar; here Debian's systemd-sysext merges
//! it.

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Guest as Machine, play},
    real::{self, GUEST_TIMEOUT},
    skip,
};

use crate::guest_lifecycle::{
    kit,
    platforms::{BAKED, CONFIG_DRIVE, DEB, IGNITION, Life, OSM, Platform, SYSEXT},
};

/// The command that runs only these.
const SOAK: &str = "make guest-life-soak";

/// A column: its name, and what must hold.
type Event = (&'static str, fn(&Platform, &Life) -> Result<()>);

/// The events of a guest that is never cut.
const LIFE: &[Event] = &[
    ("first boot", first_boot),
    ("second boot", second_boot),
    ("upgrade", upgrade),
    ("removal", removal),
];

const CUT: &[Event] = &[("power cut", power_cut)];

fn walk(test: &str, platform: &Platform, events: &[Event]) {
    if skip::deferred(4, test, SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(4, test, (platform.needs)())?.is_none() {
            return Ok(());
        }
        let life = (platform.begin)(scene)?;
        life.machine.wait_agent(GUEST_TIMEOUT)?;
        for (name, event) in events {
            eprintln!("{test}: {name}");
            event(platform, &life).with_context(|| format!("at the {name}"))?;
        }
        Ok(())
    });
}

#[test]
fn tier4_the_life_of_a_config_drive() {
    walk("tier4_the_life_of_a_config_drive", &CONFIG_DRIVE, LIFE);
}

#[test]
fn tier4_a_power_cut_with_a_config_drive() {
    walk("tier4_a_power_cut_with_a_config_drive", &CONFIG_DRIVE, CUT);
}

#[test]
fn tier4_the_life_of_a_profile_of_kkp() {
    walk("tier4_the_life_of_a_profile_of_kkp", &OSM, LIFE);
}

#[test]
fn tier4_a_power_cut_with_a_profile_of_kkp() {
    walk("tier4_a_power_cut_with_a_profile_of_kkp", &OSM, CUT);
}

#[test]
fn tier4_the_life_of_ignition() {
    walk("tier4_the_life_of_ignition", &IGNITION, LIFE);
}

#[test]
fn tier4_a_power_cut_with_ignition() {
    walk("tier4_a_power_cut_with_ignition", &IGNITION, CUT);
}

#[test]
fn tier4_the_life_of_a_baked_image() {
    walk("tier4_the_life_of_a_baked_image", &BAKED, LIFE);
}

#[test]
fn tier4_a_power_cut_with_a_baked_image() {
    walk("tier4_a_power_cut_with_a_baked_image", &BAKED, CUT);
}

#[test]
fn tier4_the_life_of_a_package() {
    walk("tier4_the_life_of_a_package", &DEB, LIFE);
}

#[test]
fn tier4_a_power_cut_with_a_package() {
    walk("tier4_a_power_cut_with_a_package", &DEB, CUT);
}

#[test]
fn tier4_the_life_of_an_extension_image() {
    walk("tier4_the_life_of_an_extension_image", &SYSEXT, LIFE);
}

#[test]
fn tier4_a_power_cut_with_an_extension_image() {
    walk("tier4_a_power_cut_with_an_extension_image", &SYSEXT, CUT);
}

const RUNS: &str = "systemctl is-active --quiet virtfleet-agent && systemctl is-active --quiet virtfleet-provision && \
                    ! systemctl list-jobs | grep -q virtfleet";
const BOOTED: &str = "! systemctl list-jobs --no-legend | grep -q .";
/// As in `guest_delivery`: the disks of the first boot are listed anew in each boot.
const WRITTEN: &str = "find /opt/virtfleet /etc/virtfleet /var/lib/virtfleet /etc/systemd/system -type f \
                       ! -path /var/lib/virtfleet/journal/KNOWN -printf '%p %T@\\n' | sort";

/// The agent serves the collector, and no unit has failed. Returns the end state.
fn up(life: &Life) -> Result<String> {
    let Life {
        stage, who, machine, ..
    } = life;
    machine.run_until_within(RUNS, "the agent to run", GUEST_TIMEOUT)?;
    // What the collector knows may be of the boot before.
    kit::page_until(stage, who, "/v1/report", "a page of this boot", |_| true)?;
    real::until_identified(stage, who)?;
    let failed = machine.run("systemctl list-units --failed --no-legend --plain 'virtfleet*'")?;
    ensure!(failed.is_empty(), "{failed}");
    let state = real::end_state(machine)?;
    real::none_is_empty(&state)?;
    Ok(state)
}

/// Boots again, once this boot has ended.
fn boot_again(machine: &Machine) -> Result<()> {
    machine.run_until_within(BOOTED, "the boot to end", GUEST_TIMEOUT)?;
    machine.run("sync")?;
    machine.power_off()?;
    machine.boot_to_agent()
}

fn complete(platform: &Platform, life: &Life) -> Result<()> {
    platform.complete.map_or(Ok(()), |complete| complete(life))
}

fn first_boot(platform: &Platform, life: &Life) -> Result<()> {
    complete(platform, life)?;
    up(life).map(drop)
}

/// It changes nothing.
fn second_boot(_: &Platform, life: &Life) -> Result<()> {
    let machine = &life.machine;
    machine.run_until_within(BOOTED, "the first boot to end", GUEST_TIMEOUT)?;
    let before = up(life)?;
    let written = machine.run(WRITTEN)?;
    boot_again(machine)?;
    let after = up(life)?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    let again = machine.run(WRITTEN)?;
    ensure!(written == again, "before:\n{written}\nafter:\n{again}");
    Ok(())
}

/// When half of the installation is done, and nothing after that is synced by the test.
fn power_cut(platform: &Platform, life: &Life) -> Result<()> {
    let machine = &life.machine;
    machine.run_until_within(
        &format!("test -e {}", platform.halfway),
        "half of the installation",
        GUEST_TIMEOUT,
    )?;
    machine.cut_power();
    machine.boot_to_agent()?;
    complete(platform, life)?;
    up(life).map(drop)
}

/// It outlives a boot.
fn upgrade(platform: &Platform, life: &Life) -> Result<()> {
    let machine = &life.machine;
    let sum = || machine.run(&format!("sha256sum {}", platform.agent));
    (platform.upgrade)(life)?;
    let upgraded = sum()?;
    boot_again(machine)?;
    up(life)?;
    ensure!(sum()? == upgraded, "the boot replaced the agent");
    Ok(())
}

/// Settings stay. Where user-data asks for the agent at each boot, the next one installs it again.
fn removal(platform: &Platform, life: &Life) -> Result<()> {
    let machine = &life.machine;
    let is_gone = || {
        machine
            .run(&format!(
                "set -e; test ! -e {}; test -n \"$(ls /etc/virtfleet/agent.d)\"
                test -z \"$(systemctl list-units --plain --no-legend 'virtfleet-agent*' 'virtfleet-provision*')\"",
                platform.agent
            ))
            .map(drop)
    };
    machine.run_within(platform.remove, GUEST_TIMEOUT)?;
    is_gone().context("right after it")?;
    boot_again(machine)?;
    if platform.comes_back {
        return up(life).map(drop);
    }
    machine.run_until_within(BOOTED, "the boot to end", GUEST_TIMEOUT)?;
    is_gone().context("after a boot")
}
