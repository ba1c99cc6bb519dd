//! The command line: parses arguments into one verb and runs it. Parsing has no effects.

mod apply;
mod args;
mod check_config;
mod collector_flags;
mod compat;
mod disk_args;
mod disks;
mod disks_text;
mod dns;
mod dns_text;
mod failure;
mod nic;
mod plan;
mod plan_file;
mod print;
mod rows;
mod verb;
mod verbs;
mod virtio;
mod virtio_text;

pub use args::command;
pub use collector_flags::{CollectorFlags, FlagError};
pub use compat::translate;
pub use verb::{ApplyOptions, Args, DisksVerb, Domain, Subjects, Verb};

use clap::error::{ContextKind, ContextValue};
use virtfleet_agent_host::{outlive, require};
use virtfleet_runtime::exit::Code;

/// Parses the process's command line and runs its verb.
pub fn main() -> Code {
    let (arguments, left_out) = translate(std::env::args_os());
    for line in left_out {
        print::complain(&line);
    }
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            drop(error.print());
            if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
                && let Some(hint) = compat::hint(argument)
            {
                print::complain(&hint);
            }
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    let args = Args::from_matches(&matches);
    // An admin who names a file wants that file, not the defaults.
    if let Some(config) = &args.config
        && let Err(error) = require(config)
    {
        let config = config.display();
        print::complain(&format!(
            "--config {config}: {error}; name a settings file, or leave --config out"
        ));
        return Code::Config;
    }
    let verb = || match verbs::run(&args) {
        Ok(code) => code,
        Err(failure) => {
            // `{:#}` prints the whole error chain in one line.
            print::complain(&format!("{:#}", failure.error));
            failure.code
        }
    };
    if args.verb.reads_disks() {
        outlive(verb, print::complain)
    } else {
        verb()
    }
}
