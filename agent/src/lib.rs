//! virtfleet-agent as a library: `main` only calls this.
//!
//! ```text
//! host (the guest's files and calls) ─▶ identity, metrics ─▶ report, page ─▶ server ─▶ HTTPS
//!                    settings ─────────────────┴───────────────┘          └▶ cli (one scrape, one report, doctor)
//! provision (root: passes of steps) ─▶ /run/virtfleet/state ─▶ report
//! ```

pub mod cli;
pub mod dns_watch;
pub mod doctor;
pub mod host;
pub mod identity;
pub mod install;
pub mod metrics;
pub mod output;
pub mod pause;
pub mod provision;
pub mod report;
pub mod run;
pub mod server;
pub mod settings;
pub mod virtio;

/// The agent's version: that of the package, with `-dev` in a debug build, so that nobody takes one for a release.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), "-dev")
} else {
    env!("CARGO_PKG_VERSION")
};
