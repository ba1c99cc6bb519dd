//! The command line: words in, one verb out. Parsing has no effects.

mod args;
mod disk_args;
mod disks;
mod print;
mod verbs;

pub use args::{Args, Verb, command};
pub use disks::DisksVerb;

use virtfleet_runtime::exit::Code;

/// Parses the process's command line and does what it says.
pub fn main() -> Code {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    match verbs::run(&Args::from_matches(&matches)) {
        Ok(code) => code,
        Err(failure) => {
            // `{:#}` says the whole chain of reasons in one line.
            print::complain(&format!("{:#}", failure.error));
            failure.code
        }
    }
}
