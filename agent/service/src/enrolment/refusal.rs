//! Why a request for enrolment is refused.

use virtfleet_runtime::tls::UnfitCertificate;

use super::key::KeyError;

/// Why a request is refused. Displays as a sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentRefusal {
    /// The requested identity has another form.
    #[error("{0:?} is not spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>")]
    Identity(String),
    /// The request is for another VM than that of the certificate.
    #[error(
        "this agent has the certificate of {own}, and the request is for {requested}: something forwards the port of one VM to \
         the other"
    )]
    OtherVm {
        /// The identity in the certificate.
        own: String,
        requested: String,
    },
    #[error("the agent has replaced its key; connect again and repeat the request")]
    KeyReplaced,
    #[error("the agent does not enrol, because its key cannot be stored: {0}")]
    NotStored(String),
    #[error("no certificate was requested from this agent since it started; send the request first")]
    NotRequested,
    /// The certificate, or an authority, is not usable.
    #[error("{what} {reason}")]
    Unusable {
        what: &'static str,
        /// Why, as the end of a sentence.
        reason: String,
    },
    /// The certificate does not fit.
    #[error(transparent)]
    Unfit(#[from] UnfitCertificate),
    #[error(
        "the certificate expired {ago} ago by the guest's clock, which is synchronized; check the collector's clock"
    )]
    Expired {
        /// How long ago.
        ago: String,
    },
    #[error("the agent cannot use its key: {0}")]
    Key(#[from] KeyError),
}

/// Every reason of a refusal, as in the metric.
pub(super) const REASONS: [&str; 11] = [
    "expired",
    "identity",
    "key",
    "no_dns_name",
    "not_for_servers",
    "not_requested",
    "not_stored",
    "other_identity",
    "other_key",
    "other_vm",
    "unusable",
];

impl EnrolmentRefusal {
    /// The reason as in the metric. None if it is not a fault: the agent has replaced its key.
    pub(super) fn word(&self) -> Option<&'static str> {
        match self {
            Self::Identity(_) => Some("identity"),
            Self::OtherVm { .. } => Some("other_vm"),
            Self::KeyReplaced => None,
            Self::NotRequested => Some("not_requested"),
            Self::NotStored(_) => Some("not_stored"),
            Self::Unusable { .. } | Self::Unfit(UnfitCertificate::Unparsable) => Some("unusable"),
            Self::Unfit(UnfitCertificate::OtherKey) => Some("other_key"),
            Self::Unfit(UnfitCertificate::OtherIdentity { .. }) => Some("other_identity"),
            Self::Unfit(UnfitCertificate::NoDnsName) => Some("no_dns_name"),
            Self::Unfit(UnfitCertificate::NotForServers) => Some("not_for_servers"),
            Self::Expired { .. } => Some("expired"),
            Self::Key(_) => Some("key"),
        }
    }
}
