//! Why an API server could not be followed, in words that hold nothing that it should not.

use kube::core::Status;

use super::connect::{LimitError, meaning};
use crate::{bounded::bounded, page::not_kubernetes};

/// Maximum characters of an API server's message.
const MAX_MESSAGE: usize = 512;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The HTTP status, when the server gave one.
    pub(super) code: Option<u16>,
    /// For people.
    pub(super) message: String,
    /// How many in a row.
    pub(super) count: u32,
    /// The server sends more than it may.
    pub(super) over_limit: bool,
}

impl Failure {
    /// Whether waiting alone does not mend it: 401, 403, 404.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.code, Some(401 | 403 | 404))
    }
}

/// What a `Status` says; that of a tenant only by its code.
pub(super) fn message(status: &Status, is_tenant: bool) -> String {
    if is_tenant {
        meaning(status.code).1.to_owned()
    } else {
        bounded(&status.message, MAX_MESSAGE)
    }
}

/// Status and message of an error, with its causes.
pub(super) fn explain(error: &kube::Error, is_tenant: bool) -> (Option<u16>, String) {
    match error {
        kube::Error::Api(status) => {
            let message = format!("{} ({})", message(status, is_tenant), status.code);
            (Some(status.code), message)
        }
        other => (None, causes(other)),
    }
}

/// The limit that an answer has exceeded, when that is why it could not be read.
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

/// An error with its causes. What was read is not repeated: an answer that cannot be read may hold anything.
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
    bounded(&message, MAX_MESSAGE)
}
