//! Why a request is denied, and what the caller can do.

use std::time::Duration;

use virtfleet_collector_core::access::Caller;

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There are no credentials, or they are not valid.
    #[error("{message}")]
    Unauthenticated { message: String, remedy: String },
    /// The caller is known and has not the right.
    #[error("{message}")]
    Forbidden {
        caller: Box<Caller>,
        /// One sentence that names the missing right.
        message: String,
        remedy: String,
    },
    /// It cannot be found out who the caller is or what it may do. The request is denied.
    #[error("{message}")]
    Unavailable { message: String, remedy: String },
    #[error("too many requests: the next one is accepted in {} s", retry_after(*.wait))]
    TooManyRequests {
        /// Until the next request is accepted.
        wait: Duration,
    },
}

/// Whole seconds for the header `Retry-After`, at least one.
fn retry_after(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl AccessError {
    /// Credentials that are not valid.
    pub(super) fn unauthenticated(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unauthenticated {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A missing right.
    pub(super) fn forbidden(caller: &Caller, message: String, remedy: String) -> Self {
        Self::Forbidden {
            caller: Box::new(caller.clone()),
            message,
            remedy,
        }
    }

    /// The infra cluster's API server does not review tokens or rights.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable {
            message: message.into(),
            remedy:
                "try again in a few seconds; if it persists: virtfleet-collector doctor checks the rights to \
                     create tokenreviews and subjectaccessreviews"
                    .to_owned(),
        }
    }

    /// The reason in the audit log and in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unauthenticated { .. } => "unauthenticated",
            Self::Forbidden { .. } => "forbidden",
            Self::Unavailable { .. } => "unavailable",
            Self::TooManyRequests { .. } => "too_many_requests",
        }
    }

    /// Seconds after which a retry makes sense.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests { wait } => Some(retry_after(*wait)),
            _ => None,
        }
    }

    pub fn remedy(&self) -> &str {
        match self {
            Self::Unauthenticated { remedy, .. }
            | Self::Forbidden { remedy, .. }
            | Self::Unavailable { remedy, .. } => remedy,
            Self::TooManyRequests { .. } => {
                "send fewer requests: read lists instead of single objects, and wait for changes with `wait`"
            }
        }
    }
}
