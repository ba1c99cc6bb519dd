//! Builds the statuses of the project's objects; `publish` writes them.

use virtfleet_collector_core::{
    labels::{guard, policy::Rule},
    view::{ClusterState, ClusterView},
};

use super::{ClusterPhase, Condition, ConditionStatus, LabelPropagationStatus, UserClusterStatus};
use crate::{labels::PolicyTally, tenants::TenantEntry};

/// Type of the condition that says whether the requested conditions of Nodes can be written.
pub const NODE_CONDITIONS_WRITTEN: &str = "NodeConditionsWritten";

/// Type of the condition that says whether `spec.mla` is used.
pub const MLA_CONFIGURED: &str = "MlaConfigured";

/// The status of a `UserCluster`, with transition times from the previous status `before`. `denied`
/// says why conditions of Nodes cannot be written. `now` is RFC 3339.
pub fn user_cluster(
    before: &UserClusterStatus,
    tenant: &TenantEntry,
    view: Option<&ClusterView>,
    denied: Option<&str>,
    now: &str,
) -> UserClusterStatus {
    let (mut state, mut message) = tenant.status();
    if let Some(view) = view.filter(|view| view.state == ClusterState::Refused) {
        state = view.state;
        message = view.message.clone().unwrap_or_default();
    }
    let (phase, holds, reason) = match state {
        ClusterState::Pending => (ClusterPhase::Pending, ConditionStatus::False, "NoKubeconfig"),
        // A suspended cluster is treated as not ready by clients that wait for it.
        ClusterState::Connecting => (ClusterPhase::Pending, ConditionStatus::False, "Connecting"),
        ClusterState::Unreachable => (ClusterPhase::Unreachable, ConditionStatus::False, "Unreachable"),
        ClusterState::Failed => (ClusterPhase::Failed, ConditionStatus::False, "Failed"),
        ClusterState::Refused => (ClusterPhase::Failed, ConditionStatus::False, "SharesNodes"),
        ClusterState::Ready => (ClusterPhase::Ready, ConditionStatus::True, "Watching"),
        ClusterState::Suspended => (ClusterPhase::Suspended, ConditionStatus::True, "Watching"),
        ClusterState::Hibernated => (ClusterPhase::Hibernated, ConditionStatus::False, "Hibernated"),
    };
    let count = |of: fn(&ClusterView) -> usize| {
        let count = view.map_or(0, of);
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let ready = Condition::new("Ready", holds, reason, message.clone());
    let is_requested = view.is_some_and(|view| !view.node_conditions.is_empty());
    let written = match denied {
        Some(why) => Some((ConditionStatus::False, "Denied", why)),
        None if is_requested => Some((
            ConditionStatus::True,
            "Written",
            "the conditions in spec.nodeConditions are written to the Nodes",
        )),
        None => None,
    };
    let written = written.map(|(status, reason, message)| {
        Condition::new(NODE_CONDITIONS_WRITTEN, status, reason, message.to_owned())
    });
    let mla = tenant.mla.as_ref().map(|mla| {
        let holds = if mla.configured {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        Condition::new(MLA_CONFIGURED, holds, mla.reason, mla.message.clone())
    });
    let conditions = std::iter::once(ready).chain(written).chain(mla);
    UserClusterStatus {
        observed_generation: Some(tenant.generation),
        phase,
        message,
        conditions: conditions.map(|one| one.at(&before.conditions, now)).collect(),
        kubeconfig_fingerprint: tenant.kubeconfig_fingerprint.clone(),
        vms: count(|view| view.vms),
        nodes: count(|view| view.nodes),
    }
}

/// Facts about a `LabelPropagation`.
#[derive(Debug, Clone, Default)]
pub struct PolicyFacts<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    pub rules: &'a [Rule],
    /// Why it cannot be read.
    pub fault: Option<&'a str>,
    /// Conflicts with other policies, a sentence for each.
    pub conflicts: &'a [String],
    /// UserClusters that it selects.
    pub clusters: usize,
    /// Nodes to which a rule applies.
    pub tally: PolicyTally,
}

/// Reason of a LabelPropagation that is not accepted because a rule can never apply.
pub const PROTECTED_TARGET: &str = "ProtectedTarget";

/// The first rule that can never apply: its path, and why.
pub fn useless_rule(rules: &[Rule]) -> Option<String> {
    let mut found = rules.iter().enumerate();
    found.find_map(|(at, rule)| Some(format!("spec.labels[{at}]: {}", guard::never_applies(rule)?)))
}

/// The status of a `LabelPropagation`, with transition times from the previous status `before`.
/// `now` is RFC 3339.
pub fn label_propagation(
    before: &LabelPropagationStatus,
    facts: &PolicyFacts<'_>,
    now: &str,
) -> LabelPropagationStatus {
    let conflicts = facts.conflicts;
    let accepted = |holds, reason, message| Condition::new("Accepted", holds, reason, message);
    let accepted = match (facts.fault, useless_rule(facts.rules)) {
        (Some(fault), _) => accepted(ConditionStatus::False, "Invalid", fault.to_owned()),
        (None, Some(why)) => accepted(ConditionStatus::False, PROTECTED_TARGET, why),
        (None, None) if facts.clusters == 0 => {
            let message =
                "every rule is valid, but spec.clusterSelector selects no UserCluster: nothing is written";
            accepted(ConditionStatus::True, "SelectsNothing", message.to_owned())
        }
        (None, None) => accepted(
            ConditionStatus::True,
            "Accepted",
            "every rule is valid".to_owned(),
        ),
    };
    let conflicted = if conflicts.is_empty() {
        let message = "no other object has a different rule for the same key".to_owned();
        Condition::new("Conflicted", ConditionStatus::False, "NoConflict", message)
    } else {
        Condition::new(
            "Conflicted",
            ConditionStatus::True,
            "Conflict",
            conflicts.join("; "),
        )
    };
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    LabelPropagationStatus {
        observed_generation: Some(facts.generation),
        clusters: count(facts.clusters),
        nodes: count(facts.tally.nodes),
        in_sync: count(facts.tally.in_sync),
        drifted: count(facts.tally.nodes - facts.tally.in_sync),
        r#unsafe: count(facts.tally.not_safe),
        conditions: [accepted, conflicted]
            .map(|condition| condition.at(&before.conditions, now))
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::labels::policy::Source;

    use super::*;
    use crate::{mla::settings::MlaCondition, tenants::TenantState};

    #[test]
    fn transition_times_change_only_with_the_status() {
        let mut tenant = TenantEntry {
            generation: 3,
            ..TenantEntry::default()
        };
        let first = user_cluster(&UserClusterStatus::default(), &tenant, None, None, "t1");
        assert_eq!(
            (first.phase, first.observed_generation),
            (ClusterPhase::Pending, Some(3))
        );
        assert_eq!(user_cluster(&first, &tenant, None, None, "t2"), first);
        tenant.state = TenantState::Unreachable("no route".to_owned());
        let dark = user_cluster(&first, &tenant, None, None, "t3");
        assert_eq!(
            (dark.phase, dark.message.as_str()),
            (ClusterPhase::Unreachable, "no route")
        );
        let since = &dark.conditions[0].last_transition_time;
        assert_eq!(since, "t1", "still not ready: no transition");
        tenant.state = TenantState::Ready;
        let ready = user_cluster(&dark, &tenant, None, None, "t4");
        assert_eq!(ready.phase, ClusterPhase::Ready);
        assert_eq!(ready.conditions[0].last_transition_time, "t4");
        let denied = user_cluster(&ready, &tenant, None, Some("not allowed"), "t5");
        assert_eq!(
            (denied.conditions[1].kind.as_str(), denied.conditions[1].status),
            (NODE_CONDITIONS_WRITTEN, ConditionStatus::False)
        );
        tenant.mla = Some(MlaCondition {
            configured: false,
            reason: "SecretMissing",
            message: "Secret a/b does not exist".to_owned(),
        });
        let with_mla = user_cluster(&ready, &tenant, None, None, "t5");
        assert_eq!(
            (
                with_mla.conditions[1].kind.as_str(),
                with_mla.conditions[1].status
            ),
            (MLA_CONFIGURED, ConditionStatus::False)
        );
        tenant.expiry = Some("its token expires".to_owned());
        let expires = user_cluster(&ready, &tenant, None, None, "t5");
        assert_eq!(
            (expires.phase, expires.message.as_str()),
            (ClusterPhase::Ready, "its token expires; its Nodes are watched")
        );
        tenant.suspend = true;
        assert_eq!(
            user_cluster(&ready, &tenant, None, None, "t5").phase,
            ClusterPhase::Suspended
        );
    }

    #[test]
    fn a_hibernated_cluster_is_not_unreachable() {
        let no_answer = || TenantState::Unreachable("no answer".to_owned());
        let failed = TenantState::Failed("too large".to_owned());
        let pending = TenantState::default();
        for (hibernates, state, phase) in [
            (true, no_answer(), ClusterPhase::Hibernated),
            (true, pending, ClusterPhase::Hibernated),
            (true, TenantState::Connecting, ClusterPhase::Hibernated),
            (true, TenantState::Ready, ClusterPhase::Suspended),
            (true, failed, ClusterPhase::Failed),
            (false, no_answer(), ClusterPhase::Unreachable),
        ] {
            let tenant = TenantEntry {
                state,
                hibernates,
                suspend: true,
                ..TenantEntry::default()
            };
            let status = user_cluster(&UserClusterStatus::default(), &tenant, None, None, "t");
            assert_eq!(status.phase, phase, "{:?}", tenant.state);
            let reason = status.conditions[0].reason.as_str();
            assert_eq!(
                reason == "Hibernated",
                phase == ClusterPhase::Hibernated,
                "{reason}"
            );
        }
    }

    #[test]
    fn a_policy_is_accepted_or_has_a_reason() {
        let facts = PolicyFacts {
            clusters: 2,
            tally: PolicyTally {
                nodes: 5,
                in_sync: 2,
                not_safe: 1,
            },
            ..PolicyFacts::default()
        };
        let good = label_propagation(&LabelPropagationStatus::default(), &facts, "t1");
        assert_eq!(label_propagation(&good, &facts, "t2"), good);
        let counted = (
            good.clusters,
            good.nodes,
            good.in_sync,
            good.drifted,
            good.r#unsafe,
        );
        assert_eq!(counted, (2, 5, 2, 3, 1));
        let unused = PolicyFacts {
            clusters: 0,
            ..facts.clone()
        };
        let idle = label_propagation(&good, &unused, "t2");
        let accepted = &idle.conditions[0];
        assert_eq!(
            (accepted.status, accepted.reason.as_str()),
            (ConditionStatus::True, "SelectsNothing")
        );
        let conflicts = ["b".to_owned()];
        let facts = PolicyFacts {
            fault: Some("labels[0]: x"),
            conflicts: &conflicts,
            ..facts
        };
        let bad = label_propagation(&good, &facts, "t3");
        let say = bad
            .conditions
            .iter()
            .map(|one| (one.status, one.last_transition_time.as_str()));
        assert_eq!(
            say.collect::<Vec<_>>(),
            [(ConditionStatus::False, "t3"), (ConditionStatus::True, "t3")]
        );
        let rules = ["rack", "kubernetes.io/hostname"].map(|key| Rule {
            source: Source::Key(key.into()),
            target: None,
            mode: None,
            takeover: None,
        });
        let facts = PolicyFacts {
            rules: &rules,
            ..PolicyFacts::default()
        };
        let never = label_propagation(&good, &facts, "t4");
        assert_eq!(never.conditions[0].reason, PROTECTED_TARGET);
        assert!(
            never.conditions[0]
                .message
                .starts_with("spec.labels[1]: kubernetes.io/hostname")
        );
    }
}
