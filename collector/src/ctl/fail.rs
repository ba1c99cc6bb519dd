//! Why the CLI ends without having shown what was asked for, and with which exit code.

use virtfleet_runtime::exit::Code;

use crate::api::ErrorDetail;

/// One class for each thing that a person does next.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fail {
    #[error("cannot reach {server}: {why}. Is virtfleet-collector running? Set --server or VIRTFLEET_SERVER")]
    Unreachable { server: String, why: String },
    #[error(
        "{url} answered {what}, which is no answer of virtfleet-collector. Is --server (or VIRTFLEET_SERVER) right?"
    )]
    Foreign { url: String, what: String },
    #[error("{}{}", .0.message, remedy(&.0.remedy))]
    Refused(ErrorDetail),
    #[error("{0}")]
    Ambiguous(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Usage(String),
    /// What is wrong with files that were named, a line each.
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
    /// Ok when the reader of a pipe has had enough.
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
            | Self::Ambiguous(_)
            | Self::Input(_)
            | Self::Output(_)
            | Self::Start(_) => Code::Failure,
        };
        code.number()
    }

    /// Whether the same question may be answered later: the collector is away, being replaced, or not ready yet.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Foreign { .. } => true,
            Self::Refused(detail) => matches!(detail.code.as_str(), "not_synced" | "internal"),
            Self::Ambiguous(_)
            | Self::NotFound(_)
            | Self::Usage(_)
            | Self::Input(_)
            | Self::Output(_)
            | Self::Start(_) => false,
        }
    }
}
