//! Flags and verbs. Verbs that scrape accept node_exporter's `--path.*`, `--collector.X` and
//! `--no-collector.X`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use serde::de::DeserializeOwned;
use virtfleet_agent_core::{VERSION, pass::Stage};
use virtfleet_agent_host::Roots;
use virtfleet_agent_provision::STEPS;

use super::{
    collector_flags::{self, CollectorFlags},
    disk_args,
    verb::{Args, Verb},
};
use crate::{install::Options, output::Output};

const ROOTS: [(&str, &str, &str); 4] = [
    (
        "path.rootfs",
        "/",
        "The guest's root filesystem; settings and state files lie under it",
    ),
    ("path.procfs", "/proc", "Where procfs is mounted"),
    ("path.sysfs", "/sys", "Where sysfs is mounted"),
    ("path.udev.data", "/run/udev/data", "Where udev keeps its data"),
];

/// The command line's definition for clap, from which completions and man pages are generated too.
pub fn command() -> Command {
    let roots = ROOTS.map(|(name, default, help)| {
        Arg::new(name)
            .long(name)
            .value_name("DIR")
            .default_value(default)
            .value_parser(value_parser!(PathBuf))
            .global(true)
            .help_heading("Roots")
            .help(help)
    });
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .global(true)
        .help("Read this settings file instead of the default locations");
    // Removed before clap parses the arguments. It is defined here for help, completions and man
    // pages.
    let compat = Arg::new("compat")
        .long("compat")
        .action(ArgAction::SetTrue)
        .global(true)
        .help("Ignore node_exporter flags that the agent does not support, with one line about each; without a verb: run");
    let format = Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(value_parser!(Output));
    let text_or = format.clone().default_value("text").help("text, json or yaml");
    let json_or = format
        .default_value("json")
        .help("json or yaml; text means json here");
    Command::new("virtfleet-agent")
        .version(VERSION)
        .about("The agent in every KubeVirt VM: guest metrics and the guest's own report")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(roots)
        .arg(config)
        .arg(compat)
        .subcommand(
            Command::new("run")
                .about("Serve metrics and the report")
                .args(log_flags())
                .args(collector_flags::arguments()),
        )
        .subcommand(
            Command::new("metrics")
                .about("Print one scrape, as /metrics has it")
                .args(collector_flags::arguments()),
        )
        .subcommand(
            Command::new("report")
                .about("Print the report, as /v1/report has it")
                .arg(json_or),
        )
        .subcommand(
            Command::new("doctor")
                .about("Check everything that an admin would check by hand; exit code 1 if a check fails")
                .args(collector_flags::arguments())
                .arg(text_or.clone()),
        )
        .subcommand(
            Command::new("check-config")
                .about("Validate the settings; list every problem with file and line")
                .arg(
                    Arg::new("file")
                        .value_name("FILE")
                        .value_parser(value_parser!(PathBuf))
                        .help("Validate only this file; default: all files that `run` reads"),
                )
                .arg(text_or.clone()),
        )
        .subcommand(
            Command::new("install")
                .about(
                    "As root: install this binary, its units and the files they need into this guest; safe to run repeatedly",
                )
                .args(install_flags())
                .arg(text_or.clone()),
        )
        .subcommand(disk_args::plan(text_or.clone()))
        .subcommand(disk_args::disks(text_or.clone()))
        .subcommand(disk_args::dns(text_or.clone()))
        .subcommand(disk_args::virtio(text_or.clone()))
        .subcommand(apply(text_or))
        .subcommand(Command::new("schema").about("Print the JSON Schema of the settings"))
        .subcommand(Command::new("state").about(
            "As root: write what only root may read to /run/virtfleet/state, for an unprivileged agent",
        ))
}

fn apply(output: Arg) -> Command {
    let stages = Stage::ALL.map(Stage::word);
    let steps = STEPS.iter().fold(String::new(), |text, step| {
        let stages: Vec<_> = step.plan.stages.iter().map(|stage| stage.word()).collect();
        text + &format!("\n  {:10} {} ({})", step.plan.name, step.about, stages.join(", "))
    });
    Command::new("apply")
        .about("As root: run the steps of a stage and record the results; exit code 1 if a step failed")
        .after_help(format!("Steps:{steps}"))
        .arg(
            Arg::new("stage")
                .long("stage")
                .value_name("STAGE")
                .value_parser(stages)
                .help("The stage; default: all stages, in order"),
        )
        .args(disk_args::apply())
        .arg(output)
}

