//! The health of mounted disks: what a run adds to the state, and its findings.

use std::{sync::Arc, time::Duration};

use virtfleet_agent_core::disks::{
    health::{self, Health},
    state::{DiskState, DisksState},
};
use virtfleet_agent_host::{Asked, DiskHealth, Kernel, clock};
use virtfleet_wire::finding::Finding;

use super::provisioner::DiskProvisioner;

/// Time limit for all filesystems together.
const FILESYSTEMS_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds the health of the disks, and continues the history that the earlier state has of the same
/// filesystems.
pub(super) fn add(
    provisioner: &DiskProvisioner<'_>,
    disks: &mut [DiskState],
    previous: &DisksState,
) -> Vec<Finding> {
    let at = clock().boottime_ns;
    let all: Vec<Asked<'_>> = disks.iter().map(Asked::from).collect();
    let looks = match DiskHealth::new(Arc::new(Kernel), FILESYSTEMS_TIMEOUT).inspect(provisioner.roots, &all)
    {
        Ok(looks) => looks,
        Err(error) => {
            tracing::warn!(%error, "the health of the disks is unknown");
            return Vec::new();
        }
    };
    for (disk, look) in disks.iter_mut().zip(looks) {
        let before = previous.disks.iter().find(|before| {
            before.name == disk.name && before.uuid == disk.uuid && before.device == disk.device
        });
        let before = before.and_then(|before| before.health.as_ref());
        disk.health = look.map(|look| Health::after(before, look, at));
    }
    disks.iter().flat_map(health::findings::findings).collect()
}
