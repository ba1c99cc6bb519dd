//! Settings of the access to the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Span;

/// Who may read the API. Without `tokenReview` and `tokens`, every client with a certificate of
/// `server.tls.clientCA` may, and on a loopback address every client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AccessSettings {
    /// Accept bearer tokens that the infra cluster's API server verifies (TokenReview), with the
    /// rights that RBAC grants on `vms` of the group `virtfleet.io`. Only with `inventory.cluster`.
    pub token_review: Option<TokenReviewSettings>,
    /// A file with static bearer tokens, one per line: `sha256:<hex digits>,<name>,<scope>…`. A
    /// scope is `all`, `namespace:<name>`, `cluster:<name>`, or `admin` (all, and requests that
    /// change something). The file is read again when it changes.
    pub tokens: Option<String>,
    /// Scopes of client certificates of `server.tls.clientCA`, by a name in the certificate.
    pub certificates: Vec<CertificateAccess>,
    /// Scope of the other client certificates: as in `tokens`; empty: none.
    pub other_certificates: Vec<String>,
    /// Whether tenants (callers that may not see everything) get pseudonyms in place of the names
    /// of infra nodes, zones, regions and other labels of infra nodes.
    pub redact_infra: bool,
    /// A file with the key of the pseudonyms, at least 32 bytes. Absent: a random key, so
    /// pseudonyms differ between replicas and change with a restart.
    pub redact_key: Option<String>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            token_review: None,
            tokens: None,
            certificates: Vec::new(),
            other_certificates: vec!["all".to_owned()],
            redact_infra: false,
            redact_key: None,
        }
    }
}

impl AccessSettings {
    /// Whether clients may authenticate with a bearer token, so that a client certificate is
    /// optional.
    pub fn has_tokens(&self) -> bool {
        self.token_review.is_some() || self.tokens.is_some()
    }
}

/// Bearer tokens that the infra cluster's API server verifies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TokenReviewSettings {
    /// Audiences, one of which a token must be issued for: `kubectl create token NAME --audience
    /// virtfleet-collector`.
    pub audiences: Vec<String>,
    /// Whether to accept also the tokens that the API server itself accepts, such as those in
    /// kubeconfigs. A compromised collector could use such a token against the API server.
    pub cluster_tokens: bool,
    /// Time for which a verified token and a reviewed right are remembered: a revoked one stays
    /// valid for so long. At most 5m.
    pub cache: Span,
}

impl Default for TokenReviewSettings {
    fn default() -> Self {
        Self {
            audiences: vec!["virtfleet-collector".to_owned()],
            cluster_tokens: true,
            cache: Span::seconds(30),
        }
    }
}

/// Scope of client certificates with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CertificateAccess {
    /// A URI or DNS name in the certificate.
    pub name: String,
    /// The scope: as in `tokens`; empty: none.
    pub scope: Vec<String>,
}
