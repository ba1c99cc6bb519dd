//! Man pages and shell completions of the programs, generated from their command lines.

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::{Generator as _, Shell, generate};
use clap_mangen::Man;
use virtfleet_collector::ctl;

/// Name or path of a file, and its content.
pub type ManualFile = (String, Vec<u8>);

/// The program whose completions also complete names of VMs.
const CTL: &str = "virtfleetctl";

/// The command lines of all programs.
pub fn commands() -> [Command; 3] {
    [
        virtfleet_agent::cli::command(),
        virtfleet_collector::cli::command(),
        ctl::cli::command(),
    ]
}

/// The man page of a program and of each of its subcommands, as in git: `virtfleet-agent-run.1`.
pub fn pages(program: &Command) -> Result<Vec<ManualFile>> {
    let mut program = program.clone().disable_help_subcommand(true);
    program.build();
    let (mut pages, mut open) = (Vec::new(), vec![program]);
    while let Some(command) = open.pop() {
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        open.extend(shown.cloned());
        let page = Man::new(command);
        let (name, mut text) = (page.get_filename(), Vec::<u8>::new());
        page.render(&mut text).with_context(|| name.clone())?;
        pages.push((name, text));
    }
    pages.sort();
    Ok(pages)
}

/// The completion of a program for a shell.
pub fn completion(program: &Command, shell: Shell) -> ManualFile {
    let name = program.get_name();
    let mut script: Vec<u8> = Vec::new();
    if name == CTL {
        script.extend(ctl::manual::completion(shell).into_bytes());
    } else {
        generate(shell, &mut program.clone(), name, &mut script);
    }
    (shell.file_name(name), script)
}

/// What an image has of a program: its man pages, and its completions for bash, fish and zsh, by
/// path from the root.
pub fn installed(program: &Command) -> Result<Vec<ManualFile>> {
    let mut files = Vec::new();
    for (name, page) in pages(program)? {
        files.push((format!("usr/share/man/man1/{name}"), page));
    }
    let name = program.get_name();
    for (shell, path) in [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Fish, format!("fish/vendor_completions.d/{name}.fish")),
        (Shell::Zsh, format!("zsh/site-functions/_{name}")),
    ] {
        files.push((format!("usr/share/{path}"), completion(program, shell).1));
    }
    Ok(files)
}
