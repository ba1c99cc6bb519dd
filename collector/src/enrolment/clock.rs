//! The wall clock, for certificates.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
