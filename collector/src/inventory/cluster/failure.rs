//! Failures of requests to an API server, with messages that contain nothing confidential.

use kube::core::Status;

use super::connect::{LimitError, meaning};
use crate::{bounded::bounded, page::not_kubernetes};

/// Maximum characters of an API server's message.
const MAX_MESSAGE_CHARS: usize = 512;

/// A failed list or watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchFailure {
    /// The HTTP status, if the server sent one.
    pub(super) code: Option<u16>,
    pub(super) message: String,
    /// Number of consecutive failures.
    pub(super) count: u32,
    /// The server exceeded a limit.
    pub(super) over_limit: bool,
}

impl WatchFailure {
    /// Whether retrying alone cannot help: 401, 403, 404.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.code, Some(401 | 403 | 404))
    }

    /// Why the Secrets of a namespace cannot be read, and what to do.
    pub(super) fn of_secrets(&self, namespace: &str) -> String {
        let message = &self.message;
        if self.code == Some(403) {
            format!(
                "{message}; grant the collector the verbs list and watch on the Secrets of the namespace {namespace} with a Role"
            )
        } else {
            message.clone()
        }
    }
}

/// The message of a `Status`; for a tenant's server a text that depends only on the code.
pub(super) fn message(status: &Status, is_tenant: bool) -> String {
    if is_tenant {
        meaning(status.code).1.to_owned()
    } else {
        bounded(&status.message, MAX_MESSAGE_CHARS)
    }
}

/// Status and message of an error, with its causes.
pub(crate) fn explain(error: &kube::Error, is_tenant: bool) -> (Option<u16>, String) {
    match error {
        kube::Error::Api(status) => {
            let message = format!("{} ({})", message(status, is_tenant), status.code);
            (Some(status.code), message)
        }
        other => (None, causes(other)),
    }
}

/// The limit that a response exceeded, if that is why it could not be read.
pub(super) fn limit_of(error: &kube::Error) -> Option<LimitError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(limit) = error.downcast_ref::<LimitError>() {
            return Some(*limit);
        }
        cause = error.source();
    }
    None
}

/// An error with its causes, without the parsed text: an unreadable response may contain anything.
fn causes(error: &kube::Error) -> String {
    if let kube::Error::SerdeError(error) = error {
        return not_kubernetes(error);
    }
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    bounded(&message, MAX_MESSAGE_CHARS)
}
