//! Limits of files and programs that an observation reads.

use std::time::Duration;

/// Maximum number of bytes read from one file.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;

/// Maximum run time of a program that is only queried.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
