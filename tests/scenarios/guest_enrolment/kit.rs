//! A network namespace with a collector that enrols, and a VM in it whose address the collector
//! dials.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use regex_lite::Regex;
use serde_json::{Value, json};
use virtfleet_tests::{
    dns::NetNs,
    guest::{Disk, Guest as Machine, Network, Scene, Seed, Start, Suite, Vm},
    process::{Launch, Process},
    real::{self, AGENT_PORT, DISK_LABEL},
    sim::{
        Guest, Options,
        enrol::{AgentDisk, AgentSpec, EnrolFault},
    },
    stage::{STAGE_TIMEOUT, Stage},
    wait,
};

pub(crate) use real::GUEST_TIMEOUT;

/// Maximum time from the start of the agent until the collector has pulled it. The goal is two
/// seconds; the CPUs of a guest are emulated, beside other tests.
const MAX_TIME_TO_JOIN: Duration = Duration::from_secs(15);
/// Directory of the agent's key and certificate.
const STATE: &str = "/var/lib/virtfleet-agent";

/// The collector, in a namespace in which the VMs' tap devices are.
pub(crate) struct World {
    pub(crate) stage: Stage,
    net: NetNs,
}

impl World {
    /// Moves this thread into the scene's namespace, and starts the collector there.
    pub(crate) fn new(scene: &Scene) -> Result<Self> {
        let net = NetNs::of(scene.namespace()?.name());
        net.enter()?;
        let options = Options {
            guests: 1,
            hosts: 2,
            zones: 2,
            clusters: 1,
            ..Options::default()
        };
        let mut stage = Stage::enrolling(options, "24h")?;
        stage.dial(AGENT_PORT, "10.0.0.0/8");
        stage.start_collector(real::PULLS)?;
        Ok(Self { stage, net })
    }

    /// The `number`-th real VM, on the `number`-th tap device, with this firmware UUID.
    pub(crate) fn guest(&self, number: u8, uuid: &str) -> Result<Guest> {
        let address: IpAddr = format!("10.0.{}.15", number + 1).parse()?;
        Ok(Guest {
            address: SocketAddr::new(address, AGENT_PORT),
            ..real::tenant(&self.stage, number, uuid)?
        })
    }

    /// The definition of the VM of `who`: with a NoCloud seed, or on Debian 12 with a ConfigDrive.
    pub(crate) fn vm(scene: &Scene, who: &Guest, suite: Suite, user_data: &str) -> Result<Vm> {
        let (mac, address) = (&who.mac, who.address.ip());
        let seed = match suite {
            Suite::Trixie => Seed::no_cloud(&who.name).network(format!(
                "version: 2\nethernets:\n  nic:\n    match: {{ macaddress: \"{mac}\" }}\n    addresses: [{address}/24]\n"
            )),
            Suite::Bookworm => Seed::config_drive(&who.name).network(
                json!({
                    "links": [{"id": "nic", "type": "phy", "ethernet_mac_address": mac}],
                    "networks": [{"id": "n", "link": "nic", "type": "ipv4", "ip_address": format!("{address}/24")}],
                    "services": [],
                })
                .to_string(),
            ),
        };
        let folder = real::agent_folder(scene.path())?;
        Ok(Vm::new(&who.name)
            .suite(suite)
            .uuid(who.firmware.to_string())
            .network(Network::Tap)
            .seed(seed.user_data(user_data))
            .disk(Disk::folder("agent", &folder, DISK_LABEL).read_only()))
    }

    /// Adds a VM to the inventory and runs its first boot until it is joined; prints how long that
    /// took.
    pub(crate) fn first_boot(&self, scene: &Scene, who: &Guest, vm: &Vm) -> Result<(Machine, Value)> {
        self.place(who, 0)?;
        let machine = scene.start(vm, Start::BeforeCloudInit)?;
        let (joined, at) = self.until_joined(who)?;
        machine.wait_agent(GUEST_TIMEOUT)?;
        let age = AgentAge::of(&machine)?;
        let [up, started] = [age.up, age.started].map(|since| at.saturating_duration_since(since));
        eprintln!("joined {up:.2?} after the agent was up, {started:.2?} after its start");
        ensure!(up < MAX_TIME_TO_JOIN, "{up:?} until it was joined");
        Ok((machine, joined))
    }

