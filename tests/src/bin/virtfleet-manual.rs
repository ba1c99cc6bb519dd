//! Writes man pages and shell completions of the programs, generated from their command-line
//! definitions.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Command, ValueEnum as _};
use clap_complete::Shell;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    ensure!(arguments.len() == 1, "usage: virtfleet-manual FOLDER");
    let (pages, completions) = (arguments[0].join("man/man1"), arguments[0].join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let commands = [
        virtfleet_agent::cli::command(),
        virtfleet_collector::cli::command(),
        virtfleet_collector::ctl::cli::command(),
    ];
    for command in commands {
        let name = command.get_name().to_owned();
        // One page for each subcommand, as in git: virtfleet-agent-run(1).
        clap_mangen::generate_to(command.clone(), &pages).with_context(|| format!("man pages of {name}"))?;
        complete(command, &name, &completions)?;
    }
    Ok(())
}

fn complete(mut command: Command, name: &str, folder: &std::path::Path) -> Result<()> {
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, name, folder)
            .with_context(|| format!("{shell} completion of {name}"))?;
    }
    Ok(())
}
