//! A fleet of simulated guests on loopback addresses, with the manifests and certificates for a
//! collector.

use std::{
    io::{Write as _, stdout},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use virtfleet_tests::{
    pki::{self, Authority},
    sim::{self, Fault, Fleet, Options, Plan},
};
use virtfleet_wire::settings::AGENT_PORT;

/// A fleet of simulated guests on loopback addresses.
///
/// Prints one line that begins with "ready" when every guest listens, and runs until Ctrl-C or
/// SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "fleet-sim")]
struct Arguments {
    /// Number of guests; each has its own address in 127.64.0.0/10.
    #[arg(long, default_value_t = 12)]
    guests: usize,
    /// Number of infra nodes.
    #[arg(long, default_value_t = 6)]
    hosts: usize,
    /// Number of zones of the infra nodes.
    #[arg(long, default_value_t = 3)]
    zones: usize,
    /// Number of user clusters that share the guests.
    #[arg(long, default_value_t = 2)]
    clusters: usize,
    /// Seed; the same seed generates the same fleet.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Port on which every guest listens.
    #[arg(long, default_value_t = AGENT_PORT)]
    port: u16,
    /// Network interfaces of pods on each guest: each is another 16 samples on its page.
    #[arg(long, default_value_t = 0)]
    pods: usize,
    /// Output folder of the manifests: infra/ and clusters/<name>/.
    #[arg(long)]
    folder: PathBuf,
    /// Output folder of ca.pem, collector.pem and collector.key.
    #[arg(long)]
    pki: PathBuf,
    /// Number of guests with each fault: silent, endless, huge-report, wrong-ca, wrong-vm, http500,
    /// slow, garbage.
    #[arg(long = "fault", value_name = "FAULT=COUNT", value_delimiter = ',', value_parser = parse_fault)]
    faults: Vec<(Fault, usize)>,
}

fn parse_fault(text: &str) -> Result<(Fault, usize), String> {
    let (fault, count) = text.split_once('=').ok_or("expected FAULT=COUNT")?;
    let count = count.parse().map_err(|error| format!("{count:?}: {error}"))?;
    Ok((fault.parse()?, count))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let options = Options {
        guests: arguments.guests,
        hosts: arguments.hosts,
        zones: arguments.zones,
        clusters: arguments.clusters,
        seed: arguments.seed,
        port: arguments.port,
        faults: arguments.faults,
        page: None,
        pods: arguments.pods,
    };
    let plan = Plan::new(&options)?;
    sim::raise_file_limit()?;
    let authority = Authority::new("virtfleet fleet-sim")?;
    pki::write(&arguments.pki, "collector", &authority, &authority.collector()?)?;
    let fleet = Fleet::start(&plan, &authority)?;
    // Written last, so that a collector that watches the folder finds every guest listening.
    sim::write_folder(&arguments.folder, &plan)?;
    writeln!(stdout(), "ready: {} on port {}", plan.summary(), options.port)?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("Ctrl-C")?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    })?;
    writeln!(
        stdout(),
        "answered {} pages and {} reports",
        fleet.pages(),
        fleet.reports()
    )?;
    Ok(())
}