    /// Writes the VMI and the virt-launcher pod of `who`, on the `host`-th infra node.
    pub(crate) fn place(&self, who: &Guest, host: usize) -> Result<()> {
        real::place(&self.stage, who, &self.stage.plan.hosts[host].name)
    }

    /// Removes the VMI, and waits until the collector has read that.
    pub(crate) fn delete(&self, who: &Guest) -> Result<()> {
        fs::remove_file(
            self.stage
                .manifests()
                .join(format!("infra/vmi-{}.yaml", who.name)),
        )?;
        wait::until(STAGE_TIMEOUT, "the VM is gone", || {
            let list = self.stage.json("/api/v1/vms").unwrap_or_default();
            list["items"]
                .as_array()
                .is_some_and(|items| items.iter().all(|vm| vm["name"] != *who.name))
        })
    }

    /// Waits until `who` is as wanted.
    pub(crate) fn until(&self, who: &Guest, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        self.stage.until_vm_within(GUEST_TIMEOUT, who, what, holds)
    }

    /// Waits until `who` is enrolled, pulled and identified; returns the VM and the time.
    pub(crate) fn until_joined(&self, who: &Guest) -> Result<(Value, Instant)> {
        let vm = self.until(who, "it is joined", |vm| {
            vm["agent"]["status"] == "up"
                && vm["enrolment"]["state"] == "enrolled"
                && vm["enrolment"]["uid"] == *who.uid
                && vm["identity"]["smbiosUuid"]["verdict"] == "confirmed"
        })?;
        Ok((vm, Instant::now()))
    }

    /// Number of certificates that the collector has issued, without renewals.
    pub(crate) fn issued(&self) -> Result<u64> {
        let page = self.stage.text("/metrics")?;
        let name = "virtfleet_collector_enrolments_total{result=\"issued\"} ";
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.context("no metric of enrolments")?.parse()?)
    }

    /// The address of another virt-launcher pod that leads to `who`, as after a migration.
    pub(crate) fn pod_address(&self, who: &Guest) -> Result<PodAddress> {
        let address = SocketAddr::new("10.244.2.9".parse()?, AGENT_PORT);
        self.net.ip(&format!("address add {}/32 dev lo", address.ip()))?;
        let mut forwarder = Launch::new("socat")
            .arg(format!(
                "TCP-LISTEN:{},bind={},fork,reuseaddr",
                address.port(),
                address.ip()
            ))
            .arg(format!("TCP:{}", who.address))
            .start(self.stage.path())?;
        forwarder.wait_for_port(address, STAGE_TIMEOUT)?;
        Ok(PodAddress {
            address,
            _forwarder: forwarder,
        })
    }

    /// Checks user-data: public certificates only, and the same for all VMs.
    pub(crate) fn has_no_secret(&self, user_data: &str, who: &Guest) -> Result<()> {
        for (start, _) in user_data.match_indices("-----BEGIN ") {
            let label = &user_data[start..];
            ensure!(
                label.starts_with("-----BEGIN CERTIFICATE-----"),
                "user-data contains {}",
                label.lines().next().unwrap_or_default()
            );
        }
        let authority = fs::read_to_string(self.stage.ca_folder().join("clients.crt"))?;
        let first_line = authority.lines().nth(1).context("an empty authority")?;
        ensure!(user_data.contains(first_line), "the authority is missing");
        let hidden = Regex::new("(?i)private key|token|password|put [0-7]+ [^ ]+ 'base64")?;
        if let Some(found) = hidden.find(user_data) {
            anyhow::bail!("user-data contains {:?}", found.as_str());
        }
        let firmware = who.firmware.to_string();
        for own in [&who.name, &who.uid, &firmware, &who.mac, &who.cluster] {
            ensure!(!user_data.contains(own.as_str()), "user-data names {own}");
        }
        let mut keys = 0;
        for file in files(&self.stage.ca_folder())? {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if let Some((_, key)) = text.split_once("PRIVATE KEY-----\n") {
                keys += 1;
                let line = key.lines().next().unwrap_or_default();
                ensure!(line.len() > 40 && !user_data.contains(line), "{}", file.display());
            }
        }
        ensure!(keys == 2, "{keys} private keys in the collector's folder");
        Ok(())
    }

    /// Checks that only the agent's user may read the key in the guest, and that neither user-data
    /// nor the collector has it.
    pub(crate) fn key_never_left(&self, machine: &Machine, user_data: &str) -> Result<()> {
        let modes = machine.run(&format!("stat -c '%a %U:%G %n' {STATE} {STATE}/*"))?;
        let expected = ["", "/certificate.pem", "/enrolment.json", "/key.der"].map(|name| {
            let mode = if name.is_empty() { 700 } else { 600 };
            format!("{mode} virtfleet:virtfleet {STATE}{name}")
        });
        ensure!(modes == expected.join("\n"), "{modes}");
        let read = machine.sh(&format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups cat {STATE}/key.der"
        ))?;
        ensure!(read.code != 0 && read.stderr.contains("denied"), "{read:?}");
        let pkcs8 = StoredKey::of(machine)?.pkcs8;
        // The private scalar in PKCS #8: an OCTET STRING of 32 bytes after the version.
        let head = [2, 1, 1, 4, 32];
        let at = pkcs8.windows(head.len()).position(|window| window == head);
        let scalar = at.and_then(|at| pkcs8.get(at + head.len()..at + head.len() + 32));
        let scalar = scalar.context("the key is no PKCS #8 of P-256")?;
        let text = BASE64_STANDARD.encode(&pkcs8);
        let has = |bytes: &[u8]| {
            [scalar, text.as_bytes()]
                .iter()
                .any(|key| bytes.windows(key.len()).any(|window| window == *key))
        };
        ensure!(has(&pkcs8), "the search itself does not work");
        ensure!(!has(user_data.as_bytes()), "user-data contains the key");
        for file in files(self.stage.path())? {
            let bytes = match fs::read(&file) {
                // The collector replaces its files.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.with_context(|| format!("read {}", file.display()))?,
            };
            ensure!(!has(&bytes), "{} contains the agent's key", file.display());
        }
        Ok(())
    }

    /// Checks that the collector does not accept an agent at the address of `who` that serves with
    /// this key and certificate. The VM must be off.
    pub(crate) fn old_certificate_is_refused(&self, who: &Guest, old: &StoredKey) -> Result<()> {
        self.net
            .ip(&format!("address add {}/32 dev lo", who.address.ip()))?;
        let host = self.stage.agent_host()?;
        let spec = AgentSpec::honest(who)?
            .with_fault(EnrolFault::NotOffered)
            .with_disk(AgentDisk::copied(&old.pkcs8, &old.certificate)?);
        host.run(spec)?;
        let vm = self.until(who, "the old certificate is refused", |vm| {
            vm["agent"]["failure"]["class"] == "wrong_vm"
        })?;
        ensure!(vm["agent"]["status"] != "up", "{vm:#}");
        Ok(())
    }
}

