//! virtfleet-agent as a library: `main` only calls this. The command line, the daemon's start, and the installer; everything
//! else is in the crates below. Only the verbs that root runs (`apply`, `plan`) reach `virtfleet-agent-provision`.
//!
//! ```text
//! core (decides) ◀─ host (touches the guest) ◀─ state (settings and state files, identity, virtio) ◀─┬─ metrics ◀─ service ◀─┬─ agent
//!                                                                                                    └─ provision ◀──────────┘
//! ```

pub mod cli;
pub mod install;
pub mod output;
pub mod run;
