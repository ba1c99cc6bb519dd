//! A fleet on a stage: a temporary folder with certificates and manifests, simulated guests, real
//! agents on this machine, and a real collector that watches the manifests and pulls the agents.
//! Dropping the stage ends and removes everything.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bins,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
    scrape::Client,
    scratch,
    sim::{self, Fleet, Guest, Options, Plan, enrol::AgentHost},
    wait,
};

/// Maximum wait for any condition on the stage before a test fails.
pub const STAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Network of the simulated guests.
const LOOPBACK: &str = "127.0.0.0/8";

/// Pull settings of the stage's collector.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// Interval between two pulls of one VM.
    pub interval: Duration,
    /// Timeout of one pull.
    pub timeout: Duration,
}

impl Default for Beat {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
        }
    }
}

/// The stage.
pub struct Stage {
    // In drop order: processes first, then what they use.
    collector: Option<Process>,
    agents: Vec<Process>,
    _fleet: Option<Fleet>,
    /// The simulated fleet.
    pub plan: Plan,
    /// The certificate authority of the fleet.
    pub authority: Authority,
    /// Address of the collector's API.
    pub api: SocketAddr,
    port: u16,
    /// Networks in which the collector dials agents.
    networks: String,
    /// Lifetime of the certificates that the collector issues; none: the stage issues them.
    lifetime: Option<&'static str>,
    /// Further settings of the collector.
    settings: String,
    folder: TempDir,
}

impl Stage {
    /// Creates certificates, manifests and simulated guests; `options.port` is replaced by a free
    /// one.
    pub fn new(mut options: Options) -> Result<Self> {
        let folder = scratch::marked().context("a folder for the stage")?;
        options.port = ports::free()?.port();
        let plan = Plan::new(&options)?;
        let authority = Authority::new("virtfleet test authority")?;
        pki::write(
            &folder.path().join("pki"),
            "collector",
            &authority,
            &authority.collector()?,
        )?;
        sim::write_folder(&folder.path().join("fleet"), &plan)?;
        let fleet = Fleet::start(&plan, &authority)?;
        Ok(Self {
            collector: None,
            agents: Vec::new(),
            _fleet: Some(fleet),
            plan,
            authority,
            api: ports::free()?,
            port: options.port,
            networks: LOOPBACK.to_owned(),
            lifetime: None,
            settings: String::new(),
            folder,
        })
    }

    /// Creates manifests only: the collector issues certificates with this lifetime, and the test
    /// runs the agents on [`Stage::agent_host`].
    pub fn enrolling(mut options: Options, lifetime: &'static str) -> Result<Self> {
        let folder = scratch::marked().context("a folder for the stage")?;
        options.port = ports::free()?.port();
        let plan = Plan::new(&options)?;
        sim::write_folder(&folder.path().join("fleet"), &plan)?;
        Ok(Self {
            collector: None,
            agents: Vec::new(),
            _fleet: None,
            plan,
            authority: Authority::new("virtfleet test authority")?,
            api: ports::free()?,
            port: options.port,
            networks: LOOPBACK.to_owned(),
            lifetime: Some(lifetime),
            settings: String::new(),
            folder,
        })
    }

    /// Lets collectors that start later dial agents at this port, and in this network as well: for
    /// real guests on a tap device.
    pub fn dial(&mut self, port: u16, network: &str) {
        self.port = port;
        self.networks = format!("{LOOPBACK}, {network}");
    }

    /// A host for agents that accept this stage's collector, which must have started once.
    pub fn agent_host(&self) -> Result<AgentHost> {
        AgentHost::new(&self.ca_folder().join("clients.crt"))
    }

    /// The folder of the collector's authority and records, if it issues certificates.
    pub fn ca_folder(&self) -> PathBuf {
        self.folder.path().join("ca")
    }

