//! Why a query of the network failed.

use nix::errno::Errno;

/// Maximum number of attempts for a dump that concurrent changes interrupt.
pub(super) const MAX_ATTEMPTS: u32 = 6;

/// Maximum number of entries of a dump.
pub(super) const MAX_ENTRIES: usize = 1 << 17;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("{0}")]
    Refused(#[from] Errno),
    /// Every dump was interrupted by a concurrent change.
    #[error("it changed during each of {MAX_ATTEMPTS} reads")]
    Unsteady,
    #[error("it has more than {MAX_ENTRIES} entries")]
    TooMany,
}
