//! `make bench-page`: the web page with a large fleet in headless Chromium, and latencies of the
//! API that it reads.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::json;
use virtfleet_tests::{
    bins, parts, ports,
    process::Launch,
    scrape::Client,
    sim::{self, Options, Plan},
};

/// Measure the web page.
#[derive(Debug, Parser)]
struct Arguments {
    /// VMs of the fleet.
    #[arg(long, default_value_t = 10_000)]
    vms: usize,
    /// VMs on one infra node.
    #[arg(long, default_value_t = 50)]
    vms_per_host: usize,
    /// Requests per latency.
    #[arg(long, default_value_t = 300)]
    requests: usize,
}

/// Maximum time until the collector has read the fleet.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum time of the script in the browser.
const SCRIPT_TIMEOUT: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let browser = parts::browser()?;
    let options = Options {
        guests: arguments.vms,
        hosts: arguments.vms.div_ceil(arguments.vms_per_host).max(2),
        zones: 3,
        clusters: 20,
        ..Options::default()
    };
    let plan = Plan::new(&options)?;
    let folder = tempfile::tempdir()?;
    let fleet = folder.path().join("fleet");
    sim::write_folder(&fleet, &plan)?;
    let address = ports::free()?;
    let config = folder.path().join("collector.yaml");
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ folder: {} }}\n\
         server: {{ address: \"{address}\" }}\n",
        fleet.display()
    );
    fs::write(&config, text)?;
    let mut collector = Launch::new(bins::collector()?)
        .args(["serve", "--config"])
        .arg(&config)
        .tied()
        .start(folder.path())?;
    let client = || Client::plain(address, START_TIMEOUT);
    collector.wait_for(START_TIMEOUT, "the collector is ready", |_| {
        client()?.get("/readyz")?.ok()
    })?;
    println!(
        "{} VMs on {} infra nodes, a folder as inventory",
        plan.guests.len(),
        plan.hosts.len()
    );
    let guest = plan.guests.first().context("a VM")?;
    let mut client = client()?;
    for (what, path, goal) in [
        (
            "page of 100 VMs, p99, ms",
            "/api/v1/vms?limit=100".to_owned(),
            "≤ 20",
        ),
        (
            "page of 1,000 VMs, p99, ms",
            "/api/v1/vms?limit=1000".to_owned(),
            "≤ 20",
        ),
        (
            "one VM, p99, ms",
            format!("/api/v1/vms/{}/{}", guest.cluster, guest.name),
            "≤ 5",
        ),
    ] {
        let p99 = latency(&mut client, &path, arguments.requests)?;
        println!("{what:<58} {:>9.2}   goal {goal}", p99.as_secs_f64() * 1000.0);
    }
    let begun = Instant::now();
    client.get("/api/v1/vms")?.ok()?;
    println!(
        "{:<58} {:>9.2}   goal -",
        "all VMs in one answer, ms",
        begun.elapsed().as_secs_f64() * 1000.0
    );
    let file = fleet.join(format!("infra/vmi-{}-{}.yaml", guest.cluster, guest.name));
    let from = &plan.hosts[guest.host].name;
    let to = &plan.hosts[(guest.host + 1) % plan.hosts.len()].name;
    let change = json!({
        "namespace": guest.cluster, "name": guest.name, "file": file.display().to_string(), "hosts": [from, to],
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/bench.mjs");
    let (code, said) = Launch::new(&browser.node)
        .arg(script)
        .env("VIRTFLEET_MODULES", &browser.modules)
        .env("VIRTFLEET_CHROMIUM", &browser.chromium)
        .env("VIRTFLEET_BASE", format!("http://{address}"))
        .env("VIRTFLEET_CHANGE", change.to_string())
        .said(SCRIPT_TIMEOUT)?;
    println!("{said}");
    ensure!(code == 0, "the script ended with {code}");
    Ok(())
}

/// The 99th percentile of requests for `path`, over one connection.
fn latency(client: &mut Client, path: &str, requests: usize) -> Result<Duration> {
    let mut all = Vec::with_capacity(requests);
    for _ in 0..requests {
        let begun = Instant::now();
        client.get(path)?.ok()?;
        all.push(begun.elapsed());
    }
    all.sort_unstable();
    all.get(requests * 99 / 100).copied().context("no requests")
}