    /// Certificates of the collector, or the authority with which it issues them.
    fn certificates(&self) -> String {
        let (pki, domain) = (self.pki(), pki::TRUST_DOMAIN);
        let pki = pki.display();
        match self.lifetime {
            Some(lifetime) => format!(
                "enrolment: {{ trustDomain: {domain}, lifetime: {lifetime}, folder: {} }}\n",
                self.ca_folder().display()
            ),
            None => format!(
                "  tls:\n    ca: {pki}/ca.pem\n    certificate: {pki}/collector.pem\n    \
                 key: {pki}/collector.key\n    trustDomain: {domain}\n"
            ),
        }
    }

    /// Two hosts in two zones, one simulated guest, and a running collector: the stage for a real
    /// guest.
    pub fn small() -> Result<Self> {
        Self::small_at(Beat::default())
    }

    /// As [`Self::small`], with these pull settings.
    pub fn small_at(beat: Beat) -> Result<Self> {
        let mut stage = Self::new(Options {
            guests: 1,
            hosts: 2,
            zones: 2,
            clusters: 1,
            ..Options::default()
        })?;
        stage.start_collector(beat)?;
        Ok(stage)
    }

    /// The folder of manifests.
    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("fleet")
    }
    /// The folder of certificates: `ca.pem`, `collector.pem`, `collector.key`.
    pub fn pki(&self) -> PathBuf {
        self.folder.path().join("pki")
    }
    /// A folder for other files of a test.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
    /// 127.0.0.1 with the fleet's port, which no simulated guest uses: for a real agent.
    pub fn own_address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }
    /// The file of a guest's VMI.
    pub fn manifest(&self, guest: &Guest) -> PathBuf {
        self.manifests()
            .join("infra")
            .join(format!("vmi-{}-{}.yaml", guest.cluster, guest.name))
    }

    /// Writes a manifest under the folder, atomically.
    pub fn write_manifest(&self, name: &str, text: &str) -> Result<()> {
        replace(&self.manifests().join(name), text)
    }

    /// Replaces the file of a guest's VMI.
    pub fn write_vmi(&self, guest: &Guest, text: &str) -> Result<()> {
        replace(&self.manifest(guest), text)
    }

    /// Writes the VMI of `guest` with another infra node, as after a live migration.
    pub fn move_to(&self, guest: &Guest, host: &str) -> Result<()> {
        replace(&self.manifest(guest), &sim::vmi(guest, host))
    }

    /// Starts the real agent of `guest` on this machine, at the guest's address; `settings` are
    /// further lines of its settings. The caller writes its manifest.
    pub fn start_agent(&mut self, guest: &Guest, settings: &str) -> Result<()> {
        let identity = self.authority.agent(&guest.cluster, &guest.name, &guest.uid)?;
        let files = pki::write(&self.home(guest), "agent", &self.authority, &identity)?;
        let tls = format!(
            "certificate: {}, key: {}, clientCA: {}",
            files.certificate.display(),
            files.key.display(),
            files.ca.display()
        );
        self.run_agent(guest, &tls, settings)
    }

    /// As [`Self::start_agent`], without certificate files: the collector enrols the agent. It must
    /// have started once.
    pub fn start_enrolling_agent(&mut self, guest: &Guest) -> Result<()> {
        let authority = self.ca_folder().join("clients.crt");
        let tls = format!("enrolment: true, clientCA: {}", authority.display());
        // Nothing runs here as root that would report the state of DNS.
        self.run_agent(guest, &tls, "dns: { manage: off }\n")
    }

    /// The folder of a real agent on this machine.
    fn home(&self, guest: &Guest) -> PathBuf {
        self.folder.path().join(format!("agent-{}", guest.name))
    }

    fn run_agent(&mut self, guest: &Guest, tls: &str, settings: &str) -> Result<()> {
        let home = self.home(guest);
        fs::create_dir_all(&home).with_context(|| format!("create {}", home.display()))?;
        let config = home.join("agent.yaml");
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    \
             address: \"{}\"\n  tls: {{ {tls} }}\n{settings}",
            guest.address
        );
        fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let mut agent = Launch::new(bins::agent()?)
            .arg("run")
            .arg("--config")
            .arg(&config)
            // As systemd does. Not the directory of an agent that is installed here.
            .env("STATE_DIRECTORY", home.join("state"))
            .start(&home)?;
        agent.wait_for_port(guest.address, STAGE_TIMEOUT)?;
        self.agents.push(agent);
        Ok(())
    }

    /// Sets further settings of the collector: whole lines of YAML.
    pub fn set_settings(&mut self, settings: String) {
        self.settings = settings;
    }

    /// Sets the only network in which the collector dials.
    pub fn set_allowed(&mut self, network: &str) {
        network.clone_into(&mut self.networks);
    }

    /// The settings of the stage's collector.
    pub fn collector_config(&self, beat: Beat) -> String {
        format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ folder: {} }}\n\
             server: {{ address: \"{}\" }}\nscrape:\n  interval: {}ms\n  timeout: {}ms\n  port: {}\n  \
             allowCIDRs: [{}]\n{}{}",
            self.manifests().display(),
            self.api,
            beat.interval.as_millis(),
            beat.timeout.as_millis(),
            self.port,
            self.networks,
            self.certificates(),
            self.settings,
        )
    }

    /// Starts the collector and waits until it has read the folder.
    pub fn start_collector(&mut self, beat: Beat) -> Result<&mut Process> {
        let config = self.folder.path().join("collector.yaml");
        fs::write(&config, self.collector_config(beat))
            .with_context(|| format!("write {}", config.display()))?;
        let mut collector = Launch::new(bins::collector()?)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .start(self.folder.path())?;
        let api = self.api;
        collector.wait_for(STAGE_TIMEOUT, "the collector is ready", |_| {
            get(api, "/readyz")?.ok()
        })?;
        Ok(self.collector.insert(collector))
    }

    /// The running collector.
    pub fn collector(&mut self) -> Result<&mut Process> {
        self.collector.as_mut().context("the collector is not running")
    }

    /// Takes the running collector out of the stage, so that the test can end it.
    pub fn take_collector(&mut self) -> Result<Process> {
        self.collector.take().context("the collector is not running")
    }

    /// Takes the last started agent out of the stage, so that the test can end it.
    pub fn take_agent(&mut self) -> Result<Process> {
        self.agents.pop().context("no real agent is running")
    }

    /// The collector's response to `path`, as JSON.
    pub fn json(&self, path: &str) -> Result<Value> {
        get(self.api, path)?.ok()?.json()
    }

    /// The collector's response to `path`, as text.
    pub fn text(&self, path: &str) -> Result<String> {
        Ok(get(self.api, path)?.ok()?.text()?.to_owned())
    }

    /// `virtfleetctl` with the server option set.
    pub fn ctl(&self) -> Result<Launch> {
        Ok(Launch::new(bins::ctl()?).env("VIRTFLEET_SERVER", format!("http://{}", self.api)))
    }

    /// Waits until one VM's JSON (an item of `/api/v1/vms`) satisfies `holds`.
    pub fn until_vm(&self, guest: &Guest, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until_vm_within(STAGE_TIMEOUT, guest, what, holds)
    }

    /// As [`Stage::until_vm`], with a deadline as in [`wait::eventually`].
    pub fn until_vm_within(
        &self,
        deadline: Duration,
        guest: &Guest,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let path = format!("/api/v1/vms/{}/{}", guest.cluster, guest.name);
        wait::eventually(deadline, what, || {
            let vm = self.json(&path)?;
            anyhow::ensure!(holds(&vm), "not yet: {vm:#}");
            Ok(vm)
        })
    }

    /// Waits until `count` agents answer.
    pub fn until_up(&self, count: usize) -> Result<()> {
        wait::eventually(STAGE_TIMEOUT, &format!("{count} agents are up"), || {
            let list = self.json("/api/v1/vms?agent=up")?;
            let up = list["items"].as_array().map_or(0, Vec::len);
            anyhow::ensure!(up == count, "{up} are up");
            Ok(())
        })
    }
}

fn get(address: SocketAddr, path: &str) -> Result<crate::scrape::Answer> {
    Client::plain(address, STAGE_TIMEOUT)?.get(path)
}

/// Writes a temporary file and renames it over the file.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(&new, text).with_context(|| format!("write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("write {}", path.display()))
}
