//! Ignition in the place of cloud-init: its own engine reads what `virtfleetctl render ignition`
//! prints from where KubeVirt or QEMU puts it, and the agent comes.
//!
//! The engine is Debian's, taken from this machine with the libraries that it is linked to. It runs
//! in the real root after the boot instead of in an initramfs; what a first boot does with presets
//! is done by hand.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, Guest as Machine, Scene, Start, Suite, needs, play},
    process::Launch,
    real::{self, From},
    sim::Guest,
    skip,
    stage::{STAGE_TIMEOUT, Stage},
};

use crate::guest_lifecycle::kit;

/// Debian's package keeps it outside `PATH`: the initramfs is where it belongs.
const ENGINE: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// The engine, for `skip::need`.
pub(crate) fn engine() -> Result<()> {
    needs(Suite::Trixie)?;
    let there = Path::new(ENGINE).is_file();
    ensure!(there, "{ENGINE} is not there; apt-get install ignition");
    Ok(())
}

/// Puts the engine, its loader and its libraries into `folder`.
fn pack(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::copy(ENGINE, folder.join("ignition")).context("copy the engine")?;
    let libraries = Launch::new("ldd").arg(ENGINE).text(STAGE_TIMEOUT)?;
    for path in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let name = Path::new(path).file_name().context("a library without a name")?;
        fs::copy(path, folder.join(name)).with_context(|| format!("copy {path}"))?;
    }
    Ok(())
}

/// What the delivery to `who` is as a configuration for Ignition. The agent lies on a disk.
fn configuration(stage: &Stage, scene: &Scene, who: &Guest) -> Result<String> {
    let input = real::input(stage, scene, who, &[From::Disk], "", "")?;
    real::render("ignition", &input, &[])
}

/// A VM of `who` with the agent on a disk, and the engine in the guest.
fn with_engine(scene: &Scene, who: &Guest, firmware: Option<&str>) -> Result<Machine> {
    let folder = real::agent_folder(scene.path())?;
    let disk = Disk::folder("agent", &folder, real::DISK_LABEL).read_only();
    let vm = real::vm(who).disk(disk);
    let machine = match firmware {
        None => scene.start(&vm, Start::Booted)?,
        Some(text) => {
            let vm = vm.no_seed().firmware("opt/com.coreos/config", text);
            let machine = scene.start(&vm, Start::Cold)?;
            machine.wait_agent(real::GUEST_TIMEOUT)?;
            machine
        }
    };
    let engine = scene.path().join("engine");
    pack(&engine)?;
    machine.copy_in(&engine, "/root/ignition")?;
    Ok(machine)
}

/// Runs the engine's stages, applies presets and starts the delivery, as a first boot does after
/// Ignition. `how` is an option of `systemctl start`, or empty.
pub(crate) fn ignite(machine: &Machine, platform: &str, how: &str) -> Result<()> {
    machine.run(&format!(
        "set -e
        mkdir -p /etc/selinux /run/ignition
        printf 'SELINUX=disabled\\nSELINUXTYPE=targeted\\n' >/etc/selinux/config
        printf '#!/bin/sh\\n' >/usr/sbin/setfiles; chmod 0755 /usr/sbin/setfiles
        for stage in fetch-offline files; do
            /root/ignition/ld-linux-x86-64.so.2 --library-path /root/ignition /root/ignition/ignition \\
                --platform={platform} --root=/ --config-cache=/run/ignition/config --state-file=/run/ignition/state \\
                --neednet=/run/ignition/neednet --log-to-stdout --stage=$stage
        done
        systemctl daemon-reload
        systemctl preset virtfleet-delivery.service
        systemctl is-enabled virtfleet-delivery.service
        sync
        systemctl start {how} virtfleet-delivery.service"
    ))
    .map(drop)
}

/// The collector pulls the agent, and the guest has the files that every delivery installs.
fn came(stage: &Stage, who: &Guest, machine: &Machine) -> Result<()> {
    real::until_identified(stage, who)?;
    let end = real::end_state(machine)?;
    for what in [real::AGENT, "virtfleet-agent.service", "/etc/virtfleet/"] {
        ensure!(end.contains(what), "{what} is missing in:\n{end}");
    }
    Ok(())
}

#[expect(clippy::unwrap_used, reason = "with CI=true a skip fails the test")]
fn with_ignition(test: &str, body: impl Fn(&Scene) -> Result<()>) {
    if skip::need(4, test, engine()).unwrap().is_some() {
        play(test, body);
    }
}

/// A VM of `who` with the engine, the agent on a disk, and the configuration on a ConfigDrive.
pub(crate) fn with_config_drive(scene: &Scene, stage: &Stage, who: &Guest) -> Result<Machine> {
    let user_data = scene.path().join("user_data");
    fs::write(&user_data, configuration(stage, scene, who)?)?;
    let machine = with_engine(scene, who, None)?;
    let image = scene.path().join("config-2.img");
    Launch::new("mkfs.vfat")
        .args(["-n", "config-2", "-C"])
        .arg(&image)
        .arg("8192")
        .text(STAGE_TIMEOUT)?;
    for folder in ["::openstack", "::openstack/latest"] {
        Launch::new("mmd")
            .arg("-i")
            .arg(&image)
            .arg(folder)
            .text(STAGE_TIMEOUT)?;
    }
    Launch::new("mcopy")
        .arg("-i")
        .arg(&image)
        .arg(&user_data)
        .arg("::openstack/latest/user_data")
        .text(STAGE_TIMEOUT)?;
    machine.plug_disk(&Disk::raw("config", &image).read_only())?;
    Ok(machine)
}

#[test]
fn tier4_ignition_brings_the_agent_from_a_config_drive() {
    with_ignition("tier4_ignition_brings_the_agent_from_a_config_drive", |scene| {
        let (stage, who) = kit::stage()?;
        let machine = with_config_drive(scene, &stage, &who)?;
        ignite(&machine, "kubevirt", "")?;
        came(&stage, &who, &machine)
    });
}

#[test]
fn tier4_ignition_brings_the_agent_from_the_firmware() {
    let test = "tier4_ignition_brings_the_agent_from_the_firmware";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    with_ignition(test, |scene| {
        let (stage, who) = kit::stage()?;
        let wanted = configuration(&stage, scene, &who)?;
        let machine = with_engine(scene, &who, Some(&wanted))?;
        // Flatcar's images configure every link; this one leaves that to cloud-init, which has no
        // seed here.
        machine.run(
            "printf '[Match]\\nName=en*\\n[Network]\\nDHCP=yes\\n' >/etc/systemd/network/10-dhcp.network && \
             systemctl restart systemd-networkd && modprobe qemu_fw_cfg",
        )?;
        ignite(&machine, "qemu", "")?;
        came(&stage, &who, &machine)
    });
}
