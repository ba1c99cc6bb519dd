//! Runs the program: from arguments to an exit code.

pub(super) use super::rendered::render;
use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::Parser as _;
use virtfleet_collector_core::view::List;
use virtfleet_wire::finding::Severity;

use super::{
    cli::{Cli, LabelsCommand, PolicyCommand, Program, QueryCommand, TopLevelCommand},
    client::{ApiResponse, Client},
    console::Console,
    explain::explain,
    fail::Fail,
    policy, render as files,
    target::{self, Target},
    text::count,
    watch,
};
use crate::api::FindingView;

/// The program. Exit codes: 0 ok, 1 failure, 2 usage, 4 not found. `args[0]` is used only for
/// display, so that `kubectl-virtfleet` works as well.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = match Program::try_parse_from(args) {
        Ok(program) => program,
        // Help and version also end here, with 0.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(1);
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    let Program { connection, command } = program;
    Console::with_real(|mut console| {
        ExitCode::from(match command {
            TopLevelCommand::Query(command) => run(&Cli { connection, command }, &mut console),
            TopLevelCommand::Render(what) => match files::run(&what, &mut console) {
                Ok(()) => 0,
                Err(fail) => report(&fail, &mut console),
            },
            TopLevelCommand::Explain { id } => {
                match explain(&id).and_then(|text| Ok(console.print(&text)?)) {
                    Ok(()) => 0,
                    Err(fail) => report(&fail, &mut console),
                }
            }
        })
    })
}

pub(super) fn run(cli: &Cli, console: &mut Console<'_>) -> u8 {
    let done = if target::show(&cli.command).watch {
        if matches!(cli.command, QueryCommand::Labels(LabelsCommand::Policy(_))) {
            let once = "labels policy test does not support --watch".to_owned();
            return report(&Fail::Usage(once), console);
        }
        watch::until_interrupted(cli, console)
    } else {
        once(cli, console)
    };
    match done {
        Ok(()) => 0,
        Err(fail) => report(&fail, console),
    }
}

/// Prints the error and returns its exit code.
fn report(fail: &Fail, console: &mut Console<'_>) -> u8 {
    let code = fail.exit_code();
    if code != 0 {
        match std::error::Error::source(fail) {
            Some(source) => console.note(&format!("error: {fail}: {source}")),
            None => console.note(&format!("error: {fail}")),
        }
    }
    code
}

/// Queries and prints once.
fn once(cli: &Cli, console: &mut Console<'_>) -> Result<(), Fail> {
    let client = Client::new(&cli.connection)?;
    let target = Target::of(&cli.command, &client)?;
    let answer = match &cli.command {
        QueryCommand::Labels(LabelsCommand::Policy(PolicyCommand::Test {
            file,
            delete,
            delete_all,
            all,
            ..
        })) => {
            let trial = policy::PolicyTest {
                file: file.as_deref(),
                delete,
                delete_all: *delete_all,
                all: *all,
            };
            policy::test(&trial, &client)?
        }
        _ => client.get(&target.path, &target.query, Duration::ZERO)?,
    };
    let text = render(target::show(&cli.command), &target, &answer, console)?;
    console.print(&text)?;
    if let Some(line) = summary(&client, &target, &answer) {
        console.note(&line);
    }
    Ok(())
}

/// The line after a list: whether the list is complete, and findings about the inventory. It is
/// omitted if it cannot be read.
pub(super) fn summary(client: &Client, target: &Target, answer: &ApiResponse) -> Option<String> {
    if !target.list {
        return None;
    }
    let mut parts = Vec::new();
    if answer.body["partial"] == true {
        parts.push("the inventory is incomplete, so objects may be missing here".to_owned());
    }
    if target.path != "/api/v1/findings" {
        let query = [("scope", "inventory".to_owned())];
        let found = client.get("/api/v1/findings", &query, Duration::ZERO).ok()?;
        let found: List<FindingView> = found.read().ok()?;
        let worst = found.items.iter().map(|view| view.finding.severity).max();
        if let Some(worst) = worst.filter(|worst| *worst > Severity::Info) {
            let grave = found.items.iter().filter(|view| view.finding.severity == worst);
            parts.push(format!(
                "{} about the inventory ({} {}): virtfleetctl findings --scope inventory",
                count(found.items.len(), "finding"),
                grave.count(),
                crate::api::severity_name(worst),
            ));
        }
    }
    (!parts.is_empty()).then(|| format!("warning: {}", parts.join("; ")))
}
