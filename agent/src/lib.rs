//! virtfleet-agent as a library, which `main` calls: the command line, the start of the daemon, and
//! the installer. All other code is in the crates below. Only the verbs for root (`apply`, `plan`)
//! use `virtfleet-agent-provision`.
//!
//! ```text
//! core (decides) ◀─ host (touches the guest) ◀─ state (settings and state files, identity, virtio)
//! state ◀─┬─ metrics ◀─ service ◀─┬─ agent
//!         └─ provision ◀──────────┘
//! ```

pub mod cli;
pub mod install;
pub mod output;
pub mod run;
