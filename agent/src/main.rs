//! virtfleet-agent: the agent in every KubeVirt VM.

use virtfleet_runtime::exit::Code;

fn main() -> Code {
    virtfleet_agent::cli::main()
}
