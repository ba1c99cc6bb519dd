//! Volumes of a VM that a PersistentVolumeClaim backs: which VM waits for them, which objects are
//! worth a request, and what was read. Pure; `collector/src/volumes` sends the requests.
//!
//! ```text
//! VM, VMI ─▶ wait ─▶ schedule ─▶ (requests) ─▶ answer ─▶ health::volumes
//! ```
//! Claims and DataVolumes are not watched (`docs/decisions/0054-volumes-on-demand.md`).

mod answer;
mod schedule;
mod wait;

use virtfleet_wire::ids::{ClaimName, VmKey};

pub use answer::{ClaimState, DataVolumeState, ReadAnswer, ReadVolume, ReadVolumes};
pub(crate) use schedule::{WaitingVm, choose};
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

impl ClaimVolume {
    /// Number of requests that read it.
    pub(crate) fn requests(&self) -> usize {
        1 + usize::from(self.is_data_volume)
    }
}

/// A VM whose volumes are to be read, in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesToRead {
    /// The VM.
    pub vm: VmKey,
    /// Its volumes, at most [`MAX_CLAIM_VOLUMES`].
    pub volumes: Box<[ClaimVolume]>,
}
