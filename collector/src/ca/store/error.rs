//! Why the store of an authority cannot be used: a folder or a Secret.

use std::{io, path::PathBuf};

use crate::ca::{CaError, RootKind};

/// Why the store of an authority, a folder or a Secret, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaStoreError {
    /// The content is invalid, or a change is refused.
    #[error("{place}: {source}")]
    Authority {
        /// The folder or the Secret.
        place: String,
        source: CaError,
    },
    /// A file or the folder cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "another collector uses the folder {}; give each its own enrolment.folder", folder.display()
    )]
    Locked { folder: PathBuf },
    /// A request to the API server failed.
    #[error("cannot {action} {place}")]
    Api {
        action: &'static str,
        place: String,
        source: Box<kube::Error>,
    },
    /// The authority was removed while the collector runs.
    #[error(
        "{place} has no authority; restore it from a backup, or restart the collector to create a new one, which no VM \
         accepts until its user-data is rendered again"
    )]
    Absent {
        /// The folder or the Secret.
        place: String,
    },
    /// The Secret that another program, e.g. cert-manager, manages does not exist.
    #[error(
        "{place} does not exist; create it with the authority of {kind}, e.g. with a Certificate of cert-manager"
    )]
    NoExternal {
        place: String,
        /// What its authority signs.
        kind: RootKind,
    },
    #[error("{place} was changed by another writer at each attempt; try again")]
    Busy {
        /// The folder or the Secret.
        place: String,
    },
}

impl CaStoreError {
    /// Whether a retry may succeed without a change by an admin: the API server does not answer.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.code >= 500 || status.code == 429,
                _ => true,
            },
            Self::Busy { .. } => true,
            _ => false,
        }
    }
}
