//! Checks the infra cluster's API server: whether it answers, rights, definitions, and the leader.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use super::{CheckResult, CheckStatus, authority, definitions, features, mla, node_conditions, rights};
use crate::{config::CollectorConfig, inventory::cluster, leader};

/// Minor version of the oldest Kubernetes 1 that the tests run on (`make oldest-kubernetes`).
const OLDEST_MINOR: u32 = 20;

/// A client for `inventory.cluster`, or the failed check.
pub(super) async fn client(config: &CollectorConfig) -> Result<Client, CheckResult> {
    let Some(settings) = &config.inventory.cluster else {
        return Err(CheckResult::fail(
            "inventory.cluster",
            "not set",
            "virtfleet-collector check-config",
        ));
    };
    cluster::client(settings).await.map_err(|error| {
        let next = match &settings.kubeconfig {
            Some(file) => format!("kubectl --kubeconfig {file} config view --minify"),
            None => "ls -l /var/run/secrets/kubernetes.io/serviceaccount".to_owned(),
        };
        CheckResult::fail("inventory.cluster", format!("{error:#}"), next)
    })
}

/// Whether the API server answers, with its version.
pub(super) async fn version(client: &Client) -> CheckResult {
    const WHAT: &str = "API server";
    const NEXT: &str = "kubectl get --raw /version";
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => return CheckResult::fail(WHAT, format!("does not answer: {error}"), NEXT),
    };
    let detail = format!("answers, Kubernetes {}", version.git_version);
    // Some vendors add a plus sign.
    let minor = version.minor.trim_end_matches('+').parse::<u32>();
    if version.major == "1" && minor.is_ok_and(|minor| minor < OLDEST_MINOR) {
        let detail = format!("{detail}; 1.{OLDEST_MINOR} is the oldest that is tested");
        return CheckResult::warn(WHAT, detail, "kubectl version");
    }
    CheckResult::ok(WHAT, detail)
}

/// All checks against the API server. `now` is in seconds since 1970.
pub(super) async fn check(config: &CollectorConfig, client: &Client, now: u64) -> Vec<CheckResult> {
    let answers = version(client).await;
    if answers.status == CheckStatus::Fail {
        return vec![answers];
    }
    let mut results = vec![answers];
    let election = &config.leader_election;
    let namespace = leader::namespace(election.namespace.as_deref(), client);
    let lease = election
        .enabled
        .then_some((namespace.as_str(), election.name.as_str()));
    results.extend(rights::check(config, client, &namespace, lease, None).await);
    results.extend(features::check(config, client, &namespace, None).await);
    results.extend(definitions::check(client, CheckStatus::Fail).await);
    results.extend(node_conditions::check(client).await);
    results.extend(mla::user_clusters(client).await);
    results.extend(authority::secret(config, client, &namespace, now).await);
    match lease {
        Some((namespace, name)) => results.push(lease_result(client, namespace, name).await),
        None => results.push(CheckResult::ok(
            "lease",
            "leaderElection.enabled is false: this collector writes without a Lease",
        )),
    }
    results
}

pub(super) async fn lease_result(client: &Client, namespace: &str, name: &str) -> CheckResult {
    const WHAT: &str = "lease";
    let next = format!("kubectl -n {namespace} get lease {name} -o yaml");
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let spec = match api.get_opt(name).await {
        Err(error) => {
            return CheckResult::fail(WHAT, format!("{namespace}/{name} cannot be read: {error}"), next);
        }
        Ok(found) => found.and_then(|lease| lease.spec).unwrap_or_default(),
    };
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let (Some(holder), Some(renewed)) = (holder, spec.renew_time) else {
        let detail = format!("{namespace}/{name} is free: no collector leads, so nothing is written");
        return CheckResult::warn(WHAT, detail, next);
    };
    let age = Timestamp::now().as_second() - renewed.0.as_second();
    let detail = format!(
        "{namespace}/{name} is held by {holder}, renewed {} s ago",
        age.max(0)
    );
    if age > i64::from(spec.lease_duration_seconds.unwrap_or_default()) {
        return CheckResult::warn(
            WHAT,
            format!("{detail} and has expired: no collector leads"),
            next,
        );
    }
    CheckResult::ok(WHAT, detail)
}
