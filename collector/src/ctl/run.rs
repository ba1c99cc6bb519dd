//! Runs the program: from arguments to an exit code.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::Parser as _;
use virtfleet_runtime::exit::Code;

use super::{
    ca,
    cli::{
        CaCommand, Cli, LabelsCommand, PolicyCommand, Program, QueryCommand, TokenCommand, TopLevelCommand,
    },
    client::Client,
    console::Console,
    enrolment,
    explain::explain,
    fail::Fail,
    policy, render as files,
    rendered::render,
    summary::summary,
    target::{self, Target},
    tokens, watch,
};

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
            TopLevelCommand::Render(what) => match files::run(&what, &connection, &mut console) {
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
        let once = match cli.command {
            QueryCommand::Labels(LabelsCommand::Policy(_)) => Some("labels policy test"),
            QueryCommand::Ca(CaCommand::Rotate { .. }) => Some("ca rotate"),
            QueryCommand::Enrolment(_) => Some("enrolment"),
            QueryCommand::Vm { change: Some(_), .. } => Some("vm revoke and vm reset"),
            QueryCommand::Token(_) => Some("token"),
            _ => None,
        };
        if let Some(once) = once {
            return report(&Fail::Usage(format!("{once} does not support --watch")), console);
        }
        watch::until_interrupted(cli, console).map(|()| Code::Ok)
    } else {
        once(cli, console)
    };
    match done {
        Ok(code) => code.number(),
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
fn once(cli: &Cli, console: &mut Console<'_>) -> Result<Code, Fail> {
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
        QueryCommand::Ca(CaCommand::Rotate { args, .. }) => ca::rotate(*args, &client)?,
        QueryCommand::Token(TokenCommand::Create { args, .. }) => tokens::create(args, &client)?,
        QueryCommand::Token(TokenCommand::Revoke { .. }) => tokens::revoke(&target.path, &client)?,
        command => match command.enrolment_change() {
            Some(change) => enrolment::change(&target.path, change.change().0, &client)?,
            None => client.get(&target.path, &target.query, Duration::ZERO)?,
        },
    };
    let text = render(target::show(&cli.command), &target, &answer, console)?;
    console.print(&text)?;
    if let Some(line) = summary(&client, &target, &answer) {
        console.note(&line);
    }
    Ok(target.exit_code(&answer))
}
