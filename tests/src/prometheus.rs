//! A real Prometheus beside a stage: it finds its targets by the collector's `/sd`.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::{
    pki, ports,
    process::{Launch, Process},
    scrape::Client,
    stage::{PATIENCE, Stage},
};

/// Starts it, with the jobs `node`, `virtfleet-fleet` and `virtfleet-collector`, each scraped every second; gives its address.
pub fn start(stage: &Stage, program: PathBuf) -> Result<(Process, SocketAddr)> {
    let address = ports::free()?;
    let (api, pki) = (stage.api, stage.pki());
    let pki = pki.display();
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- job_name: node\n  scheme: https\n  \
         http_sd_configs: [{{ url: \"http://{api}/sd\", refresh_interval: 1s }}]\n  tls_config:\n    \
         ca_file: {pki}/ca.pem\n    cert_file: {pki}/collector.pem\n    key_file: {pki}/collector.key\n    \
         server_name: {}\n- job_name: virtfleet-fleet\n  honor_labels: true\n  metrics_path: /metrics/fleet\n  \
         static_configs: [{{ targets: [\"{api}\"] }}]\n- job_name: virtfleet-collector\n  \
         static_configs: [{{ targets: [\"{api}\"] }}]\n",
        pki::AGENT_DNS
    );
    let file = stage.path().join("prometheus.yml");
    fs::write(&file, config)?;
    let mut process = Launch::new(program)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            stage.path().join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .start(stage.path())?;
    process.wait_for_port(address, PATIENCE)?;
    Ok((process, address))
}

/// The value of each series of an instant query, by one of its labels.
pub fn query(address: SocketAddr, promql: &str, label: &str) -> Result<BTreeMap<String, f64>> {
    let encoded: String = promql
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect();
    let answer = Client::plain(address, PATIENCE)?
        .get(&format!("/api/v1/query?query={encoded}"))?
        .ok()?
        .json()?;
    let series = answer["data"]["result"].as_array().context("no result")?;
    series
        .iter()
        .map(|one| {
            let name = one["metric"][label].as_str().unwrap_or_default().to_owned();
            let value = one["value"][1]
                .as_str()
                .and_then(|text| text.parse().ok())
                .context("no value")?;
            Ok((name, value))
        })
        .collect()
}
