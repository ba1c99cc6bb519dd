//! virtfleet-collector: the collector on the infra cluster.

use virtfleet_runtime::exit::Code;

fn main() -> Code {
    virtfleet_collector::cli::main()
}
