//! Revision of an answer that is a hash of the answer: for a caller that may see a part of the
//! fleet, and for state that the fleet's revision does not count.
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
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval is at least so many times as long as it takes to make an answer.
const COMPARE_SHARE: u32 = 50;
const MAX_COMPARE_INTERVAL: Duration = Duration::from_secs(30);

/// The pause of a long poll after an answer that took so long to make.
pub(super) fn pause(made_in: Duration) -> Duration {
    (made_in * COMPARE_SHARE).clamp(COMPARE_INTERVAL, MAX_COMPARE_INTERVAL)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_are_compared_less_often() {
        for (milliseconds, expected) in [(0, 1_000), (20, 1_000), (100, 5_000), (5_000, 30_000)] {
            let pause = pause(Duration::from_millis(milliseconds));
            assert_eq!(pause.as_millis(), expected, "{milliseconds}");
        }
    }
}
