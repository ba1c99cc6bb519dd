//! Why a request was not answered.

use crate::{bounded::bounded, page::not_kubernetes, paged_list::ListError};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum SendError {
    /// 409: the Node has changed since, or was created again.
    #[error("the Node has changed since it was read")]
    Conflict,
    /// 404: the Node does not exist.
    #[error("there is no such Node")]
    Gone,
    /// 401, 403, with the server's message.
    #[error("not allowed: {0}; check the RBAC of the user cluster's kubeconfig")]
    Denied(String),
    /// The server rejected the request itself (400, 422), with its message.
    #[error("refused: {0}")]
    Refused(String),
    /// 429, 5xx, timeout or no connection.
    #[error("{0}")]
    Unreachable(String),
    #[error("the user cluster has no usable kubeconfig")]
    NoClient,
}

impl SendError {
    /// The class as the value of a metric's label.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Whether the failure concerns the whole cluster rather than one Node.
    pub fn is_cluster_failure(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoClient | Self::Denied(_))
    }
}

impl From<kube::Error> for SendError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let message = bounded(&status.message, MAX_MESSAGE);
                match status.code {
                    404 => Self::Gone,
                    409 => Self::Conflict,
                    401 | 403 => Self::Denied(message),
                    400 | 405..=428 => Self::Refused(message),
                    code => Self::Unreachable(format!("{code} {message}")),
                }
            }
            // Its text would repeat the server's answer.
            kube::Error::SerdeError(error) => Self::Unreachable(not_kubernetes(&error)),
            other => Self::Unreachable(bounded(&other.to_string(), MAX_MESSAGE)),
        }
    }
}

impl From<ListError> for SendError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Request(kube::Error::BuildRequest(error)) => Self::Unreachable(error.to_string()),
            ListError::Request(error) => error.into(),
            ListError::Page(_) | ListError::TooLong => Self::Unreachable(error.to_string()),
        }
    }
}

/// Maximum characters kept of an API server's message.
pub(super) const MAX_MESSAGE: usize = 512;

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;

    #[test]
    fn classes_have_the_published_names() {
        assert_eq!(
            SendError::VARIANTS.join(" "),
            "conflict gone denied refused unreachable no_client"
        );
    }
}
