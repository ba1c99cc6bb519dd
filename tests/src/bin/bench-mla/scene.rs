//! Guests, collector, vmagent and receiver.

use std::{
    fs,
    io::{Write as _, stdout},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use virtfleet_tests::{
    bins, parts, ports,
    process::{Launch, Process},
    remote_write::{CountedRequest, Counter},
    scrape::Client,
    sim,
    wait::{eventually, measure},
};

use super::figures::{is_backlog, is_form, value};

/// Path to which vmagent sends.
pub(crate) const VMAGENT_PATH: &str = "/vmagent";
/// Tenants among which the guests are spread.
const CLUSTERS: usize = 10;
const SOON: Duration = Duration::from_secs(30);

/// How the collector sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Remote write 2.0 with snappy.
    V2,
    /// Remote write 1.0 with snappy.
    V1Snappy,
    /// Remote write 1.0 with zstd.
    V1Zstd,
}

impl Form {
    /// Prefix of the path of all tenants.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "/v2-snappy/",
            Self::V1Snappy => "/v1-snappy/",
            Self::V1Zstd => "/v1-zstd/",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            Self::V2 => "protocol: V2, compression: Snappy",
            Self::V1Snappy => "protocol: V1, compression: Snappy",
            Self::V1Zstd => "protocol: V1, compression: Zstd",
        }
    }
}

/// Everything that runs. Dropping it ends it.
pub(crate) struct Scene {
    collector: Process,
    vmagent: Process,
    _sim: Process,
    pub(crate) receiver: Counter,
    pub(crate) clusters: Vec<String>,
    pub(crate) guests: usize,
    pub(crate) interval: Duration,
    folder: TempDir,
}

impl Scene {
    /// Starts everything and waits until both programs send the samples of all guests.
    pub(crate) fn start(guests: usize, pods: u32, interval: Duration) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = ports::free()?.port();
        let mut sim = simulator(folder.path(), guests, pods, port)?;
        let ready = sim.wait_for_line("ready", Duration::from_mins(3))?;
        writeln!(stdout(), "{ready}")?;
        let receiver = Counter::start()?;
        let clusters = cluster_names(folder.path())?;
        for cluster in &clusters {
            send(folder.path(), receiver.address(), cluster, Form::V2)?;
        }
        let (own, peer) = (ports::free()?, ports::free()?);
        let queues = folder.path().join("queues");
        let mla = format!(
            "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue:\n    folder: {}\n",
            queues.display()
        );
        let mut collector = sim::start_collector_with(folder.path(), own, port, interval, &mla)?;
        collector.wait_for_port(own, SOON)?;
        let patience = interval * 6 + Duration::from_mins(2);
        eventually(patience, "every guest up with the collector", || {
            let page = get(own, "/metrics/fleet")?;
            let up = page
                .lines()
                .filter(|line| line.starts_with("virtfleet_vm_up{") && line.ends_with(" 1"))
                .count();
            ensure!(up == guests, "{up} of {guests} are up");
            Ok(())
        })
        .with_context(|| collector.log())?;
        let mut vmagent = vmagent(folder.path(), interval, [own, peer, receiver.address()])?;
        vmagent.wait_for_port(peer, SOON)?;
        eventually(patience, "every guest up with vmagent", || {
            let page = get(peer, "/metrics")?;
            let prefix = "vm_promscrape_targets{type=\"http_sd_configs\", status=\"up\"} ";
            let up = value(&page, prefix)?;
            ensure!(up == guests, "{up} of {guests} are up");
            Ok(())
        })
        .with_context(|| vmagent.log())?;
        let scene = Self {
            collector,
            vmagent,
            _sim: sim,
            receiver,
            clusters,
            guests,
            interval,
            folder,
        };
        // Both have started all series by then.
        scene.collect(interval * 2)?;
        Ok(scene)
    }

    /// Process ids of the collector and vmagent.
    pub(crate) fn processes(&self) -> [u32; 2] {
        [self.collector.id(), self.vmagent.id()]
    }

    /// Path of a tenant's requests.
    #[expect(clippy::unused_self, reason = "the paths belong to the scene's receiver")]
    pub(crate) fn path(&self, form: Form, cluster: &str) -> String {
        format!("{}{cluster}", form.prefix())
    }

    /// Changes the form of all tenants, and waits until all send it.
    pub(crate) fn send(&self, form: Form) -> Result<()> {
        for cluster in &self.clusters {
            send(self.folder.path(), self.receiver.address(), cluster, form)?;
        }
        let mut seen = std::collections::BTreeSet::new();
        let patience = self.interval * 6 + Duration::from_mins(1);
        eventually(patience, "all tenants send the new form", || {
            let new = self.receiver.take()?;
            seen.extend(
                new.into_iter()
                    .filter(|request| is_form(request, form))
                    .map(|request| request.path),
            );
            ensure!(
                seen.len() == self.clusters.len(),
                "{} of {} do",
                seen.len(),
                self.clusters.len()
            );
            Ok(())
        })
        .with_context(|| self.collector.log())
    }

    /// The collector's requests of so many intervals.
    pub(crate) fn requests_of(&self, form: Form, intervals: u32) -> Result<Vec<CountedRequest>> {
        let mut all = self.collect(self.interval * intervals)?;
        all.retain(|request| is_form(request, form));
        Ok(all)
    }

    /// The requests that arrive within `length`.
    pub(crate) fn collect(&self, length: Duration) -> Result<Vec<CountedRequest>> {
        self.receiver.take()?;
        measure(length, || Ok(()))?;
        self.receiver.take()
    }

    /// The requests from now until one of `path` is live again, and of two further intervals.
    pub(crate) fn until_caught_up(&self, path: &str, deadline: Duration) -> Result<Vec<CountedRequest>> {
        let mut all = Vec::new();
        let begin = Instant::now();
        loop {
            let new = self.receiver.take()?;
            let is_live = new
                .iter()
                .any(|request| request.path == path && !is_backlog(request, self.interval));
            all.extend(new);
            if is_live {
                break;
            }
            ensure!(
                begin.elapsed() < deadline,
                "{path} still has a backlog {deadline:?} after the outage"
            );
            measure(Duration::from_millis(500), || Ok(()))?;
        }
        all.extend(self.collect(self.interval * 2)?);
        Ok(all)
    }
}

