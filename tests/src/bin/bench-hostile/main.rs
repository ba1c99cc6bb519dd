//! Cost of 100 hostile guests of one tenant for the other tenants. The release collector runs twice
//! over the same fleet: first while every guest behaves, then while all guests of the last tenant
//! attack at once.
//!
//! Both phases have the same VMs, so that a ratio shows the effect of the attack and not of the
//! number of VMs.

mod phase;

use std::{
    io::{Write as _, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use clap::Parser;
use virtfleet_tests::{measure::Table, sim};

use phase::{Figures, Fleet};

/// Maximum ratio of the time between two pulls of a guest, with the attack to without: 99th
/// percentiles.
const MAX_PULL_RATIO: f64 = 1.1;
/// Maximum ratio of the collector's peak resident memory, with the attack to without.
const MAX_MEMORY_RATIO: f64 = 1.3;
/// Maximum length of a line of the collector's log, in bytes.
const MAX_LOG_LINE: usize = 4096;

/// Measure what hostile guests cost the other guests.
#[derive(Debug, Parser)]
#[command(name = "bench-hostile")]
struct Arguments {
    /// Well-behaved guests, in nine tenants.
    #[arg(long, default_value_t = 1000)]
    guests: usize,
    /// Attacking guests, in a tenth tenant.
    #[arg(long, default_value_t = 100)]
    hostile: usize,
    /// Length of each of the two phases, in minutes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// The same in seconds, to try the benchmark: too short for the goals, which then do not
    /// decide.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds between two pulls of a guest.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=30))]
    interval: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    sim::raise_file_limit()?;
    let fleet = Fleet {
        guests: arguments.guests,
        hostile: arguments.hostile,
        length: Duration::from_secs(arguments.seconds.unwrap_or(60 * u64::from(arguments.minutes))),
        interval: Duration::from_secs(arguments.interval),
    };
    let quiet = phase::run(&fleet, false)?;
    let attacked = phase::run(&fleet, true)?;
    let met = report(&fleet, &quiet, &attacked)?;
    Ok(if met || arguments.seconds.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the results; returns whether every goal is met.
fn report(fleet: &Fleet, quiet: &Figures, attacked: &Figures) -> Result<bool> {
    let mut all_met = true;
    let mut table = Table::new(&["figure", "quiet", "attacked", "ratio", "goal", ""]);
    let mut row = |name: &str, values: [String; 2], ratio: Option<f64>, goal: &str, met: Option<bool>| {
        all_met &= met.unwrap_or(true);
        let met = met.map_or("", |met| if met { "met" } else { "missed" });
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        table.row(&[name, &values[0], &values[1], &ratio, goal, met]);
    };
    let ratio = |attacked: f64, quiet: f64| attacked / quiet.max(1e-9);
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0));

    let gap = ratio(attacked.gap_p99.as_secs_f64(), quiet.gap_p99.as_secs_f64());
    row(
        "honest pulls: time between two, p99",
        [quiet, attacked].map(|figures| seconds(figures.gap_p99)),
        Some(gap),
        &format!("≤ {MAX_PULL_RATIO}"),
        Some(gap <= MAX_PULL_RATIO),
    );
    row(
        "honest pulls: late, p99",
        [quiet, attacked].map(|figures| seconds(figures.gap_p99.saturating_sub(fleet.interval))),
        None,
        "",
        None,
    );
    let pulls = ratio(attacked.pulls as f64, quiet.pulls as f64);
    row(
        "honest pulls: answered",
        [quiet, attacked].map(|figures| figures.pulls.to_string()),
        Some(pulls),
        "≥ 0.95",
        Some(pulls >= 0.95),
    );
    let memory = ratio(attacked.peak as f64, quiet.peak as f64);
    row(
        "resident memory, peak",
        [quiet, attacked].map(|figures| mib(figures.peak)),
        Some(memory),
        &format!("≤ {MAX_MEMORY_RATIO}"),
        Some(memory <= MAX_MEMORY_RATIO),
    );
    row(
        "CPU a minute",
        [quiet, attacked].map(|figures| format!("{:.1} s", figures.cpu_a_minute.as_secs_f64())),
        Some(ratio(
            attacked.cpu_a_minute.as_secs_f64(),
            quiet.cpu_a_minute.as_secs_f64(),
        )),
        "",
        None,
    );
    row(
        "API answers, slowest",
        [quiet, attacked].map(|figures| seconds(figures.slowest_answer)),
        None,
        "",
        None,
    );
    let longest = quiet.longest_log_line.max(attacked.longest_log_line);
    row(
        "log line, longest",
        [quiet, attacked].map(|figures| format!("{} B", figures.longest_log_line)),
        None,
        &format!("≤ {MAX_LOG_LINE} B"),
        Some(longest <= MAX_LOG_LINE),
    );
    let offenders = fleet.hostile.to_string();
    row(
        "offenders named",
        [String::new(), attacked.named.to_string()],
        None,
        &offenders,
        Some(attacked.named == fleet.hostile),
    );
    let mut out = stdout();
    writeln!(out, "\n{}", table.render())?;
    for (kind, words) in &attacked.words {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = if words.is_empty() {
            "NOT NAMED".to_owned()
        } else {
            words.join(", ")
        };
        writeln!(out, "{kind:<12} {words}")?;
    }
    writeln!(
        out,
        "\n{} guests that behave and {} of one tenant that attack, pulled every {} s; TLS with client certificates. The same \
         VMs behave in the quiet phase.",
        fleet.guests,
        fleet.hostile,
        fleet.interval.as_secs()
    )?;
    Ok(all_met)
}
