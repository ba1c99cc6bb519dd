//! The CLI; also `kubectl virtfleet` when it is installed as `kubectl-virtfleet`.

use std::process::ExitCode;

fn main() -> ExitCode {
    virtfleet_collector::ctl::main(std::env::args_os())
}
