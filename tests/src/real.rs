//! A real guest in the stage's fleet: user-data from `virtfleetctl render` installs the agent in
//! it, a manifest adds it to the collector's inventory, and the collector dials its port as in any
//! VM.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    bins,
    guest::{Guest as Machine, Prepared, Scene, Vm},
    pki,
    process::{Launch, Process},
    sim::{self, Guest},
    stage::{Beat, STAGE_TIMEOUT, Stage},
};

/// Timeout for operations in a guest that take a moment without emulation.
pub const GUEST_TIMEOUT: Duration = Duration::from_mins(6);
/// Interval and timeout of pulls of a real guest. Under emulation the agent takes 0.2 seconds of
/// CPU time for a page, and on a busy machine more than a second until it is there.
pub const PULLS: Beat = Beat {
    interval: Duration::from_secs(4),
    timeout: Duration::from_secs(4),
};
/// Port on which the agent listens in the guest.
pub const AGENT_PORT: u16 = 10911;
/// URL of the mirror, from the guest: see [`Vm::mirror`].
pub const MIRROR: &str = "http://10.0.2.100/virtfleet-agent";
/// Label of the disk with the agent, for guests without a network.
pub const DISK_LABEL: &str = "virtfleet";
/// Path at which the delivery installs the agent.
pub const AGENT: &str = "/opt/virtfleet/bin/virtfleet-agent";

/// Source of a guest's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// [`MIRROR`], over the network.
    Mirror,
    /// A disk labelled [`DISK_LABEL`].
    Disk,
}

impl From {
    fn source(self) -> String {
        match self {
            Self::Mirror => format!("url: {MIRROR}"),
            Self::Disk => format!("disk: {{ label: {DISK_LABEL}, path: virtfleet-agent }}"),
        }
    }
}

/// The `number`-th real VM of the stage's first cluster, on its first host, with this firmware
/// UUID.
pub fn tenant(stage: &Stage, number: u8, uuid: &str) -> Result<Guest> {
    let like = stage.plan.guests.first().context("the fleet is empty")?;
    Ok(Guest {
        name: format!("real-{number}"),
        uid: format!("4ea1c1de-0000-4000-8000-{number:012}"),
        node_uid: format!("4ea1c1de-0000-4000-9000-{number:012}"),
        firmware: uuid.parse().map_err(|_| anyhow::anyhow!("{uuid} is no UUID"))?,
        mac: "02:00:00:00:00:01".to_owned(),
        address: SocketAddr::new(
            IpAddr::V4(Ipv4Addr::new(127, 65, 0, number + 1)),
            stage.own_address().port(),
        ),
        host: 0,
        fault: None,
        ..like.clone()
    })
}

/// Creates a folder with the static agent, named as in sources of the delivery.
pub fn agent_folder(at: &Path) -> Result<PathBuf> {
    let folder = at.join("agent");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let agent = bins::static_agent()?;
    fs::copy(&agent, folder.join("virtfleet-agent")).with_context(|| format!("copy {}", agent.display()))?;
    Ok(folder)
}

/// A web server on the host's loopback that serves a folder.
pub struct Mirror {
    _server: Process,
    /// The address on which it listens.
    pub address: SocketAddr,
}

impl Mirror {
    /// Serves `folder`; its log goes into `log`.
    pub fn of(folder: &Path, log: &Path) -> Result<Self> {
        let address = crate::ports::free()?;
        let mut server = Launch::new("/usr/bin/python3")
            .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
            .arg(folder)
            .arg(address.port().to_string())
            .start(log)?;
        server.wait_for_port(address, STAGE_TIMEOUT)?;
        Ok(Self {
            _server: server,
            address,
        })
    }
}

/// The VM of `who`: with its UUID, and with its agent's port forwarded from the address that the
/// collector dials.
pub fn vm(who: &Guest) -> Vm {
    Vm::new(&who.name)
        .uuid(who.firmware.to_string())
        .forward(who.address, AGENT_PORT)
}

/// Writes the VMI of `who`, scheduled on `host`, to the collector's manifests.
pub fn place(stage: &Stage, who: &Guest, host: &str) -> Result<()> {
    stage.write_manifest(&format!("infra/vmi-{}.yaml", who.name), &sim::vmi(who, host))
}