fn get(address: SocketAddr, path: &str) -> Result<String> {
    Ok(Client::plain(address, SOON)?.get(path)?.ok()?.text()?.to_owned())
}

fn cluster_names(folder: &Path) -> Result<Vec<String>> {
    let all = folder.join("manifests/clusters");
    let mut names = Vec::new();
    for entry in fs::read_dir(&all).with_context(|| format!("read {}", all.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Writes `spec.mla` of a user cluster.
fn send(folder: &Path, receiver: SocketAddr, cluster: &str, form: Form) -> Result<()> {
    let path = folder.join(format!("manifests/clusters/{cluster}/cluster.yaml"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let spec = text.split("\n  mla:").next().unwrap_or_default().trim_end();
    let (prefix, settings) = (form.prefix(), form.settings());
    let url = format!("http://{receiver}{prefix}{cluster}");
    let new = format!("{spec}\n  mla:\n    remoteWrite: {{ url: \"{url}\", {settings} }}\n");
    let temporary = path.with_file_name(".cluster.yaml.new");
    fs::write(&temporary, new).with_context(|| format!("write {}", temporary.display()))?;
    fs::rename(&temporary, &path).with_context(|| format!("write {}", path.display()))
}

fn simulator(folder: &Path, guests: usize, pods: u32, port: u16) -> Result<Process> {
    let hosts = (guests / 25).max(3).to_string();
    Launch::new(bins::fleet_sim()?)
        .args(["--guests", &guests.to_string(), "--hosts", &hosts])
        .args(["--clusters", &CLUSTERS.to_string(), "--pods", &pods.to_string()])
        .args(["--port", &port.to_string()])
        .arg("--folder")
        .arg(folder.join("manifests"))
        .arg("--pki")
        .arg(folder.join("pki"))
        .start(folder)
}

/// Starts vmagent; `addresses` are those of `/sd`, of itself and of the receiver.
fn vmagent(folder: &Path, interval: Duration, [sd, own, receiver]: [SocketAddr; 3]) -> Result<Process> {
    let (root, interval) = (folder.display(), interval.as_secs());
    let text = format!(
        "\
global:
  scrape_interval: {interval}s
  scrape_timeout: {}s
scrape_configs:
- job_name: node
  scheme: https
  disable_compression: true
  http_sd_configs:
  - url: http://{sd}/sd
  tls_config:
    ca_file: {root}/pki/ca.pem
    cert_file: {root}/pki/collector.pem
    key_file: {root}/pki/collector.key
    server_name: agent.virtfleet.internal
",
        interval.min(10)
    );
    let path = folder.join("vmagent.yml");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Launch::new(parts::vmagent()?)
        .arg(format!("-promscrape.config={}", path.display()))
        .arg(format!(
            "-remoteWrite.tmpDataPath={}",
            folder.join("vmagent-queue").display()
        ))
        .arg(format!("-remoteWrite.url=http://{receiver}{VMAGENT_PATH}"))
        .arg(format!("-httpListenAddr={own}"))
        .start(folder)
}
