//! node_exporter's collector flags: `--collector.X`, `--no-collector.X`, `--collector.X.SETTING`
//! and `--collector.disable-defaults`. They override the settings.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Map, Value};
use virtfleet_agent_metrics::{COLLECTORS, DefaultOn, Entry, Flag, SettingType};
use virtfleet_wire::settings::MetricsSettings;

const DISABLE_DEFAULTS: &str = "collector.disable-defaults";

/// Collector flags that a command line sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorFlags {
    /// Collectors that flags turn on (`true`) or off (`false`), by name.
    pub switched: BTreeMap<String, bool>,
    /// Name of the collector, flag, and the values given on the command line.
    overrides: Vec<(&'static str, Flag, Vec<String>)>,
}

/// A value of a flag is invalid for the setting that it overrides.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}: {reason}")]
pub struct FlagError {
    flag: String,
    /// The message includes the reason. It is not a `#[source]`, because a printed error chain
    /// would repeat it.
    reason: serde_json::Error,
}

/// Definitions of the flags for clap.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let defaults = Arg::new(DISABLE_DEFAULTS)
        .long(DISABLE_DEFAULTS)
        .action(ArgAction::SetTrue)
        .help_heading("Collectors")
        .help("Run only the collectors that a flag turns on");
    std::iter::once(defaults).chain(COLLECTORS.iter().flat_map(|entry| {
        let settings = entry.flags.iter().flat_map(|flag| setting_args(entry, flag));
        on_off_args(entry).into_iter().chain(settings)
    }))
}

/// Definitions of the flags that turn a collector on and off.
fn on_off_args(entry: &Entry) -> [Arg; 2] {
    let [on, off] = on_off_names(entry.name);
    let when = match entry.default_on {
        DefaultOn::Always => " (on by default)",
        DefaultOn::Dashboards => " (on by default in the profile dashboards)",
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

/// Definition of a flag that overrides a setting. A boolean has a second one, prefixed with `no-`.
fn setting_args(entry: &Entry, flag: &Flag) -> Vec<Arg> {
    let name = long_name(entry.name, flag);
    let arg = Arg::new(name.clone())
        .long(name.clone())
        .help_heading("Collectors")
        .help(format!(
            "Overrides the setting metrics.{}.{}",
            entry.name, flag.key
        ));
    match flag.setting_type {
        SettingType::Text => vec![arg.action(ArgAction::Set).value_name("VALUE")],
        SettingType::Texts => vec![arg.action(ArgAction::Append).value_name("VALUE")],
        SettingType::Switch => {
            let off = format!("no-{name}");
            let no = Arg::new(off.clone()).long(off.clone()).action(ArgAction::SetTrue);
            vec![
                arg.action(ArgAction::SetTrue).overrides_with(off),
                no.hide(true).overrides_with(name),
            ]
        }
    }
}

/// Long names of the flags that turn a collector on and off.
fn on_off_names(collector: &str) -> [String; 2] {
    [
        format!("collector.{collector}"),
        format!("no-collector.{collector}"),
    ]
}

/// Long name of a flag that overrides a setting. A suffix that contains a dot already includes
/// node_exporter's name of the collector ([`Flag::suffix`]).
fn long_name(collector: &str, flag: &Flag) -> String {
    if flag.suffix.contains('.') {
        format!("collector.{}", flag.suffix)
    } else {
        format!("collector.{collector}.{}", flag.suffix)
    }
}

impl CollectorFlags {
    /// Reads the flags from clap's matches.
    pub(super) fn from_matches(matches: &ArgMatches) -> Self {
        let mut flags = Self::default();
        if matches.get_flag(DISABLE_DEFAULTS) {
            let all = COLLECTORS.iter().map(|entry| (entry.name.to_owned(), false));
            flags.switched.extend(all);
        }
        for entry in COLLECTORS {
            let [on, off] = on_off_names(entry.name);
            if matches.get_flag(&on) || matches.get_flag(&off) {
                flags
                    .switched
                    .insert(entry.name.to_owned(), matches.get_flag(&on));
            }
            for flag in entry.flags {
                let name = long_name(entry.name, flag);
                let values = match flag.setting_type {
                    SettingType::Switch => [(&name, "true"), (&format!("no-{name}"), "false")]
                        .iter()
                        .find(|(name, _)| matches.get_flag(name))
                        .map(|(_, word)| vec![(*word).to_owned()]),
                    SettingType::Text | SettingType::Texts => matches
                        .get_many::<String>(&name)
                        .map(|values| values.cloned().collect()),
                };
                flags
                    .overrides
                    .extend(values.map(|values| (entry.name, *flag, values)));
            }
        }
        flags
    }

    /// Returns `settings` with the values of the flags in place of its own. Does not apply
    /// [`CollectorFlags::switched`].
    ///
    /// # Errors
    /// A value of a flag is invalid for its setting.
    pub fn apply_to(&self, settings: &MetricsSettings) -> Result<MetricsSettings, FlagError> {
        let mut settings = settings.clone();
        for (collector, flag, values) in &self.overrides {
            let error = |reason| FlagError {
                flag: long_name(collector, flag),
                reason,
            };
            let mut tree = serde_json::to_value(&settings).map_err(error)?;
            let section = tree.as_object_mut().map(|tree| {
                tree.entry(*collector)
                    .or_insert_with(|| Value::Object(Map::new()))
            });
            if let Some(Value::Object(section)) = section {
                let value = match flag.setting_type {
                    SettingType::Switch => Value::Bool(values.last().is_some_and(|word| word == "true")),
                    SettingType::Text => values.last().map_or(Value::Null, |text| text.as_str().into()),
                    SettingType::Texts => values.iter().map(String::as_str).collect(),
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
    fn every_flag_changes_a_setting_of_its_type() {
        for entry in COLLECTORS {
            for flag in entry.flags {
                let name = long_name(entry.name, flag);
                let line = match flag.setting_type {
                    SettingType::Switch => format!("a --{name}"),
                    SettingType::Text if flag.key.ends_with("Timeout") => format!("a --{name} 3s"),
                    SettingType::Text | SettingType::Texts => format!("a --{name} x"),
                };
                let applied = |line: &str, settings: &MetricsSettings| {
                    let result = parse(line).apply_to(settings);
                    result.unwrap_or_else(|error| panic!("{line}: {error}"))
                };
                let settings = applied(&line, &MetricsSettings::default());
                assert_ne!(settings, MetricsSettings::default(), "{line}");
                if flag.setting_type == SettingType::Switch {
                    assert_ne!(applied(&format!("a --no-{name}"), &settings), settings, "{line}");
                }
            }
        }
    }

    #[test]
    fn an_error_for_an_invalid_value_names_its_flag() {
        let flags = CollectorFlags {
            overrides: vec![(
                "filesystem",
                Flag::text("mount-timeout", "mountTimeout"),
                vec!["soon".to_owned()],
            )],
            ..CollectorFlags::default()
        };
        let result = flags.apply_to(&MetricsSettings::default());
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with("--collector.filesystem.mount-timeout: "),
            "{error}"
        );
    }
}
