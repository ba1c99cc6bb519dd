//! When a kubeconfig is read or requested again.

use super::kind::SourceKind;

/// A kubeconfig that was requested from a garden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCredential {
    /// When it was requested, in seconds since 1970.
    pub issued: i64,
    /// When it ends, in seconds since 1970.
    pub expires: i64,
}

impl KnownCredential {
    /// Whether it is to be renewed: after half of its time, so that whoever issues it may be away
    /// for the other half. A clock that was set back must not keep it until its end.
    pub fn is_due(self, now: i64) -> bool {
        let half = self
            .issued
            .saturating_add((self.expires.saturating_sub(self.issued)) / 2);
        !(self.issued..half).contains(&now)
    }
}

/// What is done for the kubeconfig of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialStep {
    Keep,
    /// The Secret of the source is read, and copied if it differs.
    Copy,
    Request,
}

/// The step for one cluster. `known` is the present one; none if there is none, if it is of another
/// cluster or with other rights.
pub fn credential_step(kind: SourceKind, known: Option<KnownCredential>, now: i64) -> CredentialStep {
    match (kind, known) {
        (SourceKind::Kkp | SourceKind::ClusterApi, _) => CredentialStep::Copy,
        (SourceKind::Gardener, Some(known)) if !known.is_due(now) => CredentialStep::Keep,
        (SourceKind::Gardener, _) => CredentialStep::Request,
    }
}
