//! Limits of reading for a drain.

use std::time::Duration;

/// Maximum requests of one drain at the same time, and maximum user clusters.
pub(super) const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Maximum time for the infra cluster, and for each user cluster.
pub(super) const CLUSTER_TIMEOUT: Duration = Duration::from_secs(5);
