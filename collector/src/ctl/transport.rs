//! How requests reach the collector.

use std::{fmt, time::Duration};

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

use super::fail::Fail;

/// Maximum size of a response: enough for a fleet of 100,000 VMs.
pub(super) const MAX_RESPONSE_BYTES: u64 = 512 * 1024 * 1024;

/// A response of any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawResponse {
    pub(super) status: StatusCode,
    pub(super) revision: Option<u64>,
    /// Pause that the server asks for before the next request.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

/// The header `Retry-After` in seconds; a date is ignored.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// A request: GET, or POST with a JSON body.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiCall<'a> {
    /// The path with its query.
    pub(super) target: &'a str,
    /// Media type of the response.
    pub(super) accept: &'static str,
    /// The JSON body of a POST; none for GET.
    pub(super) body: Option<&'a str>,
}

/// Sends requests to a collector, from several threads.
pub(super) trait CollectorTransport: fmt::Debug + Send + Sync {
    /// Name of the collector in messages: the beginning of its URLs.
    fn server(&self) -> &str;

    /// Sends a request. `fresh`: on a new connection, which may reach another collector.
    fn send(&self, call: ApiCall<'_>, timeout: Duration, fresh: bool) -> Result<RawResponse, Fail>;
}
