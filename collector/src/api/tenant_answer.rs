//! Revision of an answer for a caller that may see a part of the fleet: a hash of the answer.
//!
//! The fleet's revision counts the changes of all tenants, so it would show how many VMs others
//! have, and how busy they are.

use std::{
    hash::{DefaultHasher, Hasher as _},
    sync::Arc,
    time::Duration,
};

use super::{error::ApiError, reply::Reply, route::ApiRequest};

/// Minimum interval between two answers that a long poll compares: each is made completely.
pub(super) const COMPARE_INTERVAL: Duration = Duration::from_secs(1);

/// Largest revision: every JSON reader keeps such a number exactly.
const MAX_REVISION: u64 = (1 << 53) - 1;

/// The reply of `handler` with its revision, which the reply contains.
pub(super) fn with_revision(
    mut request: ApiRequest,
    handler: fn(&ApiRequest) -> Result<Reply, ApiError>,
) -> Result<(Reply, u64), ApiError> {
    Arc::make_mut(&mut request.snapshot).revision = 0;
    let reply = handler(&request)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(reply.bytes());
    let revision = (hasher.finish() & MAX_REVISION).max(1);
    Arc::make_mut(&mut request.snapshot).revision = revision;
    Ok((handler(&request)?, revision))
}
