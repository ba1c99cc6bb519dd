//! Benchmark of the collector with many simulated guests, against vmagent, which discovers the same
//! guests through `/sd` and scrapes them at the same interval in the same run.
//!
//! The collector reads a page and a report from each guest. vmagent reads only the page and drops
//! the samples before sending, because the collector does not send any either.

use std::{
    fs,
    io::{Write as _, stdout},
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use virtfleet_tests::{
    bins,
    measure::{Table, usage},
    parts, ports,
    process::{Launch, Process},
    scrape::Client,
    sim,
    wait::{eventually, measure},
};

/// Measure the collector against vmagent.
#[derive(Debug, Parser)]
#[command(name = "bench-fleet")]
struct Arguments {
    /// Simulated guests.
    #[arg(long, default_value_t = 1000)]
    guests: usize,
    /// Seconds between two scrapes of a guest.
    #[arg(long, default_value_t = 30)]
    interval: u64,
    /// Number of measured intervals.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(3..))]
    intervals: u32,
}

const SOON: Duration = Duration::from_secs(15);
const MIB: f64 = 1024.0 * 1024.0;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let port = ports::free()?.port();
    let mut sim = simulator(folder.path(), &arguments, port)?;
    writeln!(
        stdout(),
        "{}",
        sim.wait_for_line("ready", Duration::from_mins(2))?
    )?;

    let (own, peer) = (ports::free()?, ports::free()?);
    let interval = Duration::from_secs(arguments.interval);
    let mut collector = sim::start_collector(folder.path(), own, port, interval)?;
    collector.wait_for_port(own, SOON)?;
    let patience = Duration::from_secs(3 * arguments.interval + 60);
    eventually(patience, "every guest up with the collector", || {
        let page = get(own, "/metrics/fleet")?;
        let up = page
            .lines()
            .filter(|line| line.starts_with("virtfleet_vm_up{") && line.ends_with(" 1"))
            .count();
        ensure!(up == arguments.guests, "{up} of {} are up", arguments.guests);
        Ok(())
    })
    .with_context(|| collector.log())?;
    writeln!(stdout(), "all up with the collector; starting vmagent on its /sd")?;

    let mut vmagent = vmagent(folder.path(), &arguments, own, peer)?;
    vmagent.wait_for_port(peer, SOON)?;
    eventually(patience, "every guest up with vmagent", || {
        let page = get(peer, "/metrics")?;
        let line = page.lines().find_map(|line| {
            line.strip_prefix("vm_promscrape_targets{type=\"http_sd_configs\", status=\"up\"} ")
        });
        let up: usize = line.context("no count of targets")?.parse()?;
        ensure!(up == arguments.guests, "{up} of {} are up", arguments.guests);
        Ok(())
    })
    .with_context(|| vmagent.log())?;

    let length = Duration::from_secs(arguments.interval * u64::from(arguments.intervals));
    writeln!(
        stdout(),
        "measuring {} intervals of {} s",
        arguments.intervals,
        arguments.interval
    )?;
    let ids = [collector.id(), vmagent.id()];
    let before = ids.map(usage::cpu);
    // Average of one sample per second: a single sample could hit or miss a burst.
    let (mut looks, mut sums) = (0.0, [0.0, 0.0]);
    measure(length, || {
        looks += 1.0;
        for (sum, id) in sums.iter_mut().zip(ids) {
            *sum += usage::resident(id)? as f64;
        }
        Ok(())
    })?;
    let mut rows = Vec::new();
    for ((id, before), sum) in ids.into_iter().zip(before).zip(sums) {
        let cpu = usage::cpu(id)?.saturating_sub(before?).as_secs_f64() * 60.0 / length.as_secs_f64();
        rows.push([sum / looks / MIB, usage::peak(id)? as f64 / MIB, cpu]);
    }
    let [ours, theirs] = rows.as_slice() else {
        anyhow::bail!("two programs are measured")
    };
    let mut table = Table::new(&["figure", "virtfleet-collector", "vmagent", "ratio"]);
    for (index, (name, unit)) in [
        ("resident, mean", "MiB"),
        ("resident, peak", "MiB"),
        ("CPU a minute", "s"),
    ]
    .into_iter()
    .enumerate()
    {
        let (own, other) = (ours[index], theirs[index]);
        table.row(&[
            name,
            &format!("{own:.1} {unit}"),
            &format!("{other:.1} {unit}"),
            &format!("{:.3}", own / other.max(1e-9)),
        ]);
    }
    let note = format!(
        "{} guests every {} s, TLS with client certificates; all of them up with both.",
        arguments.guests, arguments.interval
    );
    writeln!(stdout(), "\n{}\n{note}", table.render())?;
    Ok(())
}

fn get(address: SocketAddr, path: &str) -> Result<String> {
    Ok(Client::plain(address, SOON)?.get(path)?.ok()?.text()?.to_owned())
}

fn simulator(folder: &Path, arguments: &Arguments, port: u16) -> Result<Process> {
    let guests = arguments.guests.to_string();
    let hosts = (arguments.guests / 25).max(3).to_string();
    Launch::new(bins::fleet_sim()?)
        .args([
            "--guests",
            &guests,
            "--hosts",
            &hosts,
            "--clusters",
            "10",
            "--port",
            &port.to_string(),
        ])
        .arg("--folder")
        .arg(folder.join("manifests"))
        .arg("--pki")
        .arg(folder.join("pki"))
        .start(folder)
}

fn vmagent(folder: &Path, arguments: &Arguments, sd: SocketAddr, own: SocketAddr) -> Result<Process> {
    let (root, interval) = (folder.display(), arguments.interval);
    let text = format!(
        "\
global:
  scrape_interval: {interval}s
  scrape_timeout: {}s
scrape_configs:
- job_name: node
  scheme: https
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
    let (scrape, relabel) = (folder.join("vmagent.yml"), folder.join("relabel.yml"));
    fs::write(&scrape, text).with_context(|| format!("write {}", scrape.display()))?;
    fs::write(
        &relabel,
        "- action: drop\n  source_labels: [__name__]\n  regex: .+\n",
    )
    .with_context(|| format!("write {}", relabel.display()))?;
    Launch::new(parts::vmagent()?)
        .arg(format!("-promscrape.config={}", scrape.display()))
        .arg(format!("-remoteWrite.relabelConfig={}", relabel.display()))
        .arg(format!("-remoteWrite.tmpDataPath={}", folder.join("queue").display()))
        // vmagent drops all samples before sending, so nothing needs to listen on this port.
        .arg("-remoteWrite.url=http://127.0.0.1:9/")
        .arg(format!("-httpListenAddr={own}"))
        .start(folder)
}
