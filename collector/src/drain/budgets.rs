//! PodDisruptionBudgets: whether a pod could be evicted now, by the rules of the API server's
//! eviction subresource (`pkg/registry/core/pod/storage/eviction.go`).

use std::collections::BTreeMap;

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
    core::Object,
};
use serde::Deserialize;

use crate::paged_list::{ListError, list};

/// Maximum budgets that are named for a pod.
const MAX_NAMED: usize = 5;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetSpec {
    #[serde(default)]
    selector: Option<LabelSelector>,
    #[serde(default)]
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BudgetStatus {
    disruptions_allowed: i32,
    current_healthy: i32,
    desired_healthy: i32,
}

/// A PodDisruptionBudget.
pub(super) type BudgetFields = Object<BudgetSpec, BudgetStatus>;

/// All budgets of a cluster.
///
/// # Errors
/// The list cannot be read.
pub(super) async fn read(client: &Client) -> Result<Vec<BudgetFields>, ListError> {
    let resource = ApiResource::erase::<PodDisruptionBudget>(&());
    let api: Api<BudgetFields> = Api::all_with(client.clone(), &resource);
    list(&api, ListParams::default()).await
}

/// Name of a budget in its namespace.
pub(super) fn name(budget: &BudgetFields) -> String {
    budget.metadata.name.clone().unwrap_or_default()
}

pub(super) fn selecting<'a>(
    namespace: &str,
    labels: Option<&BTreeMap<String, String>>,
    budgets: &'a [BudgetFields],
) -> Vec<&'a BudgetFields> {
    let get = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let selects = |budget: &&BudgetFields| {
        let selector = budget.spec.selector.as_ref();
        budget.metadata.namespace.as_deref() == Some(namespace)
            && selector.is_some_and(|selector| matches(selector, get))
    };
    budgets.iter().filter(selects).take(MAX_NAMED).collect()
}

/// Whether labels match. Of `policy/v1`, an empty selector matches all pods, and none matches no
/// pod.
fn matches<'a>(selector: &LabelSelector, get: impl Fn(&str) -> Option<&'a str>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut others = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| get(key) == Some(value))
        && others.all(|one| {
            let value = get(&one.key);
            let is_listed = value.is_some_and(|value| one.values.iter().flatten().any(|item| item == value));
            match one.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Why a pod with these budgets cannot be evicted now; none: it can.
pub(super) fn refusal(selecting: &[&BudgetFields], is_ready: bool) -> Option<String> {
    let budget = match selecting {
        [] => return None,
        [budget] => budget,
        several => {
            let names: Vec<String> = several.iter().map(|budget| name(budget)).collect();
            return Some(format!(
                "the PodDisruptionBudgets {} select it, and Kubernetes evicts no pod of more than one",
                names.join(", ")
            ));
        }
    };
    let status = budget.status.clone().unwrap_or_default();
    let is_healthy = status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
    let always = budget.spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
    if status.disruptions_allowed > 0 || !is_ready && (always || is_healthy) {
        return None;
    }
    Some(format!(
        "PodDisruptionBudget {} allows no eviction now: {} of {} required pods are healthy",
        name(budget),
        status.current_healthy,
        status.desired_healthy
    ))
}
