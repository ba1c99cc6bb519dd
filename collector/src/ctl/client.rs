//! Client of the collector's API.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{
    cli::ConnectionArgs,
    fail::Fail,
    locate,
    transport::{ApiCall, CollectorTransport, RawResponse},
};
use crate::api::{ErrorBody, NOT_LEADING};

/// Connections tried without a pause until the leader answers a request that only the leader can
/// answer: behind a Service with two replicas each one reaches it with a probability of one half.
const QUICK_LEADER_TRIES: usize = 6;
/// Maximum connections. After a leader has died, the next one leads within 17 seconds.
const MAX_LEADER_TRIES: usize = 24;
/// Pause before each connection after the quick ones. Tests do not wait.
const LEADER_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });
/// Maximum times that a request is sent while the server says that there are too many.
const MAX_LIMITED_TRIES: usize = 5;
/// Limits of the pause before the next of these tries.
const MIN_LIMITED_PAUSE: Duration = Duration::from_secs(1);
const MAX_LIMITED_PAUSE: Duration = Duration::from_secs(10);
/// Media type of requests and responses.
const JSON: &str = "application/json";

/// A connection to a collector. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Client {
    transport: Arc<dyn CollectorTransport>,
    timeout: Duration,
    /// When all requests end at the latest.
    until: Option<Instant>,
}

/// A response with status 200.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) url: String,
    pub(super) body: Value,
    pub(super) revision: Option<u64>,
}

impl ApiResponse {
    /// The body as the type of the path.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Fail> {
        T::deserialize(&self.body).map_err(|error| Fail::Foreign {
            url: self.url.clone(),
            what: format!("JSON that this version of virtfleetctl cannot parse ({error}; -o json shows it)"),
        })
    }
}

impl Client {
    /// The collector that the arguments name, or that of the cluster of the kubeconfig.
    pub(super) fn new(connection: &ConnectionArgs) -> Result<Self, Fail> {
        Ok(Self {
            transport: locate::transport(connection)?,
            timeout: connection.timeout.0,
            until: None,
        })
    }

    /// The same connection; all requests together end at `until` at the latest.
    pub(super) fn ending_at(self, until: Instant) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// As much of `time` as is left.
    ///
    /// # Errors
    /// Nothing is left.
    fn left_of(&self, time: Duration) -> Result<Duration, Fail> {
        let Some(until) = self.until else { return Ok(time) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fail::Unreachable {
                server: self.transport.server().to_owned(),
                why: "the time for all requests is over".to_owned(),
            });
        }
        Ok(time.min(left))
    }

    /// Sends `GET path?query`. `extra_timeout` extends the timeout for a long poll.
    pub(super) fn get(
        &self,
        path: &str,
        query: &[(&str, String)],
        extra_timeout: Duration,
    ) -> Result<ApiResponse, Fail> {
        let mut target = path.to_owned();
        for (index, (name, value)) in query.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        let call = ApiCall {
            target: &target,
            accept: JSON,
            body: None,
        };
        let response = self.of_leader(call, self.timeout.saturating_add(extra_timeout))?;
        read(self.url(&call), &response)
    }

    fn url(&self, call: &ApiCall<'_>) -> String {
        format!("{}{}", self.transport.server(), call.target)
    }

    /// Sends `GET path` for a text.
    pub(super) fn get_text(&self, path: &str) -> Result<String, Fail> {
        let call = ApiCall {
            target: path,
            accept: "*/*",
            body: None,
        };
        let response = self.of_leader(call, self.timeout)?;
        let url = self.url(&call);
        if !response.status.is_success() {
            return Err(error(&url, &response));
        }
        let foreign = Fail::Foreign {
            url,
            what: "bytes that are not text".to_owned(),
        };
        String::from_utf8(response.body).map_err(|_| foreign)
    }

    /// Sends `POST path` with a JSON body.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<ApiResponse, Fail> {
        let call = ApiCall {
            target: path,
            accept: JSON,
            body: Some(&body.to_string()),
        };
        let response = self.of_leader(call, self.timeout)?;
        read(self.url(&call), &response)
    }

    /// Sends a request, and again after a pause while the server says that there are too many.
    fn send(&self, call: ApiCall<'_>, timeout: Duration, fresh: bool) -> Result<RawResponse, Fail> {
        let mut response = self.transport.send(call, self.left_of(timeout)?, fresh)?;
        for _ in 1..MAX_LIMITED_TRIES {
            if response.status != StatusCode::TOO_MANY_REQUESTS {
                break;
            }
            let pause = response.retry_after.unwrap_or(MIN_LIMITED_PAUSE);
            let pause = pause.clamp(MIN_LIMITED_PAUSE, MAX_LIMITED_PAUSE);
            wait(self.left_of(pause)?);
            response = self.transport.send(call, self.left_of(timeout)?, fresh)?;
        }
        Ok(response)
    }

    /// Repeats a request on new connections until the leader answers it, if only the leader can.
    fn of_leader(&self, call: ApiCall<'_>, timeout: Duration) -> Result<RawResponse, Fail> {
        let mut response = self.send(call, timeout, false)?;
        for tries in 1..MAX_LEADER_TRIES {
            if !is_of_standby(&response) {
                break;
            }
            if tries >= QUICK_LEADER_TRIES {
                wait(self.left_of(LEADER_PAUSE)?);
            }
            response = self.send(call, timeout, true)?;
        }
        Ok(response)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this client blocks; --watch runs it on a thread of its own"
)]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// Whether the collector that answered refers to the leader.
fn is_of_standby(response: &RawResponse) -> bool {
    let is_refused = response.status == StatusCode::SERVICE_UNAVAILABLE;
    let body = is_refused.then(|| serde_json::from_slice::<ErrorBody>(&response.body));
    matches!(body, Some(Ok(body)) if body.error.code == NOT_LEADING)
}

