//! Command line of virtfleet-collector.

pub(crate) use super::print::print_error;
use std::{io::Write as _, path::PathBuf};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde::de::DeserializeOwned;
use virtfleet_runtime::exit::Code;
use virtfleet_wire::{
    layered::{Fragment, to_yaml},
    settings::{LogFormat, LogLevel, LogSettings},
};

use crate::{
    config::CollectorConfig,
    doctor::{self, CheckStatus},
    gardener::{self, GardenerArgs},
    objects,
    relay::{self, RelayArgs},
    serve,
};

/// Collector on the infra cluster: joins each VM with its placement and pulls its agent.
#[derive(Debug, Parser)]
#[command(name = "virtfleet-collector", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the inventory, pull all agents and serve the API.
    Serve(Serve),
    /// Pass connections between the collector and the VMs of a tenant's network: TLS stays between
    /// collector and agent. Runs in that network, e.g. in the tenant's namespace.
    Relay(Relay),
    /// Add the agent to machines of Gardener's shoots: an admission webhook for
    /// OperatingSystemConfigs. Runs on the seed.
    GardenerWebhook(GardenerWebhook),
    /// Validate the settings and the files that they name: certificates, keys, kubeconfig, folder.
    /// Each problem has file, key and the next command.
    CheckConfig(CheckConfig),
    /// Check settings, certificates, API server, rights, definitions, Lease and ports; each result
    /// has the next command.
    Doctor(Doctor),
    /// Print the JSON Schema of the settings.
    Schema,
    /// Print the CustomResourceDefinitions, for `kubectl apply -f -`.
    Crds(Crds),
}

#[derive(Debug, Args)]
struct CheckConfig {
    #[command(flatten)]
    file: ConfigFile,
    /// Validate only the text, e.g. where the files are not mounted.
    #[arg(long)]
    no_files: bool,
}

#[derive(Debug, Args)]
struct Doctor {
    #[command(flatten)]
    file: ConfigFile,
    /// Output format: text, json or yaml.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "yaml"])]
    output: String,
}

#[derive(Debug, Args)]
struct Crds {
    /// Output format: yaml, or json (one List).
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml", value_parser = ["yaml", "json"])]
    output: String,
}

#[derive(Debug, Args)]
struct Relay {
    #[command(flatten)]
    relay: RelayArgs,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Args)]
struct GardenerWebhook {
    #[command(flatten)]
    webhook: GardenerArgs,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Args)]
struct LogFlags {
    /// Minimum level of log messages: error, warn, info, debug, trace. Overrides the setting
    /// log.level.
    #[arg(long = "log.level", value_name = "LEVEL", value_parser = setting_value::<LogLevel>)]
    log_level: Option<LogLevel>,
    /// Format of log messages: text, json or auto (text on a terminal, else JSON). Overrides the
    /// setting log.format.
    #[arg(long = "log.format", value_name = "FORMAT", value_parser = setting_value::<LogFormat>)]
    log_format: Option<LogFormat>,
}

impl LogFlags {
    fn override_settings(&self, log: &mut LogSettings) {
        log.level = self.log_level.unwrap_or(log.level);
        log.format = self.log_format.unwrap_or(log.format);
    }
}

/// Parses a value as in the settings.
fn setting_value<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(text.into())
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The settings file.
    #[arg(long, value_name = "FILE", default_value = "/etc/virtfleet/collector.yaml")]
    config: PathBuf,
}

/// The clap command; completions and man pages are generated from it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the process's command line and runs the command.
pub fn main() -> Code {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    match cli.verb {
        Command::Serve(args) => match load(&args.file) {
            Ok(mut config) => {
                args.log.override_settings(&mut config.log);
                serve::serve(&config, &args.file.config)
            }
            Err(code) => code,
        },
        Command::Relay(args) => run_relay(&args),
        Command::GardenerWebhook(args) => run_gardener_webhook(&args),
        Command::CheckConfig(args) => check_config(&args),
        Command::Doctor(args) => run_doctor(&args),
        Command::Schema => {
            print(&serde_json::to_string_pretty(&CollectorConfig::schema()).unwrap_or_default());
            Code::Ok
        }
        Command::Crds(args) => {
            let text = match args.output.as_str() {
                "json" => objects::crds_json(),
                _ => objects::crds_yaml(),
            };
            print(text.trim_end());
            Code::Ok
        }
    }
}

