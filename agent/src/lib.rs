//! virtfleet-agent as a library: `main` only parses the command line and calls this.

pub mod host;
pub mod metrics;
