//! The rows of the table: how an agent gets into a guest, is upgraded and removed.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    delivered::Delivery,
    guest::{Guest as Machine, Scene, Seed, Start, Suite, needs},
    process::Launch,
    real::{self, AGENT, From, Mirror},
    sim::Guest,
    skip,
    stage::{STAGE_TIMEOUT, Stage},
};

use crate::{
    expressions::root,
    guest_lifecycle::{baked, ignition, kit, kkp, settings},
};

/// A guest whose first boot has begun.
pub(crate) struct Life {
    pub(crate) stage: Stage,
    pub(crate) who: Guest,
    pub(crate) machine: Machine,
    // Keeps the mirror alive as long as the guest may ask it.
    _mirror: Option<Mirror>,
}

/// A row.
pub(crate) struct Platform {
    /// What the machine that runs the test must have.
    pub(crate) needs: fn() -> Result<()>,
    /// Begins a first boot.
    pub(crate) begin: fn(&Scene) -> Result<Life>,
    /// Completes by hand what no boot completes; also after a power cut.
    pub(crate) complete: Option<fn(&Life) -> Result<()>>,
    /// A file that is there when half of the installation is done.
    pub(crate) halfway: &'static str,
    /// The path of the agent.
    pub(crate) agent: &'static str,
    /// Upgrades the agent and leaves everything else as it is.
    pub(crate) upgrade: fn(&Life) -> Result<()>,
    /// The command that removes the agent.
    pub(crate) remove: &'static str,
    /// Whether the next boot installs it again.
    pub(crate) comes_back: bool,
}

const REMOVE: &str = "/opt/virtfleet/bin/virtfleet-agent install --remove";

/// cloud-init with a ConfigDrive.
pub(crate) const CONFIG_DRIVE: Platform = Platform {
    needs: trixie,
    begin: begin_config_drive,
    complete: None,
    halfway: AGENT,
    agent: AGENT,
    upgrade: upgrade_by_hand,
    remove: REMOVE,
    comes_back: true,
};

/// Kubermatic's operating-system-manager.
pub(crate) const OSM: Platform = Platform {
    begin: begin_osm,
    comes_back: false,
    ..CONFIG_DRIVE
};

/// Ignition, which runs after the boot; see [`ignition`].
pub(crate) const IGNITION: Platform = Platform {
    needs: ignition::engine,
    begin: begin_ignition,
    comes_back: false,
    ..CONFIG_DRIVE
};

/// An image with the agent.
pub(crate) const BAKED: Platform = Platform {
    begin: begin_baked,
    // The agent is there from the beginning; this comes with user-data.
    halfway: "/etc/virtfleet/tls/agent.key",
    comes_back: false,
    ..CONFIG_DRIVE
};

/// The Debian package.
pub(crate) const DEB: Platform = Platform {
    needs: package,
    begin: begin_deb,
    complete: Some(complete_deb),
    halfway: PACKAGED_AGENT,
    agent: PACKAGED_AGENT,
    upgrade: upgrade_deb,
    remove: "dpkg -r virtfleet-agent",
    comes_back: false,
};

/// The extension image.
pub(crate) const SYSEXT: Platform = Platform {
    needs: squashfs,
    begin: begin_sysext,
    complete: Some(complete_sysext),
    upgrade: upgrade_sysext,
    remove: "rm /etc/extensions/virtfleet-agent.raw; systemctl restart systemd-sysext; systemctl daemon-reload; \
             systemctl stop 'virtfleet*'",
    ..DEB
};

const PACKAGED_AGENT: &str = "/usr/bin/virtfleet-agent";

fn trixie() -> Result<()> {
    needs(Suite::Trixie)
}

fn package() -> Result<()> {
    bins::package().map(drop)
}

fn squashfs() -> Result<()> {
    skip::program("mksquashfs").map(drop)
}

fn begin_config_drive(scene: &Scene) -> Result<Life> {
    let delivery = Delivery::begin_at(
        real::PULLS,
        scene,
        Suite::Trixie,
        Seed::config_drive,
        From::Disk,
        Start::BeforeCloudInit,
    )?;
    Ok(Life {
        stage: delivery.stage,
        who: delivery.who,
        machine: delivery.machine,
        _mirror: None,
    })
}

fn begin_osm(scene: &Scene) -> Result<Life> {
    let (stage, who) = kit::stage()?;
    let user_data = kkp::of_profile(scene, &stage, &who)?;
    let (machine, mirror) = kkp::start(scene, &who, user_data)?;
    Ok(Life {
        stage,
        who,
        machine,
        _mirror: Some(mirror),
    })
}

fn begin_ignition(scene: &Scene) -> Result<Life> {
    let (stage, who) = kit::stage()?;
    let machine = ignition::with_config_drive(scene, &stage, &who)?;
    // Flatcar has none, and this guest's would find two data sources at its next boot.
    machine.run("touch /etc/cloud/cloud-init.disabled")?;
    ignition::ignite(&machine, "kubevirt", "--no-block")?;
    Ok(Life {
        stage,
        who,
        machine,
        _mirror: None,
    })
}

fn begin_baked(scene: &Scene) -> Result<Life> {
    let (stage, who) = kit::stage()?;
    let machine = baked::start(scene, &stage, &who)?;
    Ok(Life {
        stage,
        who,
        machine,
        _mirror: None,
    })
}

fn begin_deb(scene: &Scene) -> Result<Life> {
    let package = bins::package()?;
    let (stage, who) = kit::stage()?;
    let machine = kit::booted(scene, &stage, &who, Suite::Trixie, |folder| {
        fs::copy(&package, folder.join("agent.deb"))?;
        Ok(())
    })?;
    machine.run(
        "touch /etc/cloud/cloud-init.disabled; sync; \
         systemd-run --quiet --unit=bring dpkg -i /root/virtfleet/agent.deb",
    )?;
    Ok(Life {
        stage,
        who,
        machine,
        _mirror: None,
    })
}

