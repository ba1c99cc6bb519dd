//! How long a server is waited for.

use std::time::Duration;

/// How long a start may take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_mins(2);