fn install_flags() -> [Arg; 4] {
    let dir = |name: &'static str, default: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("DIR")
            .default_value(default)
            .value_parser(value_parser!(PathBuf))
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    [
        dir("prefix", virtfleet_delivery::PREFIX).help("Install the binary into its directory bin"),
        dir("root", "/").help("Install into the image at this root; starts nothing"),
        flag("no-start").help("Start no unit"),
        flag("remove").help("Remove what install and the delivery have installed; settings stay"),
    ]
}

/// The flags of logging, named as in node_exporter. Both override the settings.
fn log_flags() -> [Arg; 2] {
    let level = Arg::new("log.level")
        .long("log.level")
        .value_name("LEVEL")
        .value_parser(["error", "warn", "info", "debug", "trace"])
        .help("Minimum level of log messages");
    let format = Arg::new("log.format")
        .long("log.format")
        .value_name("FORMAT")
        .value_parser(["auto", "text", "json"])
        .help("auto: text on a terminal, else JSON");
    [level, format]
}

/// The value of a flag as its type. clap has validated it.
fn word<T: DeserializeOwned>(matches: &ArgMatches, flag: &str) -> Option<T> {
    let word = matches.try_get_one::<String>(flag).ok().flatten()?;
    serde_json::from_value(word.as_str().into()).ok()
}

