//! How the disks that are in their places are doing: what a pass adds to the state, and what it finds.

use std::{sync::Arc, time::Duration};

use virtfleet_agent_core::disks::{
    health::{self, Health},
    state::{DiskState, DisksState},
};
use virtfleet_agent_host::{Asked, DiskHealth, Kernel, clock};
use virtfleet_wire::finding::Finding;

use super::provisioner::DiskProvisioner;

/// How long all filesystems together may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Looks at the disks, and goes on with what the state before knew of the very same filesystems.
pub(super) fn add(
    provisioner: &DiskProvisioner<'_>,
    disks: &mut [DiskState],
    previous: &DisksState,
) -> Vec<Finding> {
    let at = clock().boottime_ns;
    let all: Vec<Asked<'_>> = disks.iter().map(Asked::from).collect();
    let looks = match DiskHealth::new(Arc::new(Kernel), TIMEOUT).inspect(provisioner.roots, &all) {
        Ok(looks) => looks,
        Err(error) => {
            tracing::warn!(%error, "how the disks are doing is not known");
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
