//! What the statuses of our objects say. `publish` writes them.

use virtfleet_collector_core::view::{ClusterState, ClusterView};

use super::{Condition, ConditionStatus, LabelPropagationStatus, Phase, UserClusterStatus};
use crate::tenants::Tenant;

/// The status of a `UserCluster` that stood at `before`. `now` is RFC 3339.
pub fn user_cluster(
    before: &UserClusterStatus,
    tenant: &Tenant,
    view: Option<&ClusterView>,
    now: &str,
) -> UserClusterStatus {
    let (state, message) = tenant.stand();
    let (phase, holds, reason) = match state {
        ClusterState::Pending => (Phase::Pending, ConditionStatus::False, "NoKubeconfig"),
        // To whoever waits for the object, this is one more thing to wait for.
        ClusterState::Connecting => (Phase::Pending, ConditionStatus::False, "Connecting"),
        ClusterState::Unreachable => (Phase::Unreachable, ConditionStatus::False, "Unreachable"),
        ClusterState::Ready => (Phase::Ready, ConditionStatus::True, "Watching"),
        ClusterState::Suspended => (Phase::Suspended, ConditionStatus::True, "Watching"),
    };
    let count = |of: fn(&ClusterView) -> usize| {
        let count = view.map_or(0, of);
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let ready = Condition::new("Ready", holds, reason, message.clone());
    UserClusterStatus {
        observed_generation: Some(tenant.generation),
        phase,
        message,
        conditions: vec![ready.at(&before.conditions, now)],
        vms: count(|view| view.vms),
        nodes: count(|view| view.nodes),
    }
}

/// The status of a `LabelPropagation` that stood at `before`: `fault` is why it cannot be used, `conflicts` name the objects
/// that ask for something else. `now` is RFC 3339.
pub fn label_propagation(
    before: &LabelPropagationStatus,
    generation: i64,
    fault: Option<&str>,
    conflicts: &[String],
    now: &str,
) -> LabelPropagationStatus {
    let accepted = match fault {
        None => {
            let message = "every rule can be used".to_owned();
            Condition::new("Accepted", ConditionStatus::True, "Accepted", message)
        }
        Some(fault) => Condition::new("Accepted", ConditionStatus::False, "Invalid", fault.to_owned()),
    };
    let conflicted = if conflicts.is_empty() {
        let message = "no other object asks for something else".to_owned();
        Condition::new("Conflicted", ConditionStatus::False, "NoConflict", message)
    } else {
        Condition::new(
            "Conflicted",
            ConditionStatus::True,
            "Conflict",
            conflicts.join("; "),
        )
    };
    LabelPropagationStatus {
        observed_generation: Some(generation),
        conditions: [accepted, conflicted]
            .map(|condition| condition.at(&before.conditions, now))
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::TenantState;

    #[test]
    fn a_status_changes_only_with_what_it_says() {
        let mut tenant = Tenant {
            generation: 3,
            ..Tenant::default()
        };
        let first = user_cluster(&UserClusterStatus::default(), &tenant, None, "t1");
        assert_eq!(
            (first.phase, first.observed_generation),
            (Phase::Pending, Some(3))
        );
        assert_eq!(user_cluster(&first, &tenant, None, "t2"), first);
        tenant.state = TenantState::Unreachable("it is dark".to_owned());
        let dark = user_cluster(&first, &tenant, None, "t3");
        assert_eq!(
            (dark.phase, dark.message.as_str()),
            (Phase::Unreachable, "it is dark")
        );
        let since = &dark.conditions[0].last_transition_time;
        assert_eq!(since, "t1", "not ready before, and not ready now");
        tenant.state = TenantState::Ready;
        let ready = user_cluster(&dark, &tenant, None, "t4");
        assert_eq!(ready.phase, Phase::Ready);
        assert_eq!(ready.conditions[0].last_transition_time, "t4");
        tenant.suspend = true;
        assert_eq!(user_cluster(&ready, &tenant, None, "t5").phase, Phase::Suspended);
    }

    #[test]
    fn a_policy_is_accepted_or_says_why_not() {
        let good = label_propagation(&LabelPropagationStatus::default(), 1, None, &[], "t1");
        assert_eq!(label_propagation(&good, 1, None, &[], "t2"), good);
        let bad = label_propagation(&good, 2, Some("labels[0]: x"), &["b".to_owned()], "t3");
        let say = bad
            .conditions
            .iter()
            .map(|one| (one.status, one.last_transition_time.as_str()));
        assert_eq!(
            say.collect::<Vec<_>>(),
            [(ConditionStatus::False, "t3"), (ConditionStatus::True, "t3")]
        );
    }
}
