//! Settings that change and binaries that are newer, in a guest that runs.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    guest::{Disk, Guest as Machine, MIB, Suite, play},
    process::Launch,
    real,
    stage::STAGE_TIMEOUT,
};

use crate::guest_lifecycle::kit;

/// Makes the settings' fragment `50-test.yaml` say this, whole or not at all.
fn say(machine: &Machine, settings: &str) -> Result<()> {
    let text = format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n{settings}");
    machine.write_file("/etc/virtfleet/agent.d/.new", text.as_bytes(), "0644")?;
    machine
        .run("mv /etc/virtfleet/agent.d/.new /etc/virtfleet/agent.d/50-test.yaml")
        .map(drop)
}

/// Which process the agent is.
fn agent(machine: &Machine) -> Result<u64> {
    kit::number(machine, "virtfleet-agent", "MainPID")
}

/// The last reconcile's record contains `what`.
fn until_recorded(machine: &Machine, what: &str) -> Result<()> {
    machine.run_until(
        &format!(
            "python3 -c 'import json, sys; s = json.load(open(\"/run/virtfleet/state/guest.json\"))[\"stages\"][\"reconcile\"]; \
             sys.exit(0 if {what} else 1)' 2>/dev/null"
        ),
        what,
    )
}

#[test]
fn tier4_an_agent_follows_settings_upgrades_and_disks_in_a_guest_that_runs() {
    play(
        "tier4_an_agent_follows_settings_upgrades_and_disks_in_a_guest_that_runs",
        |scene| {
            let (stage, who) = kit::stage()?;
            let machine = kit::booted(scene, &stage, &who, Suite::Trixie, |folder| {
                newer_agent(&folder.join("newer"))
            })?;
            machine.run("touch /etc/cloud/cloud-init.disabled; /root/virtfleet/virtfleet-agent install")?;
            machine.run("systemctl is-active virtfleet-provision virtfleet-settings.path")?;
            machine.run(kit::CERTIFICATES)?;
            kit::page_until(&stage, &who, "/metrics", "an agent with certificates", |page| {
                page.contains("node_load1 ")
            })?;

            // Other settings: the agent is another one, which has them.
            let first = agent(&machine)?;
            say(&machine, "metrics:\n  collectors: { loadavg: false }\n")?;
            kit::page_until(&stage, &who, "/metrics", "no loadavg", |page| {
                !page.contains("node_load1 ") && page.contains("node_memory_MemTotal_bytes")
            })?;
            let second = agent(&machine)?;
            ensure!(first != second, "it is still process {first}");

            // Wrong settings: it goes on with those that it has, and says so.
            say(&machine, "metrics:\n  collectors: { loadavg: perhaps }\n")?;
            kit::page_until(&stage, &who, "/v1/report", "the finding", |page| {
                page.contains("settings-on-disk-not-applied") && page.contains("50-test.yaml")
            })?;
            ensure!(
                agent(&machine)? == second,
                "the agent was restarted for wrong settings"
            );
            ensure!(!kit::page(&stage, &who, "/metrics")?.contains("node_load1 "));
            machine.run("rm /etc/virtfleet/agent.d/50-test.yaml")?;
            kit::page_until(&stage, &who, "/metrics", "loadavg again", |page| {
                page.contains("node_load1 ")
            })?;
            kit::page_until(&stage, &who, "/v1/report", "no finding", |page| {
                !page.contains("settings-on-disk-not-applied")
            })?;

            hangup(&machine)?;
            disk(&machine)?;
            upgrade(&stage, &who, &machine, "/root/virtfleet/newer/virtfleet-agent")
        },
    );
}

/// SIGHUP asks for a reconcile and does not end the agent.
fn hangup(machine: &Machine) -> Result<()> {
    let before = agent(machine)?;
    machine.run("systemctl kill --kill-whom=main --signal=HUP virtfleet-agent")?;
    until_recorded(machine, "\"agent\" in s[\"triggers\"]")?;
    ensure!(agent(machine)? == before, "SIGHUP ended the agent");
    Ok(())
}

/// A disk that is plugged in leads to a pass.
fn disk(machine: &Machine) -> Result<()> {
    machine.plug_disk(&Disk::blank("more", 64 * MIB))?;
    until_recorded(machine, "\"device\" in s[\"triggers\"]")
}

/// Creates a folder with a newer agent: a debug build says so in its version. Its symbols are most
/// of it.
pub(crate) fn newer_agent(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    Launch::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .arg(folder.join("virtfleet-agent"))
        .arg(bins::agent()?)
        .text(STAGE_TIMEOUT)
        .map(drop)
}

/// The binary at the path `newer` in the guest is installed over the running one.
pub(crate) fn upgrade(
    stage: &virtfleet_tests::stage::Stage,
    who: &virtfleet_tests::sim::Guest,
    machine: &Machine,
    newer: &str,
) -> Result<()> {
    let wide = |stage: &virtfleet_tests::stage::Stage| {
        stage.ctl()?.args(["vms", "-o", "wide"]).text(real::GUEST_TIMEOUT)
    };
    real::until_identified(stage, who)?;
    let old = wide(stage)?;
    let line = old
        .lines()
        .find(|line| line.contains(&who.name))
        .context("no line")?;
    ensure!(!line.contains("-dev"), "{line}");
    // What says which binary it is.
    let sums = [real::AGENT, "/var/lib/virtfleet/delivery/installed"];
    let end_state = |machine: &Machine| -> Result<String> {
        let text = real::end_state(machine)?;
        let lines = text
            .lines()
            .filter(|line| !sums.iter().any(|file| line.contains(file)));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    };
    let before = end_state(machine)?;
    let provisioned = kit::number(machine, "virtfleet-provision", "ActiveEnterTimestampMonotonic")?;
    let process = agent(machine)?;
    machine.run(&format!("{newer} install"))?;
    stage.until_vm_within(real::GUEST_TIMEOUT, who, "the version of the upgrade", |vm| {
        vm["agent"]["status"] == "up"
            && vm["agent"]["version"]
                .as_str()
                .is_some_and(|v| v.ends_with("-dev"))
    })?;
    let new = wide(stage)?;
    ensure!(new.contains("-dev"), "{new}");
    ensure!(agent(machine)? != process, "the agent is the old one");
    let after = end_state(machine)?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    ensure!(
        kit::number(machine, "virtfleet-provision", "ActiveEnterTimestampMonotonic")? == provisioned,
        "provisioning ran again"
    );
    // And once more: nothing to do.
    let process = agent(machine)?;
    machine.run(&format!("{newer} install"))?;
    ensure!(
        agent(machine)? == process,
        "an agent that was installed already was restarted"
    );
    Ok(())
}
