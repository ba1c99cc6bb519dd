//! Reads a response body in pieces, up to a limit.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use virtfleet_collector_core::pull_result::{Failure, FailureClass};

/// Passes each piece of `body` to `take`, and stops with an error at `limit` bytes.
pub(super) async fn pieces(
    mut body: Incoming,
    what: &str,
    limit: usize,
    mut take: impl FnMut(&Bytes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::new(
                FailureClass::Connect,
                format_args!("the connection ended while {what} was read, after {total} bytes: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total > limit {
            return Err(Failure::new(
                FailureClass::TooLarge,
                format_args!(
                    "{what} has more than {limit} bytes; the rest was not read, and nothing of it is kept"
                ),
            ));
        }
        take(&data)?;
    }
    Ok(())
}
