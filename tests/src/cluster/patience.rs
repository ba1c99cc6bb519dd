//! Timeout of a server's start.

use std::time::Duration;

/// Timeout of a server's start on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_mins(2);
