//! Compatibility with node_exporter's command line, so that this binary can replace node_exporter
//! in its unit. With `--compat`, or under one of node_exporter's program names, flags that the
//! agent does not support are ignored with one line each, and `run` is the default verb. Flags of
//! collectors that earlier versions had are always ignored.

use std::{ffi::OsString, path::Path};

use virtfleet_wire::settings::REMOVED_COLLECTORS;

/// Program names that imply `--compat`.
const PROGRAMS: [&str; 2] = ["node_exporter", "prometheus-node-exporter"];
const COMPAT: &str = "--compat";

/// A flag of node_exporter 1.11 that the agent does not support: its name without dashes, whether a
/// value follows, and what to do instead.
type Foreign = (&'static str, bool, &'static str);

const LISTENERS: &str = "set server.listeners in the settings";
const OWN_INTERFACE: &str = "the agent chooses the kernel interface itself";
const FIXTURES: &str = "only node_exporter's own tests need it";

/// Unsupported flags. Those of missing collectors are in [`ABSENT`].
const FOREIGN: [Foreign; 12] = [
    ("collector.arp.netlink", false, OWN_INTERFACE),
    (
        "collector.netclass_rtnl.with-stats",
        false,
        "the collector netdev has the statistics",
    ),
    ("collector.netdev.netlink", false, OWN_INTERFACE),
    ("collector.qdisc.fixtures", true, FIXTURES),
    ("collector.wifi.fixtures", true, FIXTURES),
    ("runtime.gomaxprocs", true, "there is no Go runtime here"),
    ("web.config.file", true, "set server.tls in the settings"),
    (
        "web.disable-exporter-metrics",
        false,
        "the agent's own metrics are few, and begin with virtfleet_agent_",
    ),
    ("web.listen-address", true, LISTENERS),
    (
        "web.max-requests",
        true,
        "scrapes that wait at the same time share one collection",
    ),
    ("web.systemd-socket", false, LISTENERS),
    ("web.telemetry-path", true, "metrics are at /metrics"),
];

/// Collectors of node_exporter 1.11 that the agent does not have: their hardware or service does
/// not exist in a KubeVirt guest, or another program monitors it.
const ABSENT: [&str; 19] = [
    "bcache",
    "bcachefs",
    "cpufreq",
    "drbd",
    "drm",
    "edac",
    "fibrechannel",
    "infiniband",
    "ntp",
    "pcidevice",
    "perf",
    POWER_SUPPLY,
    "powersupplyclass",
    "rapl",
    "runit",
    "supervisord",
    "tapestats",
    "thermal_zone",
    "wifi",
];

/// The name of `powersupplyclass` in the flag of its setting.
const POWER_SUPPLY: &str = "powersupply";

/// Settings of these collectors that take no value.
const SWITCHES: [&str; 7] = [
    "bcache.priorityStats",
    "ntp.server-is-local",
    "pcidevice.names",
    "perf.disable-cache-profilers",
    "perf.disable-hardware-profilers",
    "perf.disable-software-profilers",
    "rapl.enable-zone-label",
];

/// How an unsupported flag of node_exporter is handled.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    line: String,
    /// True if the next argument is the flag's value.
    takes_next: bool,
}

/// How to handle an argument; none if the agent supports it, or if it is not a flag of
/// node_exporter.
fn answer(argument: &str) -> Option<Answer> {
    let flag = argument.strip_prefix("--")?;
    let (name, inline) = flag
        .split_once('=')
        .map_or((flag, false), |(name, _)| (name, true));
    let name = name.strip_prefix("no-").unwrap_or(name);
    let (has_value, instead) = FOREIGN
        .iter()
        .find(|(foreign, ..)| *foreign == name)
        .map(|(_, has_value, instead)| (*has_value, (*instead).to_owned()))
        .or_else(|| {
            let of_collector = name.strip_prefix("collector.")?;
            let (collector, setting) = of_collector
                .split_once('.')
                .map_or((of_collector, false), |(collector, _)| (collector, true));
            ABSENT.contains(&collector).then(|| {
                let has_value = setting && !SWITCHES.contains(&of_collector);
                (has_value, format!("the agent has no collector {collector}"))
            })
        })?;
    Some(Answer {
        line: format!("--{name} is a node_exporter flag and is ignored: {instead}"),
        takes_next: has_value && !inline,
    })
}

/// As [`answer`], only for flags of collectors that earlier versions had: a unit in the field that
/// names one must still start the agent.
fn answer_removed(argument: &str) -> Option<Answer> {
    let collector = argument.split(['.', '=']).nth(1)?;
    let is_removed = collector == POWER_SUPPLY || REMOVED_COLLECTORS.contains(&collector);
    answer(argument).filter(|_| is_removed)
}

