//! The limit on open files: one for each connection.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::view::FleetSnapshot;
use virtfleet_runtime::process::raise_file_limit;

use crate::fleet::{Fleet, FleetRead as _};

/// Open files beside those of connections: listeners, probes, the runtime.
pub(crate) const OTHER_FILES: u64 = 128;
/// Open files of the collector beside those of agents: callers of its API (512), watches of
/// clusters, files.
const COLLECTOR_FILES: u64 = 512 + 512 + OTHER_FILES;
/// Minimum interval between two comparisons with the fleet.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Raises the soft limit on open files to the hard limit, and returns it. None, with a warning, if
/// that fails.
pub(crate) fn raised_limit() -> Option<u64> {
    raise_file_limit()
        .inspect_err(|error| tracing::warn!(%error, "the limit on open files cannot be raised"))
        .ok()
}

/// Number of agents that a collector with this limit can keep connections to.
pub(crate) fn max_agents(limit: u64) -> u64 {
    limit.saturating_sub(COLLECTOR_FILES)
}

/// Number of VMs with an agent, if the limit is too low for them.
fn exceeding(fleet: &FleetSnapshot, limit: u64) -> Option<u64> {
    let vms = u64::try_from(fleet.vms.len()).unwrap_or(u64::MAX);
    (vms > max_agents(limit)).then_some(vms)
}

/// Warns each time that the fleet becomes larger than the limit allows. Returns when the fleet is
/// dropped.
pub(crate) async fn watch(fleet: Arc<Fleet>, limit: u64) -> anyhow::Result<()> {
    let mut revisions = fleet.revisions();
    let mut warned = false;
    loop {
        match exceeding(&fleet.snapshot(), limit) {
            Some(vms) if !warned => {
                warned = true;
                tracing::warn!(
                    limit,
                    vms,
                    max_agents = max_agents(limit),
                    "the limit on open files is too low for the fleet: raise it (LimitNOFILE= of the unit, or that \
                     of the container runtime)"
                );
            }
            Some(_) => {}
            None => warned = false,
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
        if revisions.changed().await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;

    #[test]
    fn a_limit_below_the_size_of_the_fleet_is_noticed() {
        let fleet = testing::fleet();
        let vms = u64::try_from(fleet.vms.len()).unwrap();
        assert!(vms > 0);
        assert_eq!(exceeding(&fleet, COLLECTOR_FILES + vms), None);
        assert_eq!(exceeding(&fleet, COLLECTOR_FILES + vms - 1), Some(vms));
        assert_eq!(exceeding(&fleet, 0), Some(vms));
    }
}