/// Writes the input of a delivery for `who`, with its certificate, into a folder of the scene, and
/// returns its path. `settings` are indented lines of AgentConfig; `more` are further lines of the
/// input.
pub fn input(
    stage: &Stage,
    scene: &Scene,
    who: &Guest,
    from: &[From],
    settings: &str,
    more: &str,
) -> Result<PathBuf> {
    let folder = scene.path().join(format!("delivery-{}", who.name));
    let identity = stage.authority.agent(&who.cluster, &who.name, &who.uid)?;
    pki::write(&folder, "agent", &stage.authority, &identity)?;
    let tls = "certificate: agent.pem, key: agent.key, clientCA: ca.pem";
    write_input(&folder, from, tls, settings, more)
}

/// A restored guest has the time of its snapshot, and the collector's certificate is younger. The
/// pool's own user-data sets the clock before the agent starts.
const SET_CLOCK: &str =
    "#cloud-config\nbootcmd:\n- [sh, -c, 'date -s \"@$(cat /sys/class/rtc/rtc0/since_epoch)\"']\n";

/// User-data for all VMs of a pool, whose agents the collector enrols, as the text that
/// `virtfleetctl render` prints with the authority that it reads from the collector. The agent is
/// on a disk labelled [`DISK_LABEL`]. `settings` are indented lines of AgentConfig.
pub fn pool_user_data(stage: &Stage, scene: &Scene, settings: &str) -> Result<String> {
    let folder = scene.path().join("delivery");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let input = write_input(&folder, &[From::Disk], "enrolment: true", settings, "")?;
    let own = folder.join("own.yaml");
    fs::write(&own, SET_CLOCK).with_context(|| format!("write {}", own.display()))?;
    let render = stage.ctl()?.args(["render", "cloud-init", "--text", "--with"]);
    render.arg(own).arg(input).text(STAGE_TIMEOUT)
}

/// Writes the input of a delivery, and beside it the agent that it names.
fn write_input(folder: &Path, from: &[From], tls: &str, settings: &str, more: &str) -> Result<PathBuf> {
    let agent = bins::static_agent()?;
    let mut sources = String::new();
    for from in from {
        sources += "  - ";
        sources += &from.source();
        sources.push('\n');
    }
    let agent_file = folder.join("virtfleet-agent");
    if !agent_file.exists() {
        fs::copy(&agent, &agent_file).with_context(|| format!("copy {}", agent.display()))?;
    }
    let settings = if settings.is_empty() {
        String::new()
    } else {
        format!("settings:\n{settings}")
    };
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\nagent:\n  file: virtfleet-agent\n  sources:\n{sources}\
         tls: {{ {tls} }}\n{settings}{more}"
    );
    let path = folder.join("delivery.yaml");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Path of the agent in guests from [`installed`].
pub const BROUGHT: &str = "/root/virtfleet/virtfleet-agent";

