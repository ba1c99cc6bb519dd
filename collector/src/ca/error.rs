//! Why an authority cannot be read, changed or used.

use super::RootKind;

/// Why an authority cannot be read, changed or used.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("{file} is missing; restore it from a backup, or remove all files to create a new authority")]
    Missing { file: String },
    /// A file of an authority that another program manages is absent.
    #[error("{file} is missing; the Secret needs tls.crt and tls.key")]
    MissingExternal {
        /// Name of the Secret and of the file.
        file: String,
    },
    #[error(
        "the stored root of {root} is of the trust domain {stored}, but enrolment.trustDomain is {setting}; a trust \
         domain cannot be changed: set it back, or use another Secret or folder and enrol all VMs again"
    )]
    StoredTrustDomain {
        root: RootKind,
        stored: String,
        setting: String,
    },
    /// A file of the authority cannot be used.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        file: String,
        /// Line, from 1.
        line: usize,
        /// The problem and the next step.
        reason: String,
    },
    #[error("{0:?} is not a trust domain: use 1 to 255 lower-case letters, digits, '.', '-' and '_'")]
    TrustDomain(String),
    #[error("the identity {identity} is not of the trust domain {trust_domain}")]
    OtherTrustDomain { identity: String, trust_domain: String },
    #[error("{0:?} cannot be written into a certificate")]
    Name(String),
    /// The validity is empty or outside of the root's.
    #[error(
        "the root of {root} is not valid during the requested time; rotate it: virtfleetctl ca rotate {root}"
    )]
    Expired { root: RootKind },
    /// The root belongs to another writer.
    #[error("the root of {root} is managed by {owner}; rotate it there")]
    External {
        root: RootKind,
        /// What manages it.
        owner: String,
    },
    #[error(
        "{count} roots of {root} are trusted already; wait until the certificates of the oldest have expired"
    )]
    TooManyRoots {
        root: RootKind,
        /// Number of trusted roots.
        count: usize,
    },
    /// Too many cross-signed certificates.
    #[error(
        "VMs whose user-data has the oldest root of clients would not accept collectors any more: the chain of \
         cross-signed certificates is {count} long; replace the user-data of these VMs, then repeat with --drop-oldest"
    )]
    ChainTooLong {
        /// Number of cross-signed certificates.
        count: usize,
    },
    #[error("the system has no random numbers")]
    Random,
    #[error("the key of the root cannot sign")]
    Sign(#[from] rcgen::Error),
}
