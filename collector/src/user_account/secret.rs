//! What the Secret in the infra cluster with the collector's kubeconfig remembers about tokens.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::objects::{ClusterPhase, UserClusterStatus};

/// Annotation of the Secret in the infra cluster: the Secret to which the token is bound.
pub(crate) const CREDENTIAL: &str = "virtfleet.io/credential";
/// The same for tokens that are to be revoked, separated by commas.
pub(crate) const TO_REVOKE: &str = "virtfleet.io/credentials-to-revoke";
/// Annotation of the Secret in the infra cluster: the end of the token.
pub(crate) const EXPIRES: &str = "virtfleet.io/credential-expires";

pub(crate) fn kubeconfig_of(secret: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret["data"][key].as_str()?).ok()
}

/// The Secrets to which the tokens of a live Secret are bound: the present one, and those that are
/// to be revoked.
pub(crate) fn markers_of(secret: &Value) -> Vec<String> {
    let text = |key: &str| {
        secret["metadata"]["annotations"][key]
            .as_str()
            .unwrap_or_default()
    };
    let all = text(TO_REVOKE).split(',').chain([text(CREDENTIAL)]);
    all.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Fingerprint of the kubeconfig with which the Nodes of a user cluster are watched; none if they
/// are not watched.
pub(crate) fn used_kubeconfig(status: &UserClusterStatus) -> Option<&str> {
    let watches = matches!(status.phase, ClusterPhase::Ready | ClusterPhase::Suspended);
    let used = status.kubeconfig_fingerprint.as_deref();
    used.filter(|_| watches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_watch_with_the_new_kubeconfig_counts() {
        let status = |phase, fingerprint: Option<&str>| UserClusterStatus {
            phase,
            kubeconfig_fingerprint: fingerprint.map(str::to_owned),
            ..UserClusterStatus::default()
        };
        for (phase, fingerprint, expected) in [
            (ClusterPhase::Ready, Some("a"), true),
            (ClusterPhase::Suspended, Some("a"), true),
            (ClusterPhase::Ready, Some("b"), false),
            (ClusterPhase::Ready, None, false),
            (ClusterPhase::Pending, Some("a"), false),
            (ClusterPhase::Unreachable, Some("a"), false),
        ] {
            assert_eq!(
                used_kubeconfig(&status(phase, fingerprint)) == Some("a"),
                expected,
                "{phase:?} {fingerprint:?}"
            );
        }
    }
}
