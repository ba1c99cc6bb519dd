//! Compares the agent's metrics page with node_exporter's, family by family: all differences, and
//! which of them are intended.

use std::{
    io::{Write as _, stdout},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_tests::parity::{self, Extent};

/// Compare the agent's page with node_exporter's.
#[derive(Debug, Parser)]
#[command(name = "parity")]
struct Arguments {
    /// Folders with `proc`, `sys`, `rootfs` and `udev` to compare on. Default: this machine.
    #[arg(long, value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// Number of scrape rounds; each scrapes node_exporter, the agent and node_exporter again.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Use default settings instead of enabling everything optional.
    #[arg(long, conflicts_with = "renamed")]
    plain: bool,
    /// Use the settings that change names and labels.
    #[arg(long)]
    renamed: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let places = if arguments.roots.is_empty() {
        vec![None]
    } else {
        arguments.roots.iter().map(|path| Some(path.as_path())).collect()
    };
    let extent = match (arguments.plain, arguments.renamed) {
        (true, _) => Extent::Plain,
        (_, true) => Extent::Renamed,
        _ => Extent::Wide,
    };
    let mut verdicts = Vec::new();
    for place in places {
        let verdict = parity::run(place, extent, arguments.rounds)?;
        let name = place.map_or_else(|| "this machine".to_owned(), |path| path.display().to_string());
        writeln!(stdout(), "== {name}: {verdict}").context("print")?;
        verdicts.push(verdict);
    }
    let equal = verdicts.iter().all(|verdict| verdict.unexplained.is_empty());
    Ok(if equal {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