/// Leaves out the flags that have an answer, and their values. Returns one line for each.
fn leave_out(given: Vec<OsString>, answer: fn(&str) -> Option<Answer>) -> (Vec<OsString>, Vec<String>) {
    let (mut taken, mut lines) = (Vec::new(), Vec::new());
    let mut rest = given.into_iter();
    while let Some(argument) = rest.next() {
        match argument.to_str().and_then(answer) {
            Some(answer) => {
                lines.push(answer.line);
                if answer.takes_next {
                    rest.next();
                }
            }
            None => taken.push(argument),
        }
    }
    (taken, lines)
}

/// Translates the process's arguments for [`super::command`]. Returns one line for each ignored
/// flag. Without `--compat`, and under a program name that is not node_exporter's, the arguments
/// stay as they are, except flags of collectors that earlier versions had.
pub fn translate(arguments: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut given: Vec<OsString> = arguments.into_iter().collect();
    let called = given
        .first()
        .and_then(|name| Path::new(name).file_name()?.to_str());
    let by_name = called.is_some_and(|name| PROGRAMS.contains(&name));
    if !by_name && !given.iter().any(|argument| argument == COMPAT) {
        return leave_out(given, answer_removed);
    }
    let mut taken: Vec<OsString> = given.drain(..given.len().min(1)).collect();
    given.retain(|argument| argument != COMPAT);
    let has_verb = given
        .first()
        .is_some_and(|first| !first.to_string_lossy().starts_with('-'));
    let wants_version = |argument: &OsString| argument == "--version" || argument == "-V";
    let (given, lines) = leave_out(given, answer);
    let mut flags = Vec::new();
    for argument in given {
        match argument.to_str() {
            Some("--help-long" | "--help-man") => flags.push("--help".into()),
            // node_exporter's name for the text format.
            Some("--log.format=logfmt") => flags.push("--log.format=text".into()),
            Some("logfmt") if flags.last().is_some_and(|last| last == "--log.format") => {
                flags.push("text".into());
            }
            _ => flags.push(argument),
        }
    }
    if !has_verb && !flags.iter().any(wants_version) {
        taken.push("run".into());
    }
    taken.extend(flags);
    (taken, lines)
}

/// A hint for an argument that was rejected without `--compat`.
pub(super) fn hint(argument: &str) -> Option<String> {
    let line = answer(argument)?.line;
    Some(format!("{line}; with {COMPAT} it is ignored without an error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> (String, Vec<String>) {
        let (arguments, lines) = translate(line.split(' ').map(OsString::from));
        let words: Vec<_> = arguments
            .iter()
            .map(|one| one.to_string_lossy().into_owned())
            .collect();
        (words.join(" "), lines)
    }

    #[test]
    fn without_the_flag_arguments_stay_as_they_are() {
        let line = "/usr/bin/virtfleet-agent run --web.listen-address=:9100";
        assert_eq!(said(line), (line.to_owned(), Vec::new()));
        assert!(
            hint("--web.listen-address=:9100")
                .unwrap()
                .contains("server.listeners")
        );
        assert_eq!(hint("--collector.cpu"), None);
    }

    #[test]
    fn unsupported_flags_are_named_and_ignored_with_their_values() {
        let (line, lines) = said(
            "a --compat --web.listen-address :9100 --collector.cpu --no-collector.wifi --collector.ntp.server=x \
             --collector.perf.cpus 0-1 --collector.bcache.priorityStats --path.procfs /host/proc",
        );
        assert_eq!(line, "a run --collector.cpu --path.procfs /host/proc");
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[0].starts_with(
            "--web.listen-address is a node_exporter flag and is ignored: set server.listeners"
        ));
        assert!(lines[1].contains("the agent has no collector wifi"));
    }

    #[test]
    fn flags_of_removed_collectors_are_always_ignored() {
        for collector in REMOVED_COLLECTORS {
            assert!(ABSENT.contains(&collector), "{collector}");
        }
        for program in ["virtfleet-agent", "node_exporter"] {
            let (line, lines) = said(&format!(
                "{program} run --no-collector.rapl --collector.rapl.enable-zone-label --collector.edac \
                 --no-collector.rapl.enable-zone-label --collector.thermal_zone=x --collector.cpu \
                 --collector.tapestats.ignored-devices ^st --collector.powersupply.ignored-supplies=AC"
            ));
            assert_eq!(line, format!("{program} run --collector.cpu"));
            assert_eq!(lines.len(), 7, "{lines:?}");
            assert!(lines[0].ends_with("the agent has no collector rapl"), "{lines:?}");
        }
    }

    #[test]
    fn called_as_node_exporter_it_runs() {
        assert_eq!(
            said("/usr/bin/node_exporter --web.config.file=/x").0,
            "/usr/bin/node_exporter run"
        );
        assert_eq!(
            said("prometheus-node-exporter --version").0,
            "prometheus-node-exporter --version"
        );
        assert_eq!(
            said("node_exporter metrics --collector.cpu").0,
            "node_exporter metrics --collector.cpu"
        );
        assert_eq!(said("node_exporter").0, "node_exporter run");
        assert_eq!(said("node_exporter --help-long").0, "node_exporter run --help");
        assert_eq!(
            said("node_exporter --log.format logfmt").0,
            "node_exporter run --log.format text"
        );
    }
}