fn run_relay(args: &Relay) -> Code {
    if args.relay.check {
        print("relay: ok");
        return Code::Ok;
    }
    let mut log = LogSettings::default();
    args.log.override_settings(&mut log);
    relay::run(&args.relay, &log)
}

fn run_gardener_webhook(args: &GardenerWebhook) -> Code {
    if args.webhook.check {
        let code = gardener::check(&args.webhook);
        if code == Code::Ok {
            print("gardener-webhook: ok");
        }
        return code;
    }
    let mut log = LogSettings::default();
    args.log.override_settings(&mut log);
    gardener::run(&args.webhook, &log)
}

fn check_config(args: &CheckConfig) -> Code {
    let config = match load(&args.file) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let path = args.file.config.display();
    if !args.no_files {
        let results = match block_on(doctor::files(&config)) {
            Ok(results) => results,
            Err(code) => return code,
        };
        for line in results.iter().filter(|line| line.status != CheckStatus::Ok) {
            let setting_value = if line.status == CheckStatus::Warn {
                "warning: "
            } else {
                ""
            };
            print_error(&format!(
                "{setting_value}{path}: {}: {}; try: {}",
                line.what, line.detail, line.next
            ));
        }
        if doctor::any_failed(&results) {
            return Code::Config;
        }
    }
    print(&format!("{path}: ok"));
    Code::Ok
}

fn run_doctor(args: &Doctor) -> Code {
    let config = match load(&args.file) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let results = match block_on(doctor::check(&config, &args.file.config.display().to_string())) {
        Ok(results) => results,
        Err(code) => return code,
    };
    match args.output.as_str() {
        "json" => print(&serde_json::to_string_pretty(&results).unwrap_or_default()),
        "yaml" => print(to_yaml(&serde_json::to_value(&results).unwrap_or_default()).trim_end()),
        _ => drop(write!(anstream::stdout().lock(), "{}", doctor::text(&results))),
    }
    if doctor::any_failed(&results) {
        Code::Failure
    } else {
        Code::Ok
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Code> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        print_error(&format!("cannot start: {error}"));
        Code::Failure
    })?;
    Ok(runtime.block_on(work))
}

/// Loads the settings; prints each problem as a line on standard error. The collector starts only
/// with valid settings, because wrong ones would affect other clusters.
fn load(file: &ConfigFile) -> Result<CollectorConfig, Code> {
    let path = file.config.display();
    let text = std::fs::read_to_string(&file.config).map_err(|error| {
        print_error(&format!(
            "cannot read the settings {path}: {error}; name the file with --config"
        ));
        Code::Config
    })?;
    let loaded = CollectorConfig::load(&[Fragment {
        file: path.to_string(),
        text,
    }]);
    for problem in &loaded.problems {
        print_error(&problem.to_string());
    }
    if loaded.problems.is_empty() {
        Ok(loaded.value)
    } else {
        Err(Code::Config)
    }
}

fn print(text: &str) {
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_valid_and_log_flags_accept_setting_values() {
        command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.verb);
        let Command::Serve(args) = parse("c serve --log.level debug --log.format json").unwrap() else {
            panic!()
        };
        assert_eq!(
            (args.log.log_level, args.log.log_format),
            (Some(LogLevel::Debug), Some(LogFormat::Json))
        );
        let Command::Relay(args) = parse("c relay --connect.allow-cidrs 10.0.0.0/8,fd00::/8").unwrap() else {
            panic!()
        };
        assert_eq!((args.relay.allow.len(), args.relay.port), (2, 10911));
        for wrong in [
            "c relay",
            "c relay --connect.allow-cidrs 10.0.0.0",
            "c relay --connect.allow-cidrs 10.0.0.0/8 --connect.port 0",
            "c relay --connect.allow-cidrs 10.0.0.0/8 --forward.collector https://a:1",
            "c relay --connect.allow-cidrs 10.0.0.0/8 --idle-timeout 0s",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let Command::GardenerWebhook(args) = parse("c gardener-webhook --agent.image a:1").unwrap() else {
            panic!()
        };
        assert_eq!(args.webhook.address.port(), 10916);
        assert!(parse("c gardener-webhook").is_err());
        let error = parse("c serve --log.level loud").unwrap_err().to_string();
        assert!(
            error.contains("--log.level") && error.contains("debug"),
            "{error}"
        );
    }
}