impl Args {
    pub fn from_matches(matches: &ArgMatches) -> Self {
        let (name, sub) = matches.subcommand().unwrap_or(("", matches));
        let root = |flag: &str| sub.get_one::<PathBuf>(flag).cloned().unwrap_or_default();
        let format = || sub.get_one::<Output>("output").copied().unwrap_or_default();
        let verb = match name {
            "run" => Verb::Run,
            "metrics" => Verb::Metrics,
            "report" => Verb::Report(match format() {
                Output::Text => Output::Json,
                format => format,
            }),
            "doctor" => Verb::Doctor(format()),
            "check-config" => Verb::CheckConfig(sub.get_one::<PathBuf>("file").cloned(), format()),
            "state" => Verb::State,
            "install" => {
                let options = Options {
                    prefix: root("prefix"),
                    root: root("root"),
                    start: !sub.get_flag("no-start"),
                };
                Verb::Install(options, sub.get_flag("remove"), format())
            }
            "apply" => disk_args::parse_apply(sub, format())
                .unwrap_or_else(|| Verb::Apply(word(sub, "stage"), format(), disk_args::wait(sub))),
            "plan" => disk_args::parse_plan(sub, format()),
            "dns" => Verb::Dns(format()),
            "virtio" => Verb::Virtio(sub.get_flag("all"), format()),
            "disks" => disk_args::parse_disks(sub),
            _ => Verb::Schema,
        };
        let collectors = if matches!(verb, Verb::Run | Verb::Metrics | Verb::Doctor(_)) {
            CollectorFlags::from_matches(sub)
        } else {
            CollectorFlags::default()
        };
        Self {
            roots: Roots {
                rootfs: root("path.rootfs"),
                procfs: root("path.procfs"),
                sysfs: root("path.sysfs"),
                udev_data: root("path.udev.data"),
            },
            config: sub.get_one::<PathBuf>("config").cloned(),
            log_level: word(sub, "log.level"),
            log_format: word(sub, "log.format"),
            collectors,
            verb,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use std::time::Duration;

    use super::{
        super::verb::{ApplyOptions, DisksVerb, Domain, Subjects},
        *,
    };

    fn parse(line: &str) -> Result<Args, clap::Error> {
        command()
            .try_get_matches_from(line.split(' '))
            .map(|matches| Args::from_matches(&matches))
    }

    #[test]
    fn the_definition_is_valid_for_clap() {
        command().debug_assert();
    }

    #[test]
    fn roots_and_settings_are_accepted_before_and_after_the_verb() {
        for line in [
            "a --path.procfs /p --config c run",
            "a run --path.procfs /p --config c",
        ] {
            let args = parse(line).unwrap();
            assert_eq!(
                (args.roots.procfs, args.config),
                ("/p".into(), Some("c".into())),
                "{line}"
            );
            assert_eq!(args.roots.sysfs, PathBuf::from("/sys"));
        }
    }

    #[test]
    fn collectors_are_turned_on_and_off_and_the_last_flag_wins() {
        let args = parse("a metrics --no-collector.cpu --collector.os").unwrap();
        assert_eq!(
            args.collectors.switched,
            BTreeMap::from([("cpu".to_owned(), false), ("os".to_owned(), true)])
        );
        let args = parse("a metrics --no-collector.cpu --collector.cpu").unwrap();
        assert_eq!(
            args.collectors.switched,
            BTreeMap::from([("cpu".to_owned(), true)])
        );
        parse("a metrics --collector.cpux").unwrap_err();
    }

    #[test]
    fn every_value_of_the_log_flags_is_one_of_the_settings() {
        for level in ["error", "warn", "info", "debug", "trace"] {
            assert!(
                parse(&format!("a run --log.level {level}"))
                    .unwrap()
                    .log_level
                    .is_some(),
                "{level}"
            );
        }
        for format in ["auto", "text", "json"] {
            assert!(
                parse(&format!("a run --log.format {format}"))
                    .unwrap()
                    .log_format
                    .is_some(),
                "{format}"
            );
        }
        assert_eq!(parse("a run").unwrap().log_level, None);
    }

    #[test]
    fn each_verb_is_parsed() {
        assert_eq!(parse("a report").unwrap().verb, Verb::Report(Output::Json));
        assert_eq!(
            parse("a report -o yaml").unwrap().verb,
            Verb::Report(Output::Yaml)
        );
        assert_eq!(
            parse("a report -o text").unwrap().verb,
            Verb::Report(Output::Json),
            "as documented in its help"
        );
        assert_eq!(parse("a doctor").unwrap().verb, Verb::Doctor(Output::Text));
        assert_eq!(
            parse("a check-config x -o json").unwrap().verb,
            Verb::CheckConfig(Some("x".into()), Output::Json)
        );
        assert_eq!(
            parse("a apply").unwrap().verb,
            Verb::Apply(None, Output::Text, None)
        );
        for stage in Stage::ALL {
            let line = format!("a apply --stage {} -o json", stage.word());
            assert_eq!(
                parse(&line).unwrap().verb,
                Verb::Apply(Some(stage), Output::Json, None)
            );
        }
        let disks = |verb| Verb::Disks(verb);
        let apply = |domain, plan: Option<&str>, wait| {
            Verb::ApplyDomain(ApplyOptions {
                domain,
                plan: plan.map(PathBuf::from),
                output: Output::Text,
                wait,
            })
        };
        let these = |disks, dns, nic| Subjects { disks, dns, nic };
        for (line, verb) in [
            ("a plan", Verb::Plan(these(true, true, true), Output::Text, false)),
            (
                "a plan disks --detailed-exitcode -o json",
                Verb::Plan(these(true, false, false), Output::Json, true),
            ),
            (
                "a plan dns disks",
                Verb::Plan(these(true, true, false), Output::Text, false),
            ),
            (
                "a plan dns -o yaml",
                Verb::Plan(these(false, true, false), Output::Yaml, false),
            ),
            ("a apply dns --plan p", apply(Domain::Dns, Some("p"), None)),
            (
                "a plan nic",
                Verb::Plan(these(false, false, true), Output::Text, false),
            ),
            (
                "a apply nic --plan p --wait 5s",
                apply(Domain::Nic, Some("p"), Some(Duration::from_secs(5))),
            ),
            ("a dns -o json", Verb::Dns(Output::Json)),
            ("a virtio", Verb::Virtio(false, Output::Text)),
            ("a virtio --all -o yaml", Verb::Virtio(true, Output::Yaml)),
            ("a apply disks", apply(Domain::Disks, None, None)),
            (
                "a apply disks --wait 90s",
                apply(Domain::Disks, None, Some(Duration::from_secs(90))),
            ),
            (
                "a apply --wait 0",
                Verb::Apply(None, Output::Text, Some(Duration::ZERO)),
            ),
            ("a apply disks --plan p", apply(Domain::Disks, Some("p"), None)),
            ("a disks", disks(DisksVerb::List(Output::Text))),
            ("a disks -o yaml", disks(DisksVerb::List(Output::Yaml))),
            (
                "a disks approve d --evidence e",
                disks(DisksVerb::Approve("d".into(), "e".into())),
            ),
            ("a disks check", disks(DisksVerb::Check)),
            ("a disks trim", disks(DisksVerb::Trim)),
            ("a disks udev /dev/vdb", disks(DisksVerb::Udev("/dev/vdb".into()))),
        ] {
            assert_eq!(parse(line).unwrap().verb, verb, "{line}");
        }
        for line in [
            "a apply --plan p",
            "a apply disks --wait 5",
            "a apply disks --stage dns",
            "a plan virtio",
            "a disks approve d",
            "a disks udev",
        ] {
            parse(line).unwrap_err();
        }
        parse("a apply --stage boot").unwrap_err();
        parse("a").unwrap_err();
        parse("a report -o xml").unwrap_err();
    }
}
