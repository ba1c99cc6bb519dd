//! node_exporter's collector flags: `--collector.X`, `--no-collector.X`, `--collector.X.SETTING`
//! and `--collector.disable-defaults`. They override the settings.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Map, Value};
use virtfleet_agent_metrics::{COLLECTORS, DefaultOn, Entry, Flag, Holds};
use virtfleet_wire::settings::MetricsSettings;

const DISABLE_DEFAULTS: &str = "collector.disable-defaults";

/// The collector flags of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorFlags {
    /// Collectors that were turned on or off.
    pub switched: BTreeMap<String, bool>,
    /// Collector, flag and its values.
    set: Vec<(&'static str, Flag, Vec<String>)>,
}

/// A flag's value that is invalid for its setting.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}: {reason}")]
pub struct FlagError {
    flag: String,
    /// The reason is part of the message and not a source, so that a printed error chain has it
    /// once.
    reason: serde_json::Error,
}

/// The flags' definitions for clap.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let defaults = Arg::new(DISABLE_DEFAULTS)
        .long(DISABLE_DEFAULTS)
        .action(ArgAction::SetTrue)
        .help_heading("Collectors")
        .help("Run only the collectors that a flag turns on");
    std::iter::once(defaults).chain(COLLECTORS.iter().flat_map(|entry| {
        let settings = entry.flags.iter().flat_map(|flag| setting(entry, flag));
        switches(entry).into_iter().chain(settings)
    }))
}

fn switches(entry: &Entry) -> [Arg; 2] {
    let [on, off] = names(entry.name);
    let when = match entry.default_on {
        DefaultOn::Always => " (on by default)",
        DefaultOn::Dashboards => " (on in the profile dashboards)",
        DefaultOn::Never => "",
    };
    [
        Arg::new(on.clone())
            .long(on.clone())
            .action(ArgAction::SetTrue)
            .overrides_with(off.clone())
            .help_heading("Collectors")
            .help(format!("{}{when}", entry.about)),
        Arg::new(off.clone())
            .long(off)
            .action(ArgAction::SetTrue)
            .overrides_with(on)
            .hide(true)
            .help(format!("Turn the {} collector off", entry.name)),
    ]
}

fn setting(entry: &Entry, flag: &Flag) -> Vec<Arg> {
    let name = long(entry.name, flag);
    let arg = Arg::new(name.clone())
        .long(name.clone())
        .help_heading("Collectors")
        .help(format!(
            "Overrides the setting metrics.{}.{}",
            entry.name, flag.key
        ));
    match flag.holds {
        Holds::Text => vec![arg.action(ArgAction::Set).value_name("VALUE")],
        Holds::Texts => vec![arg.action(ArgAction::Append).value_name("VALUE")],
        Holds::Switch => {
            let off = format!("no-{name}");
            let no = Arg::new(off.clone()).long(off.clone()).action(ArgAction::SetTrue);
            vec![
                arg.action(ArgAction::SetTrue).overrides_with(off),
                no.hide(true).overrides_with(name),
            ]
        }
    }
}

/// The flags that turn a collector on and off.
fn names(name: &str) -> [String; 2] {
    [format!("collector.{name}"), format!("no-collector.{name}")]
}

/// The flag's long name. A flag whose suffix contains a point already has the collector's other
/// name in it.
fn long(collector: &str, flag: &Flag) -> String {
    if flag.suffix.contains('.') {
        format!("collector.{}", flag.suffix)
    } else {
        format!("collector.{collector}.{}", flag.suffix)
    }
}

