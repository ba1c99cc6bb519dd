//! From arguments to an exit code.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::Parser as _;
use virtfleet_collector_core::view::List;
use virtfleet_wire::{finding::Severity, layered::to_yaml};

use super::{
    cli::{Cli, Labels, Output, Policy, Program, Show, Verb, Word},
    client::{Answer, Client},
    console::Console,
    explain::explain,
    fail::Fail,
    policy, render as files,
    table::LONGEST_CELL,
    target::{self, Target},
    text::{count, safe_json},
    view::Look,
    watch,
};
use crate::api::FindingView;

/// The program: 0 ok, 1 failure, 2 usage, 4 not found. `args[0]` is only shown, so the program may be called
/// `kubectl-virtfleet` as well.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = match Program::try_parse_from(args) {
        Ok(program) => program,
        // Help and version end here too, with 0.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(1);
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    let Program { connection, word } = program;
    Console::with_real(|mut console| {
        ExitCode::from(match word {
            Word::Ask(verb) => run(&Cli { connection, verb }, &mut console),
            Word::Render(what) => match files::run(&what, &mut console) {
                Ok(()) => 0,
                Err(fail) => report(&fail, &mut console),
            },
            Word::Explain { id } => match explain(&id).and_then(|text| Ok(console.print(&text)?)) {
                Ok(()) => 0,
                Err(fail) => report(&fail, &mut console),
            },
        })
    })
}

pub(super) fn run(cli: &Cli, console: &mut Console<'_>) -> u8 {
    let done = if target::show(&cli.verb).watch {
        if matches!(cli.verb, Verb::Labels(Labels::Policy(_))) {
            let once = "labels policy test answers once: leave --watch out".to_owned();
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

/// Says why, and gives the exit code.
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

/// Asks and shows once.
fn once(cli: &Cli, console: &mut Console<'_>) -> Result<(), Fail> {
    let client = Client::new(&cli.connection)?;
    let target = Target::of(&cli.verb, &client)?;
    let answer = match &cli.verb {
        Verb::Labels(Labels::Policy(Policy::Test {
            file,
            delete,
            delete_all,
            all,
            ..
        })) => {
            let trial = policy::Trial {
                file: file.as_deref(),
                delete,
                delete_all: *delete_all,
                all: *all,
            };
            policy::test(&trial, &client)?
        }
        _ => client.get(&target.path, &target.query, Duration::ZERO)?,
    };
    let text = render(target::show(&cli.verb), &target, &answer, console)?;
    console.print(&text)?;
    if let Some(line) = summary(&client, &target, &answer) {
        console.note(&line);
    }
    Ok(())
}

/// The answer as `-o` asks for it.
pub(super) fn render(
    show: &Show,
    target: &Target,
    answer: &Answer,
    console: &Console<'_>,
) -> Result<String, Fail> {
    match show.output {
        Some(Output::Json) => Ok(safe_json(&format!("{:#}\n", answer.body))),
        Some(Output::Yaml) => Ok(to_yaml(&answer.body)),
        None | Some(Output::Wide) => {
            let wide = show.output == Some(Output::Wide);
            // A screen shows the beginning of a long text; a pipe gets all of it.
            let whole = wide && !console.terminal;
            let look = Look {
                wide,
                headers: !show.no_headers,
                colour: console.colour,
                longest: if whole { usize::MAX } else { LONGEST_CELL },
                now: (console.now)(),
            };
            (target.view)(answer, &look)
        }
    }
}

/// The line after a list: whether it is complete, and what is wrong with the inventory. It is an extra: when it cannot be
/// had, the list stands without it.
pub(super) fn summary(client: &Client, target: &Target, answer: &Answer) -> Option<String> {
    if !target.list {
        return None;
    }
    let mut parts = Vec::new();
    if answer.body["partial"] == true {
        parts.push("the inventory is incomplete, so what is missing here may exist all the same".to_owned());
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
