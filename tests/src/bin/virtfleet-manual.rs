//! Writes man pages and shell completions of the programs, generated from their command-line
//! definitions. `packaging/completions` adds what a collector must be asked for.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

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

fn complete(mut command: Command, name: &str, folder: &Path) -> Result<()> {
    let additions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/completions");
    for shell in Shell::value_variants() {
        let file = clap_complete::generate_to(*shell, &mut command, name, folder)
            .with_context(|| format!("{shell} completion of {name}"))?;
        let addition = additions.join(file.file_name().context("a completion without a name")?);
        if addition.exists() {
            let text = fs::read_to_string(&file)? + &fs::read_to_string(&addition)?;
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
    }
    Ok(())
}
