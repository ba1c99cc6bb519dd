//! When the claims of a VM that runs are read: such a VM waits for nothing.

use super::ReadVolumes;
use crate::pull_result::UnixMs;

/// Time after which the claims of a VM that runs are read again, in milliseconds.
const REREAD_RUNNING_AFTER_MS: u64 = 600_000;
/// The same after a request that failed: it says nothing.
const REREAD_FAILED_AFTER_MS: u64 = 60_000;

/// Reads of the claims of a VM that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClaimReads {
    /// The time of the last one.
    pub(crate) at_ms: Option<UnixMs>,
    /// When they are to be read again.
    pub(crate) due_ms: UnixMs,
    /// The collector may not read them: the manifest that grants the right.
    pub(crate) denied: Option<&'static str>,
}

impl ClaimReads {
    /// After this read at `now_ms`.
    pub(crate) fn then(self, read: &ReadVolumes, now_ms: UnixMs) -> Self {
        let has_failed = read.has_failed();
        let pause_ms = if has_failed {
            REREAD_FAILED_AFTER_MS
        } else {
            REREAD_RUNNING_AFTER_MS
        };
        Self {
            at_ms: Some(now_ms),
            due_ms: now_ms.saturating_add(pause_ms),
            denied: if read.is_denied() {
                Some(read.manifest)
            } else {
                // A request that failed says nothing about rights.
                self.denied.filter(|_| has_failed)
            },
        }
    }
}
