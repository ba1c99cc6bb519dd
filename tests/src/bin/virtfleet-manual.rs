//! Writes man pages and shell completions of the programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use clap_complete::Shell;
use virtfleet_tests::manual::{self, ManualFile};

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    ensure!(arguments.len() == 1, "usage: virtfleet-manual FOLDER");
    for program in manual::commands() {
        write(&arguments[0].join("man/man1"), manual::pages(&program)?)?;
        let shells = Shell::value_variants().iter();
        let completions = shells.map(|shell| manual::completion(&program, *shell));
        write(&arguments[0].join("completions"), completions.collect())?;
    }
    Ok(())
}

fn write(folder: &Path, files: Vec<ManualFile>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
