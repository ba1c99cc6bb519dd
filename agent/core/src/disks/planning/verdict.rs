//! What follows for a disk from its content.

use super::super::journal::Evidence;

/// Decision for a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Make the filesystem or the container.
    Make {
        /// Evidence that the disk may be formatted.
        evidence: Evidence,
        /// Whether an unfinished `mkfs` of the agent is cleared first.
        clear: bool,
    },
    /// Use what is on the disk.
    Take {
        /// UUID of the existing filesystem or container.
        uuid: String,
        /// Whether the agent has just made it, so that nothing was written to it yet.
        fresh: bool,
    },
}

/// blkid's name for a LUKS container.
pub(super) const LUKS: &str = "crypto_LUKS";
