//! Runs the program: from arguments to an exit code.

use std::{ffi::OsString, path::Path, process::ExitCode, time::Duration};

use clap::{CommandFactory as _, FromArgMatches as _};
use virtfleet_collector_core::health::HealthVerdict;
use virtfleet_runtime::exit::Code;

use super::{
    bundle, ca,
    cli::{
        CaCommand, Cli, LabelsCommand, PolicyCommand, Program, QueryCommand, TokenCommand, TopLevelCommand,
    },
    client::Client,
    console::Console,
    disks, enrolment,
    explain::explain,
    fail::Fail,
    install, manual, policy, render as files,
    rendered::render,
    status_wait,
    summary::summary,
    target::{self, Target},
    tokens, user_cluster, watch,
};

/// Time beyond `--timeout` for a history, in which the collector reports that its own timeout, of
/// the same length by default, is over.
const EXTRA_HISTORY_TIMEOUT: Duration = Duration::from_secs(5);

/// The name by which a person calls the program: kubectl runs `kubectl-virtfleet` for `kubectl
/// virtfleet`.
pub(super) fn called_as(program: Option<&OsString>) -> String {
    let path = program.map(Path::new);
    let name = path.and_then(Path::file_name).and_then(|name| name.to_str());
    match name {
        Some("kubectl-virtfleet") => "kubectl virtfleet".to_owned(),
        Some(name) => name.to_owned(),
        None => "virtfleetctl".to_owned(),
    }
}

/// The program. Exit codes: 0 ok, 1 failure, 2 usage, 4 not found. `args[0]` is used only for
/// display, so that `kubectl-virtfleet` works as well.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let name = called_as(args.first());
    let matches = Program::command().bin_name(name).try_get_matches_from(args);
    let program = match matches.and_then(|matches| Program::from_arg_matches(&matches)) {
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
            TopLevelCommand::Cluster(what) => match user_cluster::run(&what, &connection, &mut console) {
                Ok(()) => 0,
                Err(fail) => report(&fail, &mut console),
            },
            TopLevelCommand::Disks(what) => match disks::run(&what, &connection, &mut console) {
                Ok(code) => code.number(),
                Err(fail) => report(&fail, &mut console),
            },
            TopLevelCommand::SupportBundle { args } => match bundle::run(&args, &connection, &mut console) {
                Ok(()) => 0,
                Err(fail) => report(&fail, &mut console),
            },
            TopLevelCommand::Install { args } => match install::run(&args, &connection, &mut console) {
                Ok(code) => code.number(),
                Err(fail) => report(&fail, &mut console),
            },
            TopLevelCommand::Explain { id } => {
                match explain(&id).and_then(|text| Ok(console.print(&text)?)) {
                    Ok(()) => 0,
                    Err(fail) => report(&fail, &mut console),
                }
            }
            TopLevelCommand::Completion { shell } => match console.print(&manual::completion(shell)) {
                Ok(()) => 0,
                Err(error) => report(&error.into(), &mut console),
            },
            TopLevelCommand::Man { command } => {
                match manual::page(&command).and_then(|text| Ok(console.print(&text)?)) {
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
            QueryCommand::Status { ref wait, .. } if wait.wait.is_some() => Some("status --wait"),
            QueryCommand::Ca(CaCommand::Rotate { .. }) => Some("ca rotate"),
            QueryCommand::Enrolment(_) => Some("enrolment"),
            QueryCommand::Vm { change: Some(_), .. } => Some("vm revoke and vm reset"),
            QueryCommand::Token(_) => Some("token"),
            QueryCommand::Drain { .. } => Some("drain"),
            QueryCommand::History { .. } => Some("history"),
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
    let target = Target::of(&cli.command, &client, (console.now)())?;
    let mut is_over = false;
    let answer = match &cli.command {
        QueryCommand::Status { wait, .. } if wait.wait.is_some() => {
            let wanted = wait.verdict().unwrap_or(HealthVerdict::Healthy);
            let (answer, is_reached) = status_wait::wait(&client, &target, wanted, wait.wait_timeout.0)?;
            if !is_reached {
                console.note(&format!(
                    "error: the fleet did not become {} within {}",
                    wanted.as_str(),
                    wait.wait_timeout
                ));
            }
            is_over = is_reached;
            answer
        }
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
        QueryCommand::History { .. } => client.get(&target.path, &target.query, EXTRA_HISTORY_TIMEOUT)?,
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
    if is_over {
        return Ok(Code::Ok);
    }
    Ok(target.exit_code(&answer))
}
