//! Real receivers of remote write, and everything that they stored.

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    proxy::ProxyKind,
    remote_read,
    stored::{Labels, Samples},
};
use crate::{
    parts, ports,
    process::{Launch, Process},
    scrape::Client,
    stage::STAGE_TIMEOUT,
};

/// Maximum time for reading everything that a receiver has of one tenant.
const DUMP_TIMEOUT: Duration = Duration::from_mins(10);

/// The program of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiverKind {
    /// Prometheus: remote write 2.0. Merges equal samples, and refuses older ones of a series.
    Prometheus,
    /// VictoriaMetrics: remote write 1.0. Keeps each sample that it receives, also twice.
    VictoriaMetrics,
}

/// A receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Its program.
    pub(super) kind: ReceiverKind,
    /// Its name in the report.
    pub(super) name: String,
    /// Where it listens.
    pub(super) address: SocketAddr,
    folder: PathBuf,
    process: Option<Process>,
}

impl Receiver {
    /// Starts a receiver that stores below `folder`.
    pub(super) fn start(kind: ReceiverKind, name: &str, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("receiver-{name}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("prometheus.yml"), "global: {}\n")?;
        let mut receiver = Self {
            kind,
            name: name.to_owned(),
            address: ports::free()?,
            folder,
            process: None,
        };
        receiver.restart()?;
        Ok(receiver)
    }

    /// How the proxies of its tenants tell them: `VictoriaMetrics` can add a label to a request.
    pub(super) fn proxy_kind(&self) -> ProxyKind {
        match self.kind {
            ReceiverKind::Prometheus => ProxyKind::Plain,
            ReceiverKind::VictoriaMetrics => ProxyKind::TenantByHeader,
        }
    }

    /// Starts it again.
    pub(super) fn restart(&mut self) -> Result<()> {
        let (folder, address) = (&self.folder, self.address);
        let data = folder.join("data");
        let launch = match self.kind {
            ReceiverKind::Prometheus => Launch::new(parts::prometheus()?)
                .arg(format!("--config.file={}/prometheus.yml", folder.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"))
                .arg("--web.enable-remote-write-receiver"),
            ReceiverKind::VictoriaMetrics => Launch::new(parts::victoria_metrics()?)
                .arg(format!("-storageDataPath={}", data.display()))
                .arg(format!("-httpListenAddr={address}"))
                .arg("-retentionPeriod=1d"),
        };
        let mut process = launch.start(folder)?;
        process.wait_for_port(address, STAGE_TIMEOUT)?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it: Prometheus by SIGKILL. `VictoriaMetrics` keeps what it accepted in memory for
    /// seconds and would lose it, so it gets SIGTERM.
    pub(super) fn kill(&mut self) -> Result<()> {
        let signal = match self.kind {
            ReceiverKind::Prometheus => Signal::SIGKILL,
            ReceiverKind::VictoriaMetrics => Signal::SIGTERM,
        };
        let mut process = self.process.take().context("the receiver is not running")?;
        process.signal(signal)?;
        process.wait(STAGE_TIMEOUT)?;
        Ok(())
    }

    /// The values of `label` in all series that `selector` matches.
    pub(super) fn label_values(&self, label: &str, selector: &str) -> Result<Vec<String>> {
        let selector = encode(selector);
        let path = format!("/api/v1/label/{label}/values?match[]={selector}&start=1");
        let answer = self.get(&path)?;
        let values = answer["data"].as_array().cloned().unwrap_or_default();
        let values = values
            .iter()
            .filter_map(|value| value.as_str().map(str::to_owned));
        Ok(values.collect())
    }

    /// All samples of the series with `cluster`, by their series and time.
    pub(super) fn dump(&self, cluster: &str) -> Result<HashMap<Labels, Samples>> {
        let mut all = match self.kind {
            ReceiverKind::Prometheus => self.remote_read(cluster),
            ReceiverKind::VictoriaMetrics => self.export(&format!("{{cluster=\"{cluster}\"}}")),
        }?;
        for samples in all.values_mut() {
            samples.sort_by_key(|(at, _)| *at);
        }
        Ok(all)
    }

    fn remote_read(&self, cluster: &str) -> Result<HashMap<Labels, Samples>> {
        let request = remote_read::request("cluster", cluster);
        let answer = Client::plain(self.address, DUMP_TIMEOUT)?
            .post_bytes("/api/v1/read", &remote_read::HEADERS, request)?
            .ok()?;
        let mut all: HashMap<Labels, Samples> = HashMap::new();
        for (labels, samples) in remote_read::series(&answer.body)? {
            all.entry(labels).or_default().extend(samples);
        }
        Ok(all)
    }

    fn export(&self, selector: &str) -> Result<HashMap<Labels, Samples>> {
        Client::plain(self.address, DUMP_TIMEOUT)?
            .get("/internal/force_flush")?
            .ok()?;
        let answer = Client::plain(self.address, DUMP_TIMEOUT)?
            .get(&format!("/api/v1/export?match[]={}", encode(selector)))?
            .ok()?;
        let mut all: HashMap<Labels, Samples> = HashMap::new();
        for line in answer.text()?.lines() {
            let series: Value = serde_json::from_str(line)?;
            let labels: Labels = serde_json::from_value(series["metric"].clone())?;
            let times = series["timestamps"].as_array().context("no timestamps")?;
            let values = series["values"].as_array().context("no values")?;
            ensure!(times.len() == values.len(), "{labels:?}");
            let samples = times.iter().zip(values);
            let samples = samples.filter_map(|(at, value)| {
                // A stale marker is null.
                Some((at.as_i64()?, value.as_f64().unwrap_or(f64::NAN)))
            });
            all.entry(labels).or_default().extend(samples);
        }
        Ok(all)
    }

    fn get(&self, path: &str) -> Result<Value> {
        Client::plain(self.address, DUMP_TIMEOUT)?.get(path)?.ok()?.json()
    }
}

fn encode(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    bytes.concat()
}