/// An address that leads to a VM while this exists.
pub(crate) struct PodAddress {
    pub(crate) address: SocketAddr,
    _forwarder: Process,
}

/// What the agent has stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredKey {
    pub(crate) pkcs8: Vec<u8>,
    pub(crate) certificate: String,
}

impl StoredKey {
    pub(crate) fn of(machine: &Machine) -> Result<Self> {
        let certificate = machine.read_file(&format!("{STATE}/certificate.pem"))?;
        Ok(Self {
            pkcs8: machine.read_file(&format!("{STATE}/key.der"))?,
            certificate: String::from_utf8(certificate)?,
        })
    }
}

/// Since when the agent runs, by the host's clock.
struct AgentAge {
    /// Its process has started.
    started: Instant,
    /// It has told systemd that it serves.
    up: Instant,
}

impl AgentAge {
    fn of(machine: &Machine) -> Result<Self> {
        let now = Instant::now();
        let text = machine.run(
            "cut -d ' ' -f 1 /proc/uptime; for property in ExecMainStartTimestampMonotonic ActiveEnterTimestampMonotonic; do \
             systemctl show -P $property virtfleet-agent; done",
        )?;
        let mut numbers = text.lines().map(str::parse::<f64>);
        let mut number = || numbers.next().with_context(|| text.clone())?.context("a number");
        let (uptime, started, up) = (number()?, number()?, number()?);
        let at = |micros: f64| {
            let age = Duration::try_from_secs_f64(uptime - micros / 1e6)?;
            now.checked_sub(age).context("the guest is older than this host")
        };
        Ok(Self {
            started: at(started)?,
            up: at(up)?,
        })
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}
