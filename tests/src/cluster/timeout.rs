//! Timeout of the servers of a control plane.

use std::time::Duration;

/// Maximum time for a server to start, to answer or to apply a change, on a machine that is busy
/// with other tests.
pub const SERVER_TIMEOUT: Duration = Duration::from_mins(2);
