//! The command line of virtfleet-collector.

use std::{io::Write as _, path::PathBuf};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde::de::DeserializeOwned;
use virtfleet_runtime::exit::Code;
use virtfleet_wire::{
    layered::{Fragment, to_yaml},
    settings::{LogFormat, LogLevel},
};

use crate::{
    config::CollectorConfig,
    doctor::{self, CheckStatus},
    objects, serve,
};

/// The collector on the infra cluster: joins every VM with its placement and hears every agent.
#[derive(Debug, Parser)]
#[command(name = "virtfleet-collector", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Watch the inventory, pull every agent, serve the answers.
    Serve(Serve),
    /// Validate the settings and the files that they name: certificates, keys, kubeconfig, folder. Every problem is named with
    /// file, key and what to do.
    CheckConfig(CheckConfig),
    /// Check settings, certificates, API server, rights, definitions, Lease and ports; each line with the next command.
    Doctor(Doctor),
    /// Print the JSON Schema of the settings.
    Schema,
    /// Print the definitions of our Kubernetes objects, for `kubectl apply -f -`.
    Crds(Crds),
}

#[derive(Debug, Args)]
struct CheckConfig {
    #[command(flatten)]
    file: ConfigFile,
    /// Validate the text alone, e.g. where the files are not mounted.
    #[arg(long)]
    no_files: bool,
}

#[derive(Debug, Args)]
struct Doctor {
    #[command(flatten)]
    file: ConfigFile,
    /// text, json or yaml.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "yaml"])]
    output: String,
}

#[derive(Debug, Args)]
struct Crds {
    /// yaml, or json (one List).
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml", value_parser = ["yaml", "json"])]
    output: String,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    /// The least level that is logged, over the settings: error, warn, info, debug, trace.
    #[arg(long = "log.level", value_name = "LEVEL", value_parser = word::<LogLevel>)]
    log_level: Option<LogLevel>,
    /// text, json or auto (text on a terminal, JSON elsewhere), over the settings.
    #[arg(long = "log.format", value_name = "FORMAT", value_parser = word::<LogFormat>)]
    log_format: Option<LogFormat>,
}

/// A word as the settings have it.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(text.into())
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The settings file.
    #[arg(long, value_name = "FILE", default_value = "/etc/virtfleet/collector.yaml")]
    config: PathBuf,
}

/// The command line as clap knows it; completions and man pages are made from this.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the process's command line and does what it says.
pub fn main() -> Code {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    match cli.verb {
        Verb::Serve(wanted) => match load(&wanted.file) {
            Ok(mut config) => {
                let log = &mut config.log;
                log.level = wanted.log_level.unwrap_or(log.level);
                log.format = wanted.log_format.unwrap_or(log.format);
                serve::serve(&config)
            }
            Err(code) => code,
        },
        Verb::CheckConfig(wanted) => check_config(&wanted),
        Verb::Doctor(wanted) => examine(&wanted),
        Verb::Schema => {
            say(&serde_json::to_string_pretty(&CollectorConfig::schema()).unwrap_or_default());
            Code::Ok
        }
        Verb::Crds(wanted) => {
            let text = match wanted.output.as_str() {
                "json" => objects::crds_json(),
                _ => objects::crds_yaml(),
            };
            say(text.trim_end());
            Code::Ok
        }
    }
}

fn check_config(wanted: &CheckConfig) -> Code {
    let config = match load(&wanted.file) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let path = wanted.file.config.display();
    if !wanted.no_files {
        let lines = match block_on(doctor::files(&config)) {
            Ok(lines) => lines,
            Err(code) => return code,
        };
        for line in lines.iter().filter(|line| line.status != CheckStatus::Ok) {
            let word = if line.status == CheckStatus::Warn {
                "warning: "
            } else {
                ""
            };
            complain(&format!(
                "{word}{path}: {}: {}; try: {}",
                line.what, line.detail, line.next
            ));
        }
        if doctor::any_failed(&lines) {
            return Code::Config;
        }
    }
    say(&format!("{path}: ok"));
    Code::Ok
}

fn examine(wanted: &Doctor) -> Code {
    let config = match load(&wanted.file) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let lines = match block_on(doctor::check(&config, &wanted.file.config.display().to_string())) {
        Ok(lines) => lines,
        Err(code) => return code,
    };
    match wanted.output.as_str() {
        "json" => say(&serde_json::to_string_pretty(&lines).unwrap_or_default()),
        "yaml" => say(to_yaml(&serde_json::to_value(&lines).unwrap_or_default()).trim_end()),
        _ => drop(write!(anstream::stdout().lock(), "{}", doctor::text(&lines))),
    }
    if doctor::any_failed(&lines) {
        Code::Failure
    } else {
        Code::Ok
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Code> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        complain(&format!("cannot start: {error}"));
        Code::Failure
    })?;
    Ok(runtime.block_on(work))
}

/// Every problem is a line on standard error. The collector starts only with settings that are right in every word: what it
/// does to others hangs on them.
fn load(file: &ConfigFile) -> Result<CollectorConfig, Code> {
    let path = file.config.display();
    let text = std::fs::read_to_string(&file.config).map_err(|error| {
        complain(&format!(
            "cannot read the settings {path}: {error}; name the file with --config"
        ));
        Code::Config
    })?;
    let loaded = CollectorConfig::load(&[Fragment {
        file: path.to_string(),
        text,
    }]);
    for problem in &loaded.problems {
        complain(&problem.to_string());
    }
    if loaded.problems.is_empty() {
        Ok(loaded.value)
    } else {
        Err(Code::Config)
    }
}

fn say(text: &str) {
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

pub(crate) fn complain(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "virtfleet-collector: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_and_the_log_flags_take_the_settings_words() {
        command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.verb);
        let Verb::Serve(wanted) = parse("c serve --log.level debug --log.format json").unwrap() else {
            panic!()
        };
        assert_eq!(
            (wanted.log_level, wanted.log_format),
            (Some(LogLevel::Debug), Some(LogFormat::Json))
        );
        let error = parse("c serve --log.level loud").unwrap_err().to_string();
        assert!(
            error.contains("--log.level") && error.contains("debug"),
            "{error}"
        );
    }
}
