//! A real Prometheus for a stage; it discovers its targets through the collector's `/sd`.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::{
    ports,
    process::{Launch, Process},
    scrape::Client,
    stage::{STAGE_TIMEOUT, Stage},
};

/// Starts it with the shipped settings (`packaging/collector/prometheus.yaml`), with a scrape
/// interval of one second; returns its address.
pub fn start(stage: &Stage, program: PathBuf) -> Result<(Process, SocketAddr)> {
    let shipped = include_str!("../../packaging/collector/prometheus.yaml");
    start_with(stage, program, shipped)
}

/// As [`start`], with other settings that name the collector and the certificates as the shipped
/// ones do.
pub fn start_with(stage: &Stage, program: PathBuf, settings: &str) -> Result<(Process, SocketAddr)> {
    let address = ports::free()?;
    let (api, pki) = (stage.api.to_string(), stage.pki());
    let pki = pki.display().to_string();
    // The stage's collector serves plain HTTP on loopback.
    let through =
        "target_label: __address__, replacement: \"virtfleet-collector-leader.virtfleet.svc:10912\" }";
    let plain = format!("{through}\n      - {{ target_label: __scheme__, replacement: http }}");
    // There is one collector and no Kubernetes here: in production, the last job discovers pods.
    let discovered = settings
        .split_once("    kubernetes_sd_configs:")
        .map(|(before, _)| {
            format!(
                "{before}    static_configs: [{{ targets: [\"virtfleet-collector-leader.virtfleet.svc:10912\"] }}]\n"
            )
        });
    let mut settings = discovered
        .as_deref()
        .unwrap_or(settings)
        .replace(through, &plain)
        .replace("https://virtfleet-collector", "http://virtfleet-collector")
        .replace("scheme: https", "scheme: http")
        .replace("virtfleet-collector-leader.virtfleet.svc:10912", &api)
        .replace("/sd\n", "/sd\n        refresh_interval: 1s\n");
    for (shipped, file) in [
        ("collector-ca.crt", "ca.pem"),
        ("api.crt", "collector.pem"),
        ("api.key", "collector.key"),
        ("ca.crt", "ca.pem"),
        ("prometheus.crt", "collector.pem"),
        ("prometheus.key", "collector.key"),
    ] {
        let shipped = format!("/etc/prometheus/virtfleet/{shipped}");
        settings = settings.replace(&shipped, &format!("{pki}/{file}"));
    }
    let config =
        format!("global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n{settings}");
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
    process.wait_for_port(address, STAGE_TIMEOUT)?;
    Ok((process, address))
}

/// `promql` as the value of a parameter in a URL.
pub fn encode(promql: &str) -> String {
    let encoded = promql.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

/// The values of the series of an instant query, by one of their labels.
pub fn query(address: SocketAddr, promql: &str, label: &str) -> Result<BTreeMap<String, f64>> {
    let encoded = encode(promql);
    let answer = Client::plain(address, STAGE_TIMEOUT)?
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
