//! What an account should be, and what is due for it: values only.

use virtfleet_collector_core::{
    cluster_source::{AccountFacts, AccountStep, account_step},
    facts::Labels,
};
use virtfleet_runtime::digest::Sha256;

use super::super::infra::KnownSecret;
use crate::{
    objects::{ClusterPhase, LabelPropagation, SourceCredentials, UserCluster},
    user_account::{ClusterRights, needs_pods, used_kubeconfig, user_cluster_objects},
};

/// What the collector's account in a user cluster should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sources) struct AccountPlan {
    pub(in crate::sources) rights: ClusterRights,
    /// Fingerprint of the objects.
    pub(in crate::sources) objects: String,
}

impl AccountPlan {
    /// For a UserCluster, with the policies of the infra cluster.
    pub(in crate::sources) fn of(cluster: &UserCluster, policies: &[LabelPropagation]) -> Self {
        let labels: Labels = cluster.metadata.labels.clone().into_iter().flatten().collect();
        let rights = ClusterRights {
            labels: true,
            follow_if_safe: needs_pods(&labels, policies),
            node_conditions: !cluster.spec.node_conditions.is_empty(),
        };
        // Whether the user cluster has admission policies is found out when they are written.
        let objects = user_cluster_objects(rights, true);
        let objects = serde_json::to_vec(&objects).unwrap_or_default();
        Self {
            rights,
            objects: Sha256::fingerprint(&objects),
        }
    }
}

/// What is due for the account in the cluster with the UID `uid`, at `now` in seconds since 1970.
/// `version` is that of the admin's kubeconfig.
pub(in crate::sources) fn step(
    cluster: &UserCluster,
    secret: Option<&KnownSecret>,
    uid: &str,
    plan: &AccountPlan,
    version: &str,
    now: i64,
) -> AccountStep {
    let known = secret.and_then(|secret| secret.account(uid));
    let status = cluster.status.clone().unwrap_or_default();
    let reported = status.kubeconfig_fingerprint.as_deref();
    // A status about an older kubeconfig says nothing about this one.
    let is_current = known
        .as_ref()
        .is_some_and(|known| reported == Some(known.kubeconfig.as_str()));
    let facts = AccountFacts {
        known: known.as_ref(),
        objects: &plan.objects,
        admin_version: version,
        used_kubeconfig: used_kubeconfig(&status),
        is_unreachable: is_current && status.phase == ClusterPhase::Unreachable,
    };
    account_step(&facts, now)
}

/// Whether a Secret may stay in use until the account is made: not with the kubeconfig of an admin,
/// and not with one of another cluster.
pub(in crate::sources) fn is_replaceable(secret: &KnownSecret, uid: &str) -> bool {
    let kept = [SourceCredentials::Viewer, SourceCredentials::Account].map(SourceCredentials::as_str);
    secret.credentials(uid).is_some_and(|known| kept.contains(&known))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(status: &Value) -> UserCluster {
        let object = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
            "metadata": { "name": "blue", "labels": { "tier": "gold" } },
            "spec": { "vmis": { "namespace": "n" } }, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn secret(change: &Value, text: &str) -> KnownSecret {
        let mut annotations = json!({
            "virtfleet.io/source-uid": "u", "virtfleet.io/credentials": "Account",
            "virtfleet.io/credential-validity": "1000/2000", "virtfleet.io/admin-kubeconfig-version": "7",
            "virtfleet.io/account-objects": AccountPlan::of(&cluster(&Value::Null), &[]).objects,
        });
        for (key, value) in change.as_object().unwrap() {
            annotations[key] = value.clone();
        }
        let data = k8s_openapi::ByteString(text.as_bytes().to_vec());
        KnownSecret::new(json!({
            "metadata": { "annotations": annotations }, "data": { "kubeconfig": data },
        }))
    }

    fn due(status: &Value, secret: &KnownSecret, uid: &str, version: &str, now: i64) -> AccountStep {
        let cluster = cluster(status);
        step(
            &cluster,
            Some(secret),
            uid,
            &AccountPlan::of(&cluster, &[]),
            version,
            now,
        )
    }

    #[test]
    fn a_secret_says_what_is_due() {
        let plain = secret(&json!({}), "k");
        let none = Value::Null;
        for (uid, version, now, expected) in [
            ("u", "7", 1100, AccountStep::Keep),
            ("u", "7", 1500, AccountStep::Renew),
            ("other", "7", 1100, AccountStep::Renew),
            ("u", "8", 1100, AccountStep::Compare),
        ] {
            assert_eq!(
                due(&none, &plain, uid, version, now),
                expected,
                "{uid} {version} {now}"
            );
        }
        let admin = secret(&json!({ "virtfleet.io/credentials": "Admin" }), "k");
        assert_eq!(due(&none, &admin, "u", "7", 1100), AccountStep::Renew);
        let older = secret(&json!({ "virtfleet.io/account-objects": "old" }), "k");
        assert_eq!(due(&none, &older, "u", "7", 1100), AccountStep::WriteObjects);
        let rules = json!([{ "key": "rack", "mode": "FollowIfSafe" }]);
        let policy = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation", "metadata": { "name": "p" },
            "spec": { "clusterSelector": { "matchLabels": { "tier": "gold" } }, "labels": rules },
        });
        let policy: LabelPropagation = serde_json::from_value(policy).unwrap();
        let blue = cluster(&none);
        let wanted = AccountPlan::of(&blue, std::slice::from_ref(&policy));
        assert!(wanted.rights.follow_if_safe);
        assert_eq!(
            step(&blue, Some(&plain), "u", &wanted, "7", 1100),
            AccountStep::WriteObjects
        );
    }

    #[test]
    fn only_a_status_about_the_present_kubeconfig_counts() {
        let old = secret(&json!({ "virtfleet.io/credentials-to-revoke": "a,b" }), "k");
        assert_eq!(old.old_markers(), ["a", "b"]);
        let (ours, other) = (Sha256::fingerprint(b"k"), Sha256::fingerprint(b"j"));
        for (phase, fingerprint, expected) in [
            ("Ready", &ours, AccountStep::Revoke),
            ("Suspended", &ours, AccountStep::Revoke),
            ("Ready", &other, AccountStep::Keep),
            ("Unreachable", &ours, AccountStep::Verify),
            ("Unreachable", &other, AccountStep::Keep),
        ] {
            let status = json!({ "phase": phase, "kubeconfigFingerprint": fingerprint });
            assert_eq!(
                due(&status, &old, "u", "7", 1100),
                expected,
                "{phase} {fingerprint}"
            );
        }
    }

    #[test]
    fn an_admins_kubeconfig_does_not_stay_until_the_account_is_made() {
        for (credentials, uid, expected) in [
            ("Viewer", "u", true),
            ("Account", "u", true),
            ("Admin", "u", false),
            ("Viewer", "other", false),
        ] {
            let secret = secret(&json!({ "virtfleet.io/credentials": credentials }), "k");
            assert_eq!(is_replaceable(&secret, uid), expected, "{credentials} {uid}");
        }
    }
}