impl CollectorFlags {
    /// From the matches of clap.
    pub(super) fn from_matches(matches: &ArgMatches) -> Self {
        let mut flags = Self::default();
        if matches.get_flag(DISABLE_DEFAULTS) {
            let all = COLLECTORS.iter().map(|entry| (entry.name.to_owned(), false));
            flags.switched.extend(all);
        }
        for entry in COLLECTORS {
            let [on, off] = names(entry.name);
            if matches.get_flag(&on) || matches.get_flag(&off) {
                flags
                    .switched
                    .insert(entry.name.to_owned(), matches.get_flag(&on));
            }
            for flag in entry.flags {
                let name = long(entry.name, flag);
                let values = match flag.holds {
                    Holds::Switch => [(&name, "true"), (&format!("no-{name}"), "false")]
                        .iter()
                        .find(|(name, _)| matches.get_flag(name))
                        .map(|(_, word)| vec![(*word).to_owned()]),
                    Holds::Text | Holds::Texts => matches
                        .get_many::<String>(&name)
                        .map(|values| values.cloned().collect()),
                };
                flags.set.extend(values.map(|values| (entry.name, *flag, values)));
            }
        }
        flags
    }

    /// The settings with the flags applied over them.
    ///
    /// # Errors
    /// A value is invalid for its setting.
    pub fn over(&self, settings: &MetricsSettings) -> Result<MetricsSettings, FlagError> {
        let mut settings = settings.clone();
        for (collector, flag, values) in &self.set {
            let error = |reason| FlagError {
                flag: long(collector, flag),
                reason,
            };
            let mut tree = serde_json::to_value(&settings).map_err(error)?;
            let section = tree.as_object_mut().map(|tree| {
                tree.entry(*collector)
                    .or_insert_with(|| Value::Object(Map::new()))
            });
            if let Some(Value::Object(section)) = section {
                let value = match flag.holds {
                    Holds::Switch => Value::Bool(values.last().is_some_and(|word| word == "true")),
                    Holds::Text => values.last().map_or(Value::Null, |text| text.as_str().into()),
                    Holds::Texts => values.iter().map(String::as_str).collect(),
                };
                section.insert(flag.key.to_owned(), value);
            }
            settings = serde_json::from_value(tree).map_err(error)?;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> CollectorFlags {
        let command = clap::Command::new("a").args(arguments());
        CollectorFlags::from_matches(&command.try_get_matches_from(line.split(' ')).unwrap())
    }

    #[test]
    fn defaults_can_be_disabled_and_single_collectors_enabled() {
        let flags = parse("a --collector.disable-defaults --collector.cpu");
        let on: Vec<_> = flags
            .switched
            .iter()
            .filter_map(|(name, on)| on.then_some(name.as_str()))
            .collect();
        assert_eq!(on, ["cpu"]);
        assert_eq!(flags.switched.len(), COLLECTORS.len());
    }

    #[test]
    fn every_flag_has_a_setting_of_its_kind() {
        for entry in COLLECTORS {
            for flag in entry.flags {
                let name = long(entry.name, flag);
                let line = match flag.holds {
                    Holds::Switch => format!("a --{name}"),
                    Holds::Text if flag.key.ends_with("Timeout") => format!("a --{name} 3s"),
                    Holds::Text | Holds::Texts => format!("a --{name} x"),
                };
                let over = |line: &str, settings: &MetricsSettings| {
                    let set = parse(line).over(settings);
                    set.unwrap_or_else(|error| panic!("{line}: {error}"))
                };
                let settings = over(&line, &MetricsSettings::default());
                assert_ne!(settings, MetricsSettings::default(), "{line}");
                if flag.holds == Holds::Switch {
                    assert_ne!(over(&format!("a --no-{name}"), &settings), settings, "{line}");
                }
            }
        }
    }

    #[test]
    fn an_error_for_an_invalid_value_names_its_flag() {
        let flags = CollectorFlags {
            set: vec![(
                "filesystem",
                Flag::text("mount-timeout", "mountTimeout"),
                vec!["soon".to_owned()],
            )],
            ..CollectorFlags::default()
        };
        let error = flags.over(&MetricsSettings::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("--collector.filesystem.mount-timeout: "),
            "{error}"
        );
    }
}
