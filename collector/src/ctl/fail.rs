//! Errors of the CLI and their exit codes.

use virtfleet_runtime::exit::Code;

use crate::api::{ErrorDetail, NOT_LEADING, TOO_MANY_REQUESTS};

/// One variant per kind of remedy.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fail {
    #[error("cannot reach {server}: {why}. Is virtfleet-collector running? Set --server or VIRTFLEET_SERVER")]
    Unreachable { server: String, why: String },
    #[error(
        "{url} returned {what}, which is not a response of virtfleet-collector. Is --server (or VIRTFLEET_SERVER) correct?"
    )]
    Foreign { url: String, what: String },
    #[error("{}{}", .0.message, remedy(&.0.remedy))]
    Refused(ErrorDetail),
    /// The cluster's API server or the collector does not admit the caller.
    #[error("{0}")]
    Access(String),
    #[error("{0}")]
    Ambiguous(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Usage(String),
    /// Problems of input files, a line each.
    #[error("{0}")]
    Input(String),
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
    #[error("cannot start: {0}")]
    Start(String),
}

fn remedy(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

impl Fail {
    /// 0 if the reader of a pipe has closed it.
    pub(super) fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Code::Ok,
            Self::NotFound(_) => Code::NotFound,
            Self::Refused(detail) if detail.code == "not_found" => Code::NotFound,
            Self::Usage(_) => Code::Usage,
            Self::Refused(detail) if detail.code == "invalid_parameter" => Code::Usage,
            Self::Unreachable { .. }
            | Self::Foreign { .. }
            | Self::Refused(_)
            | Self::Access(_)
            | Self::Ambiguous(_)
            | Self::Input(_)
            | Self::Output(_)
            | Self::Start(_) => Code::Failure,
        };
        code.number()
    }

    /// Whether a retry may help: the collector is away, being replaced, or not ready yet, or none
    /// leads yet.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Foreign { .. } => true,
            Self::Refused(detail) => {
                matches!(
                    detail.code.as_str(),
                    NOT_LEADING | "not_synced" | "internal" | "access_unavailable" | TOO_MANY_REQUESTS
                )
            }
            Self::Access(_)
            | Self::Ambiguous(_)
            | Self::NotFound(_)
            | Self::Usage(_)
            | Self::Input(_)
            | Self::Output(_)
            | Self::Start(_) => false,
        }
    }
}
