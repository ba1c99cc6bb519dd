//! Flags and arguments of the verbs that plan and apply, and of those for disks, DNS and queues.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use virtfleet_wire::duration::Span;

use super::verb::{ApplyOptions, DisksVerb, Domain, Subjects, Verb};
use crate::output::Output;

fn subject() -> Arg {
    Arg::new("subject")
        .value_name("WHAT")
        .value_parser(Domain::ALL.map(Domain::word))
}

pub(super) fn plan(output: Arg) -> Command {
    Command::new("plan")
        .about("As root: show what `apply disks`, `apply dns` and `apply nic` would do, what they refuse and why; nothing is changed")
        .arg(
            subject()
                .action(ArgAction::Append)
                .help("What is planned; without it, everything"),
        )
        .arg(
            Arg::new("detailed-exitcode")
                .long("detailed-exitcode")
                .action(ArgAction::SetTrue)
                .help("Exit code 3 when something is refused, else 2 when something is to be done, else 0"),
        )
        .arg(output)
}

/// A length of time, or 0.
fn length(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span: Result<Span, _> = text.parse();
    span.map(|Span(length)| length).map_err(|error| error.to_string())
}

/// What `apply` has besides its stages.
pub(super) fn apply() -> [Arg; 3] {
    [
        subject()
            .conflicts_with("stage")
            .help("Apply this alone, now, whatever the stage; exit code 3 when something is refused"),
        Arg::new("plan")
            .long("plan")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .requires("subject")
            .help("Only if what would be done is still what this file of `plan -o json` says"),
        Arg::new("wait")
            .long("wait")
            .value_name("DURATION")
            .value_parser(length)
            .help("How long another pass is waited for, e.g. 90s or 1h; 0: not at all. Without it 30m, and with --stage 2m (dns: 40s, reconcile: 4m)"),
    ]
}

pub(super) fn dns(output: Arg) -> Command {
    Command::new("dns")
        .about("Show the guest's nameservers and how they stand; exit code 1 when nothing answers or the last pass failed")
        .arg(output)
}

pub(super) fn virtio(output: Arg) -> Command {
    Command::new("virtio")
        .about("Show the virtio devices with their queues and interrupts, and what is wrong with them; exit code 1 when one does not work")
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Each queue, however many there are"),
        )
        .arg(output)
}

pub(super) fn disks(output: Arg) -> Command {
    Command::new("disks")
        .about("Show how the declared disks stand; exit code 1 when one failed or a required one is not in place")
        .arg(output)
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("approve")
                .about("As root: let a refused disk be formatted after all, once, because you have judged the evidence")
                .arg(
                    Arg::new("who")
                        .value_name("NAME|SERIAL")
                        .required(true)
                        .help("The disk, by its name in the settings or its serial"),
                )
                .arg(
                    Arg::new("evidence")
                        .long("evidence")
                        .value_name("HASH")
                        .required(true)
                        .help("As `plan disks` shows it; another finding has another hash"),
                ),
        )
        .subcommand(Command::new("check").about(
            "Exit code 1, with the reasons, when a required disk is not in place: containerd and kubelet wait for this",
        ))
        .subcommand(
            Command::new("trim").about("As root: give unused blocks of the disks with `discard: true` back to their volumes"),
        )
}

pub(super) fn parse_plan(matches: &ArgMatches, output: Output) -> Verb {
    let named: Vec<&String> = matches.get_many("subject").into_iter().flatten().collect();
    let is = |name: &str| named.is_empty() || named.iter().any(|one| *one == name);
    let subjects = Subjects {
        disks: is("disks"),
        dns: is("dns"),
        nic: is("nic"),
    };
    Verb::Plan(subjects, output, matches.get_flag("detailed-exitcode"))
}

pub(super) fn parse_apply(matches: &ArgMatches, output: Output) -> Option<Verb> {
    let subject = matches.get_one::<String>("subject")?;
    let domain = Domain::ALL.into_iter().find(|domain| domain.word() == subject)?;
    Some(Verb::ApplyDomain(ApplyOptions {
        domain,
        plan: matches.get_one::<PathBuf>("plan").cloned(),
        output,
        wait: wait(matches),
    }))
}

/// `--wait`.
pub(super) fn wait(matches: &ArgMatches) -> Option<Duration> {
    matches.get_one::<Duration>("wait").copied()
}

pub(super) fn parse_disks(matches: &ArgMatches) -> Verb {
    let text =
        |matches: &ArgMatches, name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    Verb::Disks(match matches.subcommand() {
        Some(("approve", sub)) => DisksVerb::Approve(text(sub, "who"), text(sub, "evidence")),
        Some(("check", _)) => DisksVerb::Check,
        Some(("trim", _)) => DisksVerb::Trim,
        _ => DisksVerb::List(matches.get_one::<Output>("output").copied().unwrap_or_default()),
    })
}
