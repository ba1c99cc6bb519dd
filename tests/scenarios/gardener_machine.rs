//! The unit for machines of Gardener under a real systemd, with the steps of gardener-node-agent
//! (`applyChangedUnits`, `executeUnitCommands`, `removeDeletedUnits` in
//! `pkg/nodeagent/controller/operatingsystemconfig/reconciler.go`).

use std::time::Duration;

use anyhow::{Result, ensure};
use virtfleet_tests::{
    bins,
    dns::NetNs,
    guest::Suite,
    machine::{Machine, Options, Root, play},
};

use crate::expressions::read;

const SOON: Duration = Duration::from_secs(90);
/// Where node-agent writes the binary of the image.
const EXTRACTED: &str = "/opt/virtfleet/gardener/virtfleet-agent";
const UNIT: &str = "virtfleet-delivery.service";
/// Without certificates the agent may only serve on loopback.
const SETTINGS: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n\
                        server: {listeners: [{name: default, address: \"127.0.0.1:10911\", plain: true}]}\n";
/// What node-agent does with a unit that is new, or has a changed file.
const APPLY: &str = "systemctl enable virtfleet-delivery.service && systemctl daemon-reload && \
                     systemctl restart virtfleet-delivery.service";
/// What it does with a unit that the configuration has no more.
const REMOVE: &str = "systemctl disable virtfleet-delivery.service && systemctl stop virtfleet-delivery.service; \
                      rm -f /etc/systemd/system/virtfleet-delivery.service && systemctl daemon-reload; \
                      rm -f /opt/virtfleet/gardener/virtfleet-agent /etc/virtfleet/agent.d/50-delivery.yaml";

fn life(root: &Root) -> Result<()> {
    let text = read("shared/delivery/src/text/gardener-delivery.service").replace("@AGENT@", EXTRACTED);
    let options = Options::default()
        .file(&format!("/etc/systemd/system/{UNIT}"), &text)
        .file("/etc/virtfleet/agent.d/50-delivery.yaml", SETTINGS)
        .program("extracted-agent", bins::agent()?);
    let network = NetNs::new()?;
    let mut machine = Machine::boot(root, &network, options)?;

    // Without the binary the start succeeds, so that the configuration of the node does.
    machine.sh(APPLY)?;
    machine.until_sh(
        SOON,
        &format!("systemctl show -P SubState {UNIT} | grep -x auto-restart"),
    )?;
    machine.sh("mkdir -p /opt/virtfleet/gardener && \
         cp /usr/bin/extracted-agent /opt/virtfleet/gardener/virtfleet-agent")?;
    machine.until_sh(SOON, "systemctl is-active virtfleet-agent.service")?;
    machine.until_sh(
        SOON,
        &format!("systemctl show -P SubState {UNIT} | grep -x exited"),
    )?;
    let started = "systemctl show -P InvocationID virtfleet-agent.service";
    let before = machine.sh(started)?;

    // A changed file restarts the unit, which repairs what is damaged and nothing else.
    machine.sh("echo >/etc/udev/rules.d/90-virtfleet.rules")?;
    machine.sh(APPLY)?;
    machine.until_sh(SOON, "grep -q virtfleet /etc/udev/rules.d/90-virtfleet.rules")?;
    machine.until_sh(
        SOON,
        &format!("systemctl show -P SubState {UNIT} | grep -x exited"),
    )?;
    machine.sh("systemctl is-active virtfleet-agent.service")?;
    ensure!(machine.sh(started)? == before, "the agent was restarted");

    // A shutdown does not remove the agent.
    machine.reboot()?;
    machine.until_sh(SOON, "systemctl is-active virtfleet-agent.service")?;
    machine.until_sh(
        SOON,
        &format!("systemctl show -P SubState {UNIT} | grep -x exited"),
    )?;

    machine.sh(REMOVE)?;
    let left = machine.sh(
        "ls -d /opt/virtfleet/bin/virtfleet-agent /etc/systemd/system/*virtfleet* /etc/udev/rules.d/*virtfleet* \
         /etc/systemd/system/*/*virtfleet* 2>/dev/null || :",
    )?;
    ensure!(left.is_empty(), "{left}: {}", machine.journal(UNIT)?);
    let running = machine.sh("systemctl list-units --all --plain --no-legend 'virtfleet-*.service' || :")?;
    ensure!(!running.contains(" active "), "{running}");
    Ok(())
}

#[test]
fn tier2_gardeners_unit_installs_repairs_and_removes_the_agent() {
    let test = "tier2_gardeners_unit_installs_repairs_and_removes_the_agent";
    play(test, Suite::Trixie, life).unwrap();
}
