//! Flags and arguments of `plan` and `apply`, and of the verbs `disks`, `dns` and `virtio`.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use virtfleet_wire::duration::Span;

use super::verb::{ApplyOptions, DisksVerb, Domain, Subjects, Verb};
use crate::output::Output;

fn subject() -> Arg {
    Arg::new("subject")
        .value_name("WHAT")
        .value_parser(Domain::VALUES.map(Domain::word))
}

pub(super) fn plan(output: Arg) -> Command {
    Command::new("plan")
        .about("As root: show what `apply disks`, `apply dns` and `apply nic` would do, what they refuse, and why; changes nothing")
        .arg(
            subject()
                .action(ArgAction::Append)
                .help("What to plan; default: everything"),
        )
        .arg(
            Arg::new("detailed-exitcode")
                .long("detailed-exitcode")
                .action(ArgAction::SetTrue)
                .help("Exit code 3 if something is refused, else 2 if there are steps, else 0"),
        )
        .arg(output)
}

/// Parses a duration, or 0.
fn length(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span: Result<Span, _> = text.parse();
    span.map(|Span(length)| length).map_err(|error| error.to_string())
}

/// The arguments of `apply` besides its stages.
pub(super) fn apply() -> [Arg; 3] {
    [
        subject()
            .conflicts_with("stage")
            .help("Apply only this, now, in any stage; exit code 3 if something is refused"),
        Arg::new("plan")
            .long("plan")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .requires("subject")
            .help("Apply only if the plan is still the one in this file (from `plan -o json`)"),
        Arg::new("wait")
            .long("wait")
            .value_name("DURATION")
            .value_parser(length)
            .help("Maximum time to wait for a running reconcile, e.g. 90s or 1h; 0: do not wait. Default 30m; with --stage 2m (dns: 40s, reconcile: 4m)"),
    ]
}

pub(super) fn dns(output: Arg) -> Command {
    Command::new("dns")
        .about("Show the guest's nameservers and their health; exit code 1 if none answers or the last reconcile run failed")
        .arg(output)
}

pub(super) fn virtio(output: Arg) -> Command {
    Command::new("virtio")
        .about("Show the virtio devices with their queues and interrupts, and their problems; exit code 1 if one does not work")
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Show each queue, even if there are many"),
        )
        .arg(output)
}

pub(super) fn disks(output: Arg) -> Command {
    Command::new("disks")
        .about("Show the state of the declared disks; exit code 1 if one failed or a required one is not in place")
        .arg(output)
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("approve")
                .about("As root: approve formatting a refused disk, once, after you have judged the evidence")
                .arg(
                    Arg::new("who")
                        .value_name("NAME|SERIAL")
                        .required(true)
                        .help("The disk: its name in the settings, or its serial"),
                )
                .arg(
                    Arg::new("evidence")
                        .long("evidence")
                        .value_name("HASH")
                        .required(true)
                        .help("The hash that `plan disks` shows; it changes with what is found on the disk"),
                ),
        )
        .subcommand(Command::new("check").about(
            "Exit code 1, with the reasons, if a required disk is not in place: containerd and kubelet wait for this check",
        ))
        .subcommand(
            Command::new("trim").about("As root: discard unused blocks of the disks with `discard: true`"),
        )
        .subcommand(
            Command::new("udev")
                .about("For udev, as root: print type and UUID of the agent's own filesystem, if it is on this device; never fails")
                .arg(
                    Arg::new("device")
                        .value_name("DEVICE")
                        .required(true)
                        .value_parser(value_parser!(PathBuf))
                        .help("The node, e.g. /dev/vdb"),
                ),
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
    let domain = Domain::VALUES
        .into_iter()
        .find(|domain| domain.word() == subject)?;
    Some(Verb::ApplyDomain(ApplyOptions {
        domain,
        plan: matches.get_one::<PathBuf>("plan").cloned(),
        output,
        wait: wait(matches),
    }))
}

/// The value of `--wait`.
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
        Some(("udev", sub)) => DisksVerb::Udev(sub.get_one("device").cloned().unwrap_or_default()),
        _ => DisksVerb::List(matches.get_one::<Output>("output").copied().unwrap_or_default()),
    })
}
