//! `status --wait`: long polls until the fleet has a verdict.

use std::time::{Duration, Instant};

use virtfleet_collector_core::{fleet_status::FleetStatus, health::HealthVerdict};

use super::{
    client::{ApiResponse, Client},
    fail::Fail,
    target::Target,
};

/// Maximum duration of a long poll.
const MAX_POLL: Duration = Duration::from_secs(30);
/// Pause before a retry while the collector is unavailable, and between two polls: a large fleet
/// changes many times a second.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The status once its verdict is `wanted` or better, or the last one before the time was over.
///
/// # Errors
/// The collector refuses the request, or could not be reached until the time was over.
pub(super) fn wait(
    client: &Client,
    target: &Target,
    wanted: HealthVerdict,
    timeout: Duration,
) -> Result<(ApiResponse, bool), Fail> {
    let deadline = Instant::now() + timeout;
    let mut last: Option<ApiResponse> = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let poll = left.min(MAX_POLL);
        let mut query = target.query.clone();
        if let Some(revision) = last.as_ref().and_then(|last| last.revision) {
            query.push(("wait", revision.to_string()));
            query.push(("timeout", format!("{}ms", poll.as_millis())));
        }
        match client.get(&target.path, &query, poll) {
            Ok(answer) => {
                let status: FleetStatus = answer.read()?;
                if status.verdict <= wanted {
                    return Ok((answer, true));
                }
                last = Some(answer);
            }
            Err(fail) if !fail.is_transient() => return Err(fail),
            Err(fail) if Instant::now() >= deadline => {
                return last.map(|answer| (answer, false)).ok_or(fail);
            }
            Err(_) => {}
        }
        let now = Instant::now();
        if now >= deadline
            && let Some(answer) = last.take()
        {
            return Ok((answer, false));
        }
        pause(RETRY_PAUSE.min(deadline.saturating_duration_since(now)));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pause between two requests of a program that does nothing else"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
