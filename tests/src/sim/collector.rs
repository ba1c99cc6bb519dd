//! The collector of a simulated fleet, for benchmarks.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    bins,
    pki::TRUST_DOMAIN,
    process::{Launch, Process},
};

/// Starts a collector that reads `manifests` and `pki` in `folder`, serves its API at `api`, and
/// pulls agents on `port` at this interval.
pub fn start_collector(folder: &Path, api: SocketAddr, port: u16, interval: Duration) -> Result<Process> {
    start_collector_with(folder, api, port, interval, "")
}

/// As [`start_collector`], with further top-level keys of its settings as YAML.
pub fn start_collector_with(
    folder: &Path,
    api: SocketAddr,
    port: u16,
    interval: Duration,
    more: &str,
) -> Result<Process> {
    let (root, interval) = (folder.display(), interval.as_secs());
    let timeout = interval.min(10);
    let text = format!(
        "\
apiVersion: virtfleet.io/v1alpha1
kind: CollectorConfig
inventory:
  folder: {root}/manifests
server:
  address: {api}
scrape:
  interval: {interval}s
  timeout: {timeout}s
  port: {port}
  allowCIDRs: [127.64.0.0/10]
  tls:
    ca: {root}/pki/ca.pem
    certificate: {root}/pki/collector.pem
    key: {root}/pki/collector.key
    trustDomain: {TRUST_DOMAIN}
{more}"
    );
    let path = folder.join("collector.yaml");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Launch::new(bins::collector()?)
        .args(["serve", "--config"])
        .arg(path)
        .start(folder)
}
