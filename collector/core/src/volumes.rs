//! Volumes of a VM that a PersistentVolumeClaim backs: which VM waits for them, which objects are
//! worth a request, and what was read. Pure; `collector/src/volumes` sends the requests.
//!
//! ```text
//! VM, VMI ─▶ wait ─▶ schedule ─▶ (requests) ─▶ answer ─▶ health::volumes
//! ```
//! Claims and DataVolumes are not watched (`docs/decisions/0054-volumes-on-demand.md`).

mod answer;
mod claim_reads;
mod schedule;
mod wait;

use virtfleet_wire::ids::{ClaimName, VmKey};

use crate::pull_result::UnixMs;

pub use answer::{ClaimState, DataVolumeState, ReadAnswer, ReadVolume, ReadVolumes};
pub(crate) use claim_reads::ClaimReads;
pub(crate) use schedule::{REREAD_AFTER_MS, WaitingVm, choose};
pub(crate) use wait::{VolumeWait, wait_of};

/// Maximum volumes kept of one VM, and maximum volumes that are read for it.
pub const MAX_CLAIM_VOLUMES: usize = 8;

/// A volume of a VM that a claim backs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimVolume {
    /// The claim, in the namespace of the VM.
    pub claim: ClaimName,
    /// The volume names a DataVolume, whose name its claim shares.
    pub is_data_volume: bool,
}

/// A hot-plugged volume that is not ready: an item of `status.volumeStatus` of a VMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluggingVolume {
    pub name: Box<str>,
    /// `phase`, e.g. `AttachedToNode`; empty if it has none yet.
    pub phase: Box<str>,
    /// `message`, else `reason`.
    pub said: Option<Box<str>>,
    pub claim: Option<ClaimName>,
}

/// A hot-plugged volume that is not ready, and since when the collector has seen it so: KubeVirt
/// says no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenPlugging {
    pub(crate) name: Box<str>,
    pub(crate) since_ms: UnixMs,
    /// It was so when the collector saw the VM first, and may have been for long.
    pub(crate) is_older: bool,
}

impl SeenPlugging {
    /// The volumes of `now`, with the times of those that are among `before`. With `is_first`, the
    /// collector sees the VM for the first time.
    pub(crate) fn after(
        before: &[Self],
        now: &[PluggingVolume],
        now_ms: UnixMs,
        is_first: bool,
    ) -> Box<[Self]> {
        let seen = now.iter().map(|one| {
            let known = before.iter().find(|known| known.name == one.name);
            known.cloned().unwrap_or_else(|| Self {
                name: one.name.clone(),
                since_ms: now_ms,
                is_older: is_first,
            })
        });
        seen.collect()
    }
}

impl ClaimVolume {
    /// Number of requests that read it.
    pub(crate) fn requests(&self) -> usize {
        1 + usize::from(self.is_data_volume)
    }
}

/// A VM whose volumes are to be read, in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesToRead {
    pub vm: VmKey,
    /// Its volumes, at most [`MAX_CLAIM_VOLUMES`].
    pub volumes: Box<[ClaimVolume]>,
}
