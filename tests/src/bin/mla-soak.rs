//! Tests the streams of remote write with real receivers while everything fails: `make mla-soak`.
//! Needs root. Exits with 1 if a sample is missing or in the wrong place.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use virtfleet_tests::mla_soak::{SoakOptions, run};

/// Test the streams of remote write with real receivers while everything fails.
#[derive(Debug, Parser)]
#[command(name = "mla-soak")]
struct Arguments {
    /// Number of user clusters.
    #[arg(long, default_value_t = 100)]
    tenants: usize,
    /// VMs of each user cluster.
    #[arg(long, default_value_t = 20)]
    vms: usize,
    /// Duration of the faults in minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Number of kills of the collector, and of receivers.
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Number of Prometheus servers; one VictoriaMetrics is added.
    #[arg(long, default_value_t = 4)]
    prometheus: usize,
    /// Scrape interval in seconds.
    #[arg(long, default_value_t = 10)]
    interval: u64,
    /// Whether a tenant's queue overflows at the end.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    overflow: bool,
    /// Seed of guests and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let report = run(SoakOptions {
        tenants: arguments.tenants,
        vms: arguments.vms,
        length: Duration::from_mins(arguments.minutes),
        kills: arguments.kills,
        prometheus: arguments.prometheus,
        interval: Duration::from_secs(arguments.interval),
        seed: arguments.seed,
        overflow: arguments.overflow,
        verbose: true,
    })?;
    println!("seed {}\n{report}", arguments.seed);
    Ok(if report.all_violations().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