/// Starts a booted guest with the agent at [`BROUGHT`], installed and with none of its units
/// started. Guests with the same agent share a snapshot.
pub fn installed(scene: &Scene, vm: &Vm) -> Result<Machine> {
    let agent = bins::static_agent()?;
    let bytes = fs::read(&agent).with_context(|| format!("read {}", agent.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let script =
        format!("{BROUGHT} install --no-start && systemd-tmpfiles --create && udevadm control --reload");
    scene.start_prepared(
        vm,
        &Prepared {
            name: "with the agent installed",
            inputs: format!("agent {:016x}\n{script}", hasher.finish()),
            steps: &|machine| {
                machine.copy_in(&agent_folder(machine.folder())?, "/root/virtfleet")?;
                machine.run(&script).map(drop)
            },
        },
    )
}

/// Writes the settings and certificates of a guest from [`installed`], and starts the agent's
/// units. The collector needs the manifest of `who`: [`place`].
pub fn begin(machine: &Machine, stage: &Stage, who: &Guest) -> Result<()> {
    let folder = machine.folder().join("tls");
    let identity = stage.authority.agent(&who.cluster, &who.name, &who.uid)?;
    pki::write(&folder, "agent", &stage.authority, &identity)?;
    for name in ["agent.pem", "agent.key", "ca.pem"] {
        let file = folder.join(name);
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        machine.write_file(&format!("/etc/virtfleet/tls/{name}"), &bytes, "0640")?;
    }
    let settings = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    \
         address: \"0.0.0.0:{AGENT_PORT}\"\n  tls: {{ certificate: /etc/virtfleet/tls/agent.pem, \
         key: /etc/virtfleet/tls/agent.key, clientCA: /etc/virtfleet/tls/ca.pem }}\n"
    );
    machine.write_file("/etc/virtfleet/agent.yaml", settings.as_bytes(), "0644")?;
    machine
        .run(&format!(
            "chgrp virtfleet /etc/virtfleet/tls/* && {BROUGHT} install"
        ))
        .map(drop)
}

/// The output of `virtfleetctl render` for an input, as text.
pub fn render(what: &str, input: &Path, more: &[&str]) -> Result<String> {
    let as_text = (what == "cloud-init").then_some("--text");
    Launch::new(bins::ctl()?)
        .args(["render", what])
        .arg(input)
        .args(more)
        .args(as_text)
        .text(STAGE_TIMEOUT)
}

/// User-data for cloud-init, compressed as `virtfleetctl render` prints it.
pub fn user_data(input: &Path) -> Result<Vec<u8>> {
    Launch::new(bins::ctl()?)
        .args(["render", "cloud-init"])
        .arg(input)
        .bytes(STAGE_TIMEOUT)
}

/// Waits until the collector pulls the agent of `who` and identifies it by its SMBIOS UUID; returns
/// the VM from the API.
pub fn until_identified(stage: &Stage, who: &Guest) -> Result<Value> {
    stage.until_vm_within(GUEST_TIMEOUT, who, "the agent is up and identified", |vm| {
        vm["agent"]["status"] == "up"
            && vm["identity"]["smbiosUuid"]["verdict"] == "confirmed"
            && vm["guest"]["kernel"].is_string()
    })
}

/// Everything that the delivery leaves in a guest, as one text: files with modes and checksums,
/// links, enabled and running units. Equal texts mean equal end states.
pub fn end_state(machine: &Machine) -> Result<String> {
    machine.run(
        "set -e
        find /opt/virtfleet /etc/virtfleet /etc/systemd/system /etc/sysusers.d /etc/tmpfiles.d /etc/udev/rules.d \
            /var/lib/virtfleet/delivery ! -name repairs \\( -path '*irtfleet*' -o -name '*.d' \\) -type f \
            -printf '%m %u:%g %p ' -exec sh -c 'sha256sum <\"$1\"' _ {} \\; | LC_ALL=C sort
        find /etc/systemd/system -lname '*virtfleet*' -printf '%p -> %l\\n' | LC_ALL=C sort
        getent passwd virtfleet | cut -d: -f1,6,7
        systemctl is-enabled virtfleet-agent virtfleet-provision virtfleet-dns virtfleet-reconcile.path \
            virtfleet-reconcile.timer virtfleet-delivery || true
        systemctl is-active virtfleet-agent virtfleet-provision virtfleet-dns virtfleet-reconcile.path || true",
    )
}

/// Checks that no file of an [`end_state`] is empty.
pub fn none_is_empty(state: &str) -> Result<()> {
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    anyhow::ensure!(!state.contains(EMPTY), "a file is empty:\n{state}");
    Ok(())
}

/// Checks that an [`end_state`] is complete: nothing is missing, empty, disabled or inactive.
/// Checksums differ between builds and guests; the delivery verifies them at each boot.
pub fn complete(state: &str) -> Result<()> {
    none_is_empty(state)?;
    for wanted in [
        AGENT,
        "/etc/virtfleet/agent.d/50-delivery.yaml",
        "/etc/virtfleet/tls/agent.key",
        "/etc/systemd/system/virtfleet-agent.service ",
        "/etc/systemd/system/virtfleet-agent.socket ",
        "/etc/systemd/system/virtfleet-provision.service ",
        "/etc/systemd/system/virtfleet-reconcile.path ",
        "/etc/systemd/system/kubelet.service.d/10-virtfleet.conf",
        "/etc/udev/rules.d/90-virtfleet.rules",
        "/var/lib/virtfleet/delivery/deliver",
        "multi-user.target.wants/virtfleet-agent.service -> ",
        "sysinit.target.wants/virtfleet-agent.socket -> ",
    ] {
        anyhow::ensure!(state.contains(wanted), "{wanted} is missing:\n{state}");
    }
    let words = |word: &str| state.lines().filter(|line| *line == word).count();
    anyhow::ensure!(words("enabled") == 6, "not everything is enabled:\n{state}");
    anyhow::ensure!(words("active") == 4, "not everything is active:\n{state}");
    Ok(())
}
