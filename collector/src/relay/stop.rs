//! The two stages in which a connection of the relay ends at a shutdown.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Maximum pause of a connection during a shutdown: a pull in progress ends, a kept connection is
/// closed.
pub(super) const DRAIN_IDLE: Duration = Duration::from_millis(500);

/// Tokens for all connections; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct RelayStop {
    /// Accept no connection; close those that are idle for [`DRAIN_IDLE`].
    pub(super) drain: CancellationToken,
    /// Close all connections.
    pub(super) cut: CancellationToken,
}
