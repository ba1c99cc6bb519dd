//! A node of Kubermatic KKP: a first user-data whose script fetches a second cloud-config, cleans
//! cloud-init, runs it again with that file, and disables it. The agent comes with the second one,
//! as part of a profile, or with a boot command of the first.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{Guest as Machine, Scene, Seed, Start, play},
    osm::{self, Part},
    real::{self, From, Mirror},
    sim::Guest,
    skip,
    stage::Stage,
};

use crate::guest_lifecycle::kit;

/// A profile with a stand-in for kubelet.
const PROFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/osm/osp.yaml");

/// Shaped like the bootstrap user-data of the operating-system-manager; what it downloads there
/// lies in a file here.
const BOOTSTRAP: &str = r#"#cloud-config
ssh_pwauth: false
write_files:
- path: /opt/second.cfg
  permissions: "0600"
  content: |
    #cloud-config
    hostname: real-1
    write_files:
    - path: /opt/bin/setup
      permissions: "0755"
      content: |
        #!/bin/sh
        set -ex
        systemctl daemon-reload
        systemctl enable --now kubelet.service
    - path: /etc/systemd/system/kubelet.service
      content: |
        [Unit]
        Description=a stand-in for the kubelet
        [Service]
        ExecStart=/bin/sleep infinity
        [Install]
        WantedBy=multi-user.target
    - path: /etc/systemd/system/setup.service
      content: |
        [Service]
        Type=oneshot
        RemainAfterExit=true
        ExecStart=/opt/bin/setup
    runcmd:
    - systemctl restart setup.service
- path: /opt/bin/bootstrap
  permissions: "0755"
  content: |
    #!/bin/bash
    set -xeuo pipefail
    cp /opt/second.cfg /etc/cloud/cloud.cfg.d/second.cfg
    cloud-init clean --logs
    cloud-init init --file /etc/cloud/cloud.cfg.d/second.cfg
    systemctl daemon-reload
    cloud-init modules --mode config --file /etc/cloud/cloud.cfg.d/second.cfg
    cloud-init modules --mode final --file /etc/cloud/cloud.cfg.d/second.cfg
    touch /etc/cloud/cloud-init.disabled
    touch /opt/bootstrapped
- path: /etc/systemd/system/bootstrap.service
  content: |
    [Unit]
    After=network-online.target
    Wants=network-online.target
    [Service]
    Type=oneshot
    RemainAfterExit=true
    ExecStart=/opt/bin/bootstrap
    [Install]
    WantedBy=multi-user.target
runcmd:
- systemctl daemon-reload
- systemctl restart bootstrap.service
"#;

/// Kubelet's stand-in runs, and was started when provisioning had ended.
fn kubelet_came_after(machine: &Machine) -> Result<()> {
    let provisioned = kit::number(machine, "virtfleet-provision", "ActiveEnterTimestampMonotonic")?;
    let kubelet = kit::number(machine, "kubelet", "ExecMainStartTimestampMonotonic")?;
    ensure!(
        0 < provisioned && provisioned <= kubelet,
        "provisioning was over at {provisioned} µs, kubelet started at {kubelet} µs"
    );
    machine.run("systemctl is-active kubelet.service").map(drop)
}

/// The first boot of a VM with this user-data begins. The guest reaches a mirror with the agent.
pub(crate) fn start(scene: &Scene, who: &Guest, user_data: String) -> Result<(Machine, Mirror)> {
    let folder = real::agent_folder(scene.path())?;
    let mirror = Mirror::of(&folder, scene.path())?;
    let vm = real::vm(who)
        .seed(Seed::no_cloud(&who.name).user_data(user_data))
        .mirror(80, mirror.address);
    let machine = scene.start(&vm, Start::BeforeCloudInit)?;
    machine.wait_agent(Duration::from_mins(2))?;
    Ok((machine, mirror))
}

/// User-data of a profile with the agent.
pub(crate) fn of_profile(scene: &Scene, stage: &Stage, who: &Guest) -> Result<String> {
    let input = real::input(stage, scene, who, &[From::Mirror], "", "platform: kkp\n")?;
    let profile = real::render("osp", &input, &["--from", PROFILE])?;
    let provisioning = osm::cloud_config(&profile, Part::Provisioning, &[])?;
    let more = [("/opt/provisioning.cfg", provisioning.as_str())];
    osm::cloud_config(&profile, Part::Bootstrap, &more)
}

/// The agent is up and identified when the bootstrap script has ended. A reboot, without
/// cloud-init, changes nothing.
fn comes_and_stays(scene: &Scene, stage: &Stage, who: &Guest, user_data: String, done: &str) -> Result<()> {
    let (machine, mirror) = start(scene, who, user_data)?;
    // Up to five runs of cloud-init, each half a minute on a busy machine.
    machine.run_until_within(
        &format!("test -e {done} && systemctl is-active --quiet kubelet virtfleet-agent"),
        "the bootstrap script to end, and the agent and kubelet to run",
        real::GUEST_TIMEOUT,
    )?;
    real::until_identified(stage, who)?;
    kubelet_came_after(&machine)?;
    let first = real::end_state(&machine)?;
    for unit in [
        "virtfleet-agent.service",
        "virtfleet-delivery.service",
        "/etc/virtfleet/",
    ] {
        ensure!(first.contains(unit), "{unit} is missing in:\n{first}");
    }

    machine.power_off()?;
    drop(mirror);
    machine.boot_to_agent()?;
    machine.run_until(
        "systemctl is-active --quiet virtfleet-agent kubelet && ! systemctl list-jobs | grep -q virtfleet",
        "agent and kubelet after a boot without cloud-init",
    )?;
    machine.run("test ! -e /run/cloud-init/result.json && systemctl is-active virtfleet-delivery")?;
    kit::page(stage, who, "/v1/report")?;
    kubelet_came_after(&machine)?;
    let second = real::end_state(&machine)?;
    ensure!(
        first == second,
        "before the reboot:\n{first}\nafter it:\n{second}"
    );
    let failed = machine.run("systemctl list-units --failed --plain --no-legend 'virtfleet*'")?;
    ensure!(failed.is_empty(), "failed: {failed}");
    Ok(())
}

#[test]
fn tier4_a_profile_of_kkp_brings_the_agent_with_its_second_cloud_config() {
    let test = "tier4_a_profile_of_kkp_brings_the_agent_with_its_second_cloud_config";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let (stage, who) = kit::stage()?;
        let user_data = of_profile(scene, &stage, &who)?;
        comes_and_stays(scene, &stage, &who, user_data, "/etc/bootstrap-complete")
    });
}

#[test]
fn tier4_an_agent_outlives_the_clean_and_second_run_of_cloud_init_on_a_kkp_node() {
    let test = "tier4_an_agent_outlives_the_clean_and_second_run_of_cloud_init_on_a_kkp_node";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let (stage, who) = kit::stage()?;
        let bootstrap = scene.path().join("bootstrap.yaml");
        fs::write(&bootstrap, BOOTSTRAP)?;
        let input = real::input(&stage, scene, &who, &[From::Mirror], "", "")?;
        let user_data = real::render(
            "cloud-init",
            &input,
            &["--with", bootstrap.to_str().unwrap_or_default()],
        )?;
        comes_and_stays(scene, &stage, &who, user_data, "/opt/bootstrapped")
    });
}
