//! virtfleet-agent as a library: `main` only calls this.
//!
//! ```text
//! host (the guest's files and calls) ─▶ identity, metrics ─▶ report, page ─▶ server ─▶ HTTPS
//!                    settings ─────────────────┴───────────────┘          └▶ cli (one scrape, one report, doctor)
//! ```

pub mod cli;
pub mod doctor;
pub mod host;
pub mod identity;
pub mod install;
pub mod metrics;
pub mod output;
pub mod report;
pub mod run;
pub mod server;
pub mod settings;