/// An administrator repeats an installation that the power cut, and puts the certificates in place.
fn complete_deb(life: &Life) -> Result<()> {
    let machine = &life.machine;
    machine.run_until_within(
        "! systemctl is-active --quiet bring",
        "dpkg to end",
        real::GUEST_TIMEOUT,
    )?;
    machine.run_within(
        "[ \"$(dpkg-query -W -f='${db:Status-Status}' virtfleet-agent)\" = installed ] || \
         { dpkg --configure -a; dpkg -i /root/virtfleet/agent.deb; }",
        real::GUEST_TIMEOUT,
    )?;
    machine.run(kit::CERTIFICATES).map(drop)
}

/// A newer binary installs itself; user-data names the older one still.
fn upgrade_by_hand(life: &Life) -> Result<()> {
    let folder = life.machine.folder().join("newer");
    settings::newer_agent(&folder)?;
    life.machine.copy_in(&folder, "/root/newer")?;
    fs::remove_dir_all(&folder)?;
    settings::upgrade(
        &life.stage,
        &life.who,
        &life.machine,
        "/root/newer/virtfleet-agent",
    )
}

/// Makes of the package $1 one that differs in its version only: `later.deb` in the folder $2.
const LATER: &str = "set -e; dpkg-deb -R \"$1\" \"$2/tree\"
sed -i 's/^Version: .*/Version: 99/' \"$2/tree/DEBIAN/control\"
dpkg-deb --root-owner-group -b \"$2/tree\" \"$2/later.deb\"
rm -r \"$2/tree\"";

/// A later package restarts the agent, and provisions nothing again.
fn upgrade_deb(life: &Life) -> Result<()> {
    let machine = &life.machine;
    let folder = machine.folder().join("later");
    fs::create_dir_all(&folder)?;
    Launch::new("sh")
        .args(["-c", LATER, "sh"])
        .arg(bins::package()?)
        .arg(&folder)
        .text(STAGE_TIMEOUT)?;
    machine.copy_in(&folder, "/root/later")?;
    fs::remove_dir_all(&folder)?;
    let provisioned = || kit::number(machine, "virtfleet-provision", "ActiveEnterTimestampMonotonic");
    let before = provisioned()?;
    let process = kit::number(machine, "virtfleet-agent", "MainPID")?;
    machine.run_within("dpkg -i /root/later/later.deb", real::GUEST_TIMEOUT)?;
    machine.run_until(
        &format!(
            "[ \"$(systemctl show -P MainPID virtfleet-agent)\" != {process} ] && systemctl is-active --quiet virtfleet-agent"
        ),
        "another process of the agent",
    )?;
    let version = machine.run("dpkg-query -W -f='${Version}' virtfleet-agent")?;
    ensure!(version == "99", "{version}");
    ensure!(provisioned()? == before, "provisioning ran again");
    Ok(())
}

/// The extension image with a binary, as `virtfleet-agent.raw` in a folder.
fn extension(agent: &Path, folder: &Path) -> Result<()> {
    let channel = folder.join("channel");
    Launch::new(root().join("packaging/sysext/build.sh"))
        .arg(&channel)
        .arg(agent)
        .text(real::GUEST_TIMEOUT)?;
    let mut built = fs::read_dir(&channel)?.filter_map(|entry| Some(entry.ok()?.path()));
    let image = built
        .find(|path| path.extension().is_some_and(|extension| extension == "raw"))
        .context("no image")?;
    fs::rename(image, folder.join("virtfleet-agent.raw"))?;
    fs::remove_dir_all(&channel)?;
    Ok(())
}

fn begin_sysext(scene: &Scene) -> Result<Life> {
    let (stage, who) = kit::stage()?;
    let machine = kit::booted(scene, &stage, &who, Suite::Trixie, |folder| {
        extension(&bins::static_agent()?, folder)
    })?;
    machine.run(
        "set -e; touch /etc/cloud/cloud-init.disabled; mkdir -p /etc/extensions
        cp /root/virtfleet/virtfleet-agent.raw /etc/extensions/; sync
        systemctl enable systemd-sysext; systemctl restart --no-block systemd-sysext",
    )?;
    Ok(Life {
        stage,
        who,
        machine,
        _mirror: None,
    })
}

/// What a boot does with an image that is there, and the certificates.
fn complete_sysext(life: &Life) -> Result<()> {
    let machine = &life.machine;
    machine.run_until("test -x /usr/bin/virtfleet-agent", "the image to be merged")?;
    machine.run("systemctl daemon-reload && systemctl start virtfleet-extension")?;
    machine.run(kit::CERTIFICATES).map(drop)
}

/// As an update of the channel: another image, and a restart of the agent.
fn upgrade_sysext(life: &Life) -> Result<()> {
    let machine = &life.machine;
    let folder = machine.folder().join("newer");
    settings::newer_agent(&folder)?;
    let newer = folder.join("virtfleet-agent");
    extension(&newer, &folder)?;
    fs::remove_file(&newer)?;
    machine.copy_in(&folder, "/root/newer")?;
    fs::remove_dir_all(&folder)?;
    machine.run(
        "set -e; cp /root/newer/virtfleet-agent.raw /etc/extensions/.new
        mv /etc/extensions/.new /etc/extensions/virtfleet-agent.raw
        systemctl restart systemd-sysext; systemctl daemon-reload; systemctl restart virtfleet-agent",
    )?;
    let version = machine.run("/usr/bin/virtfleet-agent --version")?;
    ensure!(version.contains("-dev"), "{version}");
    Ok(())
}
