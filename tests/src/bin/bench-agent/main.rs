//! Benchmark: the agent against node_exporter, both measured in the same run on the same machine.
//!
//! Both run the same collectors: those that both enable by default, and those of the profile
//! `dashboards`. The benchmark measures:
//! - cost and latency of a scrape over plain HTTP on loopback, with the two programs alternating;
//! - memory after 1,000 scrapes over TLS with client certificates;
//! - CPU time while idle;
//! - a scrape against its fair floor: the same system calls and an empty answer;
//! - how the cost grows with the size of the machine.

mod floor;
mod growth;
mod subject;

use std::{
    fs,
    io::{Write as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_tests::{
    bins,
    measure::{Table, usage},
    parity::programs::Serve,
    parts,
    pki::Authority,
    wait,
};

use floor::Floor;
use subject::{PROGRAMS, in_turns};

/// Measure the agent against node_exporter.
#[derive(Debug, Parser)]
#[command(name = "bench-agent")]
struct Arguments {
    /// Measured scrapes over plain HTTP, for each program.
    #[arg(long, default_value_t = 2000)]
    scrapes: usize,
    /// Seconds of the idle measurement.
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// Scrapes of each program on each generated root; 0 skips this measurement.
    #[arg(long, default_value_t = 200)]
    growth: usize,
}

const MIB: f64 = 1024.0 * 1024.0;

/// Results of one program.
struct Figures {
    binary: f64,
    resident: f64,
    private: f64,
    rest: f64,
    cpu: f64,
    median: f64,
    worst: f64,
    samples: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let serve = Serve::defaults(None)?;
    let [ours, theirs] = figures(&serve, &arguments)?;
    let floor = Floor::measure(&serve, arguments.scrapes);
    print(&ours, &theirs, &floor, &serve, &arguments)?;
    if arguments.growth > 0 {
        growth::print(arguments.growth)?;
    }
    Ok(())
}

fn figures(serve: &Serve, arguments: &Arguments) -> Result<[Figures; 2]> {
    let mut plain = in_turns(serve, arguments.scrapes, true)?;
    let authority = Authority::new("bench")?;
    let folder = tempfile::tempdir()?;
    let mut secure = Vec::new();
    for program in PROGRAMS {
        let mut subject = program.start_tls(serve, &authority, &folder.path().join("pki"))?;
        subject.scrape(1000, true)?;
        secure.push(subject);
    }
    let before = secure
        .iter()
        .map(|subject| usage::cpu(subject.process.id()))
        .collect::<Result<Vec<_>>>()?;
    wait::measure(Duration::from_secs(arguments.rest), || Ok(()))?;
    let binaries = [bins::agent()?, parts::node_exporter()?];
    let mut found = Vec::new();
    for (((path, subject), quiet), before) in binaries.iter().zip(&mut plain).zip(&secure).zip(before) {
        let id = quiet.process.id();
        found.push(Figures {
            binary: fs::metadata(path)?.len() as f64 / MIB,
            resident: usage::resident(id)? as f64 / MIB,
            private: usage::private(id)? as f64 / MIB,
            rest: usage::cpu(id)?.saturating_sub(before).as_secs_f64() * 1e3,
            cpu: subject.cpu(),
            median: subject.quantile(0.5),
            worst: subject.quantile(0.99),
            samples: subject.samples,
        });
    }
    found
        .try_into()
        .map_err(|_| anyhow::anyhow!("two programs are measured"))
}

fn print(
    ours: &Figures,
    theirs: &Figures,
    floor: &Result<Floor>,
    serve: &Serve,
    arguments: &Arguments,
) -> Result<()> {
    let mut table = Table::new(&["figure", "virtfleet-agent", "node_exporter", "ratio", "goal", ""]);
    let mut row = |name: &str, unit: &str, pair: (f64, f64), goal: &str, met: bool| {
        let cell = |value: f64| format!("{value:.1} {unit}");
        let verdict = if met { "met" } else { "MISSED" };
        let ratio = if pair.1 > 0.0 {
            format!("{:.3}", pair.0 / pair.1)
        } else {
            "-".to_owned()
        };
        table.row(&[name, &cell(pair.0), &cell(pair.1), &ratio, goal, verdict]);
    };
    let fifth = |(ours, theirs): (f64, f64)| ours * 5.0 <= theirs;
    let pair = (ours.binary, theirs.binary);
    row("binary", "MiB", pair, "≤ 1/2", pair.0 * 2.0 <= pair.1);
    let pair = (ours.resident, theirs.resident);
    let met = pair.0 <= 5.5 && pair.0 * 4.0 <= pair.1;
    row(
        "resident, 1,000 TLS scrapes",
        "MiB",
        pair,
        "≤ 1/4, ≤ 5.5 MiB",
        met,
    );
    let pair = (ours.private, theirs.private);
    row("  of it private", "MiB", pair, "≤ 2 MiB", pair.0 <= 2.0);
    // A timer tick is not work: less than a thousandth of a CPU counts as idle.
    let idle = ours.rest <= arguments.rest as f64;
    let rest = format!("CPU in {} s of rest", arguments.rest);
    row(&rest, "ms", (ours.rest, theirs.rest), "none (< 0.1 %)", idle);
    for (name, pair) in [
        ("CPU per scrape", (ours.cpu, theirs.cpu)),
        ("latency p50", (ours.median, theirs.median)),
        ("latency p99", (ours.worst, theirs.worst)),
    ] {
        row(name, "µs", pair, "≤ 1/5", fifth(pair));
    }
    let note = format!(
        "{} scrapes each over plain HTTP on one connection, in turns, gzip asked for; {} and {} samples a page, of {} \
         collectors: {}.\n",
        arguments.scrapes,
        ours.samples,
        theirs.samples,
        serve.collectors.len(),
        serve.collectors.join(" ")
    );
    let floor = match floor {
        Ok(floor) => {
            let ratio = floor.ratio();
            format!(
                "\nA scrape without gzip, p50: {:.1} µs with {} system calls on files and netlink. Its floor is the same \
                 calls alone, {:.1} µs, and an answer without metrics, {:.1} µs; ratio {ratio:.2}, goal ≤ 1.5: {}.\n",
                floor.scrape,
                floor.count,
                floor.calls,
                floor.http,
                if ratio <= 1.5 { "met" } else { "MISSED" },
            )
        }
        Err(error) => format!("\nThe floor of a scrape was not measured: {error:#}\n"),
    };
    writeln!(stdout(), "{}\n{note}{floor}", table.render()).context("print")
}
