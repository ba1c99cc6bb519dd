//! Settings of enrolment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Span;

/// Enrolment: the collector issues the certificates of agents, and its own for pulling them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EnrolmentSettings {
    /// The trust domain of all certificates, required:
    /// `spiffe://<trustDomain>/vmi/<namespace>/<name>/<uid>`. It names the fleet, need not exist in
    /// DNS, and cannot be changed later.
    pub trust_domain: String,
    /// Lifetime of certificates, 10m to 2160h (90 days). They are renewed after two thirds of it.
    pub lifetime: Span,
    /// Folder of the authority. Only with `inventory.folder`. The collector creates the authority
    /// there if there is none.
    pub folder: String,
    /// Name of the Secret of the authority, in the namespace of the Lease. Only with
    /// `inventory.cluster`. The collector creates the authority there if there is none.
    pub secret: String,
    /// Name of a Secret with `tls.crt` and `tls.key` in the same namespace, e.g. of cert-manager:
    /// the authority that signs agents, in place of the collector's own.
    pub agents_secret: Option<String>,
    /// The same for the authority that signs clients of agents: collectors and readers.
    pub clients_secret: Option<String>,
}

impl Default for EnrolmentSettings {
    fn default() -> Self {
        Self {
            trust_domain: String::new(),
            lifetime: Span::seconds(24 * 3600),
            folder: "/var/lib/virtfleet-collector".to_owned(),
            secret: "virtfleet-ca".to_owned(),
            agents_secret: None,
            clients_secret: None,
        }
    }
}
