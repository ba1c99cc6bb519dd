//! Tokens in the API.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    enrolment::EnrolmentReason,
    join_token::{JoinToken, JoinTokenId, TokenRefusal},
    pull_result::UnixMs,
};
use virtfleet_wire::{ids::ClusterName, settings::Span};

/// A join token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenView {
    /// Its public name.
    pub id: JoinTokenId,
    /// The user cluster whose VMs may use it.
    pub cluster: ClusterName,
    /// Networks from which it is accepted. Empty: only addresses of the VM's own virt-launcher pod.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<IpNet>,
    /// When it was created.
    pub created_ms: UnixMs,
    /// When it ends.
    pub expires_ms: UnixMs,
    /// Last enrolment with it.
    pub last_used_ms: Option<UnixMs>,
    /// Refusals since the start of the collector that accepts agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedTokenView>,
}

/// Refusals of a join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedTokenView {
    /// Number of refusals.
    pub count: u64,
    /// Reason of the last one.
    pub last_reason: EnrolmentReason,
    /// The address from which the agent had connected then.
    pub last_address: IpAddr,
    /// When.
    pub last_ms: UnixMs,
}

impl From<TokenRefusal> for RefusedTokenView {
    fn from(refusal: TokenRefusal) -> Self {
        Self {
            count: refusal.count,
            last_reason: refusal.reason,
            last_address: refusal.address,
            last_ms: refusal.at.saturating_mul(1000),
        }
    }
}

impl From<&JoinToken> for JoinTokenView {
    fn from(token: &JoinToken) -> Self {
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        Self {
            id: token.id.clone(),
            cluster: token.cluster.clone(),
            networks: token.networks.clone(),
            created_ms: ms(token.created),
            expires_ms: ms(token.expires),
            last_used_ms: token.last_used.map(ms),
            refused: None,
        }
    }
}

/// A new token. Only this answer has its text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedToken {
    /// The content of `push.tokenFile` of the agents.
    pub token: String,
    /// What the list shows.
    #[serde(flatten)]
    pub view: JoinTokenView,
}

/// Body of `POST /api/v1/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenCreation {
    /// The user cluster whose VMs may use the token.
    pub cluster: ClusterName,
    /// Time until it ends, 1m to 8760h; 24h by default.
    #[serde(default = "default_ttl")]
    pub ttl: Span,
    /// Networks from which it is accepted, at most 32. Empty: only addresses of the VM's own
    /// virt-launcher pod.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<IpNet>,
}

fn default_ttl() -> Span {
    Span::seconds(24 * 3600)
}
