//! The clock of the label writer.

use std::time::Instant;

/// Time of tokio's clock, which tests can pause.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
