//! Sends the samples of simulated guests to real receivers, while receivers, networks, the disk and
//! the collector fail. Then compares what the receivers stored with what the collector counted.
//!
//! ```text
//! guests ─▶ collector ─▶ proxy of each tenant ─▶ receivers: Prometheus, VictoriaMetrics (tenants by header)
//!    ▲          ▲                 ▲                  ▲
//!    └──────────┴── schedule ─────┴──────────────────┘      afterwards: check
//! ```

mod check;
mod disk;
mod manifest;
mod overflow;
mod proxy;
mod receiver;
mod remote_read;
mod report;
mod run;
mod schedule;
mod stored;

use std::time::Duration;

use anyhow::Result;

pub use report::{Report, TenantRow};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Number of user clusters.
    pub tenants: usize,
    /// VMs of each user cluster.
    pub vms: usize,
    /// Duration of the faults.
    pub length: Duration,
    /// Number of kills of the collector; the other faults follow from it.
    pub kills: usize,
    /// Number of Prometheus receivers. There is one `VictoriaMetrics` besides.
    pub prometheus: usize,
    /// Scrape interval.
    pub interval: Duration,
    /// Seed of guests and faults.
    pub seed: u64,
    /// Whether a tenant's queue overflows at the end, which takes a minute or more.
    pub overflow: bool,
    /// Whether each fault is printed when it begins.
    pub verbose: bool,
}

/// Runs it and returns what was found.
pub fn run(options: SoakOptions) -> Result<Report> {
    let mut soak = run::Soak::start(options)?;
    soak.quiet_phase()?;
    soak.fail()?;
    if soak.options.overflow {
        soak.overflow()?;
    }
    soak.finish()
}
