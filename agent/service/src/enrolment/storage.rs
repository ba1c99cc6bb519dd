//! Whether the agent's key is stored. A collector records the first key of a VM for good, so the
//! agent signs no CSR with a key that a restart would lose, unless there is no place for it at all.

use virtfleet_agent_core::enrolment::record::KeyRecord;
use virtfleet_agent_state::enrolment::{EnrolmentFiles, EnrolmentFilesError};

/// Where the key is stored, or why it is not.
#[derive(Debug, Clone)]
pub(super) enum KeyStorage {
    /// Key and record are stored, or a key of an earlier run is.
    Stored(EnrolmentFiles),
    /// They are not stored yet.
    Pending {
        /// Where they will be.
        files: EnrolmentFiles,
        /// Why the last attempt failed. Empty before the first.
        reason: String,
        /// A key was stored there, so the directory can be written at other times.
        replaces: bool,
    },
    /// The files of an earlier run cannot be read, and are not overwritten.
    Unusable {
        /// Why they cannot be read.
        reason: String,
    },
    /// There is no directory, and none can be created.
    Absent {
        /// Why it cannot be created.
        reason: String,
    },
}

impl KeyStorage {
    /// The storage of the first key.
    pub(super) fn empty(files: EnrolmentFiles) -> Self {
        Self::Pending {
            files,
            reason: String::new(),
            replaces: false,
        }
    }

    /// The storage whose directory cannot be prepared or read.
    pub(super) fn failed(error: &EnrolmentFilesError) -> Self {
        let reason = error.to_string();
        if error.is_temporary() {
            tracing::error!(reason, "the agent does not enrol: its key cannot be stored");
            Self::Unusable { reason }
        } else {
            tracing::error!(reason, "the agent's key is kept in memory only");
            Self::Absent { reason }
        }
    }

    /// The storage of a new key that replaces the one here.
    pub(super) fn for_new_key(self) -> Self {
        match self {
            Self::Stored(files) => Self::Pending {
                files,
                reason: String::new(),
                replaces: true,
            },
            other => other,
        }
    }

    /// Stores a key that is pending. A read-only filesystem that never had a key is no place for
    /// one; every other failure leaves the key pending.
    pub(super) fn store_key(&mut self, pkcs8: &[u8], record: &KeyRecord) {
        let Self::Pending {
            files,
            reason,
            replaces,
        } = self
        else {
            return;
        };
        let Err(error) = files.write_key(pkcs8, record) else {
            if !reason.is_empty() {
                tracing::info!("the agent's key is stored");
            }
            *self = Self::Stored(files.clone());
            return;
        };
        let failed = error.to_string();
        if error.is_read_only() && !*replaces {
            tracing::error!(reason = failed, "the agent's key is kept in memory only");
            *self = Self::Absent { reason: failed };
        } else if *reason != failed {
            tracing::error!(
                reason = failed,
                "the agent does not enrol: its key cannot be stored"
            );
            *reason = failed;
        }
    }
}
