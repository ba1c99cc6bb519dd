//! Error responses: a code for programs, a message and a remedy for users.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::watch_slots::NoWatchSlot;
use crate::{access::AccessError, leader::LeaseView};

/// Code of the error of a caller that sends too many requests.
pub(crate) const TOO_MANY_REQUESTS: &str = "too_many_requests";
/// Code of the error of a standby.
pub(crate) const NOT_LEADING: &str = "not_leading";
/// `Retry-After` for a caller whose requests that wait are too many, in seconds: one of them ends
/// after half a minute by default.
const WATCH_RETRY_SECONDS: u64 = 10;

/// The body of every response with a status of 400 or above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// Description of an error, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// Stable, for programs: `unknown_parameter`, `invalid_parameter`, `not_found`, `unknown_path`,
    /// `method_not_allowed`, `not_synced`, `busy`, `not_scraping`, `not_recorded`, `not_leading`,
    /// `agent_failed`, `no_history`, `history_failed`, `invalid_body`, `unsupported_media_type`,
    /// `ca_refused`, `ca_unavailable`, `unauthenticated`, `forbidden`, `access_unavailable`,
    /// `too_many_requests`, `foreign_host`, `foreign_origin`, `internal`.
    pub code: String,
    /// One sentence that names the parameter, the path or the object.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}

/// An [`ErrorBody`] with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) remedy: String,
    /// Seconds for the header `Retry-After`.
    pub(super) retry_after: Option<u64>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            remedy: remedy.into(),
            retry_after: None,
        }
    }

    /// 400: the value of a parameter is not allowed.
    pub(super) fn invalid(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", message, remedy)
    }

    /// 404: no such object.
    pub(super) fn not_found(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message, remedy)
    }

    /// 503: the inventory has not been read completely yet.
    pub(super) fn not_synced() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_synced",
            "the inventory has not been read completely yet",
            "try again in a few seconds; if it persists, the collector's log and /api/v1/findings name the reason",
        )
    }

    /// As [`ApiError::not_synced`], with the reasons.
    pub(super) fn not_synced_because(reasons: &[&str]) -> Self {
        let mut error = Self::not_synced();
        if !reasons.is_empty() {
            error.message = format!("{}: {}", error.message, reasons.join("; "));
        }
        error
    }

    /// 503: only the leader has this data.
    pub(super) fn not_leading(lease: &LeaseView) -> Self {
        let (message, remedy) = match (&lease.holder, lease.pod()) {
            (Some(holder), Some(pod)) => (
                format!(
                    "this collector is a standby; the leader is {holder} (Lease {})",
                    lease.name
                ),
                format!(
                    "query the leader: kubectl -n {} port-forward pod/{pod} 10912; if this is that pod, its former \
                     container still holds the Lease, which runs out in seconds",
                    lease.namespace()
                ),
            ),
            _ => (
                format!(
                    "no collector leads: the Lease {} is free, or cannot be read",
                    lease.name
                ),
                "try again in a few seconds; virtfleet-collector doctor inspects the Lease".to_owned(),
            ),
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, NOT_LEADING, message, remedy)
    }

    /// As [`ApiError::not_leading`], for callers that may not see the collector's own objects.
    pub(super) fn standby() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            NOT_LEADING,
            "this collector is a standby, and only the leader has this data",
            "repeat the request on a new connection: the Service has several collectors",
        )
    }

    /// 500: an error in the collector.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            message,
            "this is a bug in virtfleet-collector: please report it with the collector's log",
        )
    }
}

impl From<NoWatchSlot> for ApiError {
    fn from(refused: NoWatchSlot) -> Self {
        match refused {
            NoWatchSlot::OwnShare(share) => Self {
                retry_after: Some(WATCH_RETRY_SECONDS),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    TOO_MANY_REQUESTS,
                    format!("{share} requests of this caller wait for changes already"),
                    "end some of them (close other pages), or read the lists from time to time without `wait`",
                )
            },
            NoWatchSlot::Full => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many requests wait for changes",
                "read the lists without `wait`, or try again in a few seconds",
            ),
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let (status, code) = match &error {
            AccessError::Unauthenticated { .. } => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            AccessError::Forbidden { .. } => (StatusCode::FORBIDDEN, "forbidden"),
            AccessError::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "access_unavailable"),
            AccessError::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS),
        };
        Self {
            retry_after: error.retry_after(),
            ..Self::new(status, code, error.to_string(), error.remedy())
        }
    }
}