fn read(url: String, response: &RawResponse) -> Result<ApiResponse, Fail> {
    let body: Option<Value> = serde_json::from_slice(&response.body).ok();
    match body {
        Some(body) if response.status.is_success() => Ok(ApiResponse {
            url,
            body,
            revision: response.revision,
        }),
        _ => Err(error(&url, response)),
    }
}

/// The error in a response without success, or in one that is not JSON.
fn error(url: &str, response: &RawResponse) -> Fail {
    let status = response.status;
    let foreign = |what: String| Fail::Foreign {
        url: url.to_owned(),
        what,
    };
    match serde_json::from_slice::<Value>(&response.body) {
        Ok(body) => match serde_json::from_value::<ErrorBody>(body) {
            Ok(body) => Fail::Refused(body.error),
            Err(_) => foreign(format!("{status} with other JSON")),
        },
        Err(_) => foreign(format!("{status} without JSON")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Collectors behind a Service: so many connections reach standbys.
    #[derive(Debug)]
    struct Standbys {
        left: Mutex<usize>,
        answer: &'static [u8],
    }

    impl CollectorTransport for Standbys {
        fn server(&self) -> &'static str {
            "https://collector"
        }

        fn send(&self, _: ApiCall<'_>, _: Duration, _: bool) -> Result<RawResponse, Fail> {
            let mut left = self.left.lock().unwrap();
            let (status, body) = match left.checked_sub(1) {
                Some(rest) => {
                    *left = rest;
                    let error = br#"{"error":{"code":"not_leading","message":"m","remedy":"r"}}"#;
                    (StatusCode::SERVICE_UNAVAILABLE, &error[..])
                }
                None => (StatusCode::OK, self.answer),
            };
            Ok(RawResponse {
                status,
                revision: None,
                retry_after: None,
                body: body.to_vec(),
            })
        }
    }

    fn client(standbys: usize, answer: &'static [u8]) -> Client {
        let transport = Standbys {
            left: Mutex::new(standbys),
            answer,
        };
        Client {
            transport: Arc::new(transport),
            timeout: Duration::from_secs(1),
            until: None,
        }
    }

    #[test]
    fn every_request_is_repeated_until_the_leader_answers() {
        let none = Duration::ZERO;
        for standbys in [0, 1, MAX_LEADER_TRIES - 1] {
            let found = client(standbys, b"{}").get("/api/v1/status", &[], none);
            assert!(found.is_ok(), "{standbys}: {found:?}");
            let text = client(standbys, b"metrics").get_text("/metrics/fleet");
            assert_eq!(text.unwrap(), "metrics");
        }
        let gone = client(MAX_LEADER_TRIES, b"{}");
        let fail = gone.get("/api/v1/status", &[], none).unwrap_err();
        assert!(fail.is_transient(), "--wait and --watch go on: {fail}");
        let fail = client(MAX_LEADER_TRIES, b"").get_text("/metrics/fleet");
        assert!(fail.unwrap_err().is_transient());
    }

    #[test]
    fn the_tries_last_longer_than_a_change_of_the_leader() {
        let pauses = u32::try_from(MAX_LEADER_TRIES - QUICK_LEADER_TRIES).unwrap();
        assert!(Duration::from_secs(1) * pauses >= Duration::from_secs(17));
    }
}
