//! `virtfleetctl install check`: checks an installation on an infra cluster from outside, with the
//! credentials of an admin.
//!
//! ```text
//! API server ─ KubeVirt ─▶ workload ─┬▶ definitions ─ certificate
//!                                    └▶ settings ─▶ rights of its account ─ authority ─ Lease
//! ```

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client, api::ListParams};
use virtfleet_runtime::tls::Validity;
use virtfleet_wire::layered::Fragment;

use super::{
    CheckResult, CheckStatus, authority, definitions, features, mla, node_conditions, rights, server,
    workload::{COLLECTOR, Workload},
};
use crate::config::CollectorConfig;

/// Key of the settings in their ConfigMap.
const SETTINGS_KEY: &str = "collector.yaml";
/// The trust domain of the shipped settings.
const EXAMPLE_DOMAIN: &str = "virtfleet.example";
/// A certificate that is valid for less than this is reported, in seconds.
const EXPIRY_WARNING: u64 = 14 * 86_400;
/// Group of KubeVirt's API.
const KUBEVIRT: &str = "kubevirt.io";

/// Results of the checks, and whether there is a collector that can be queried.
#[derive(Debug)]
pub struct Installation {
    /// One result for each check, in the order of diagnosis.
    pub results: Vec<CheckResult>,
    /// The Deployment or StatefulSet has an available replica.
    pub is_available: bool,
}

/// All checks that need only the API server. `now` is in seconds since 1970.
pub async fn installation(client: &Client, namespace: &str, now: u64) -> Installation {
    let answers = server::version(client).await;
    let mut found = Installation {
        is_available: false,
        results: vec![answers],
    };
    let results = &mut found.results;
    if results[0].status == CheckStatus::Fail {
        return found;
    }
    results.push(kubevirt(client).await);
    let workload = match Workload::find(client, namespace).await {
        Ok(Some(workload)) => workload,
        Ok(None) => {
            results.push(CheckResult::fail(
                "Deployment",
                format!("{namespace}/{COLLECTOR} does not exist"),
                format!(
                    "helm install virtfleet packaging/helm/virtfleet -n {namespace} --create-namespace \
                     --set trustDomain=NAME"
                ),
            ));
            return found;
        }
        Err(error) => {
            results.push(CheckResult::fail(
                "Deployment",
                format!("{namespace}/{COLLECTOR} cannot be read: {error}"),
                format!("kubectl -n {namespace} get deployment {COLLECTOR}"),
            ));
            return found;
        }
    };
    found.is_available = workload.available > 0;
    results.push(replicas_result(client, namespace, &workload).await);
    results.extend(workload.double(namespace));
    results.extend(definitions::check(client).await);
    results.push(certificate(client, namespace, &workload, now).await);
    let (result, config) = settings(client, namespace, &workload).await;
    results.push(result);
    let Some(config) = config else { return found };
    let election = &config.leader_election;
    let lease = election.enabled.then_some((namespace, election.name.as_str()));
    results.extend(rights::check(&config, client, namespace, lease, Some(COLLECTOR)).await);
    results.extend(features::check(&config, client, namespace, Some(COLLECTOR)).await);
    results.extend(node_conditions::check(client).await);
    results.extend(mla::user_clusters(client).await);
    results.extend(authority::secret(&config, client, namespace, now).await);
    if let Some((namespace, name)) = lease {
        results.push(server::lease_result(client, namespace, name).await);
    }
    found
}

/// Whether the API server has KubeVirt's kinds.
async fn kubevirt(client: &Client) -> CheckResult {
    const NEXT: &str = "kubectl get crd virtualmachineinstances.kubevirt.io";
    match client.list_api_groups().await {
        Err(error) => CheckResult::warn(KUBEVIRT, format!("cannot be read: {error}"), NEXT),
        Ok(groups) => {
            let group = groups.groups.iter().find(|group| group.name == KUBEVIRT);
            let versions = group.map(|group| group.versions.iter().map(|one| one.version.as_str()));
            let versions: Vec<&str> = versions.into_iter().flatten().collect();
            if versions.contains(&"v1") {
                CheckResult::ok(KUBEVIRT, "KubeVirt's kinds are installed, version v1")
            } else {
                let detail = match versions.as_slice() {
                    [] => "KubeVirt is not installed: this is not an infra cluster".to_owned(),
                    others => format!("KubeVirt has no version v1, only {}", others.join(", ")),
                };
                CheckResult::fail(KUBEVIRT, detail, NEXT)
            }
        }
    }
}

/// Whether all replicas are available; else the reason of the first container that waits.
async fn replicas_result(client: &Client, namespace: &str, workload: &Workload) -> CheckResult {
    let (what, wanted, available) = (workload.kind, workload.wanted, workload.available);
    let detail = format!("{available} of {wanted} replicas are available");
    if available >= wanted {
        return CheckResult::ok(what, detail);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = format!("app.kubernetes.io/name={COLLECTOR}");
    let pods = pods.list(&ListParams::default().labels(&selector)).await;
    let reason = pods.ok().and_then(|pods| pods.items.iter().find_map(waiting));
    let next = format!("kubectl -n {namespace} describe pods -l {selector}");
    let detail = match reason {
        Some(reason) => format!("{detail}: {reason}"),
        None => detail,
    };
    if available == 0 {
        CheckResult::fail(what, detail, next)
    } else {
        CheckResult::warn(what, detail, next)
    }
}

/// Why a container of the pod does not run, or why the pod is not scheduled.
fn waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = waiting.next() {
        let reason = waiting.reason.as_deref().unwrap_or("waiting");
        return Some(match &waiting.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason.to_owned(),
        });
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled =
        conditions.find(|condition| condition.status == "False" && condition.message.is_some())?;
    unscheduled.message.clone()
}

/// The settings in the ConfigMap that the pods mount.
async fn settings(
    client: &Client,
    namespace: &str,
    workload: &Workload,
) -> (CheckResult, Option<CollectorConfig>) {
    const WHAT: &str = "settings";
    let name = workload.settings_name().unwrap_or(COLLECTOR);
    let next = format!("kubectl -n {namespace} get configmap {name} -o yaml");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let text = match maps.get_opt(name).await {
        Err(error) => Err(format!("{namespace}/{name} cannot be read: {error}")),
        Ok(map) => map
            .and_then(|map| map.data?.remove(SETTINGS_KEY))
            .ok_or_else(|| format!("{namespace}/{name} does not exist, or has no key {SETTINGS_KEY}")),
    };
    let text = match text {
        Ok(text) => text,
        Err(detail) => return (CheckResult::fail(WHAT, detail, next), None),
    };
    let file = SETTINGS_KEY.to_owned();
    let loaded = CollectorConfig::load(&[Fragment { file, text }]);
    if let Some(problem) = loaded.problems.first() {
        return (CheckResult::fail(WHAT, problem.to_string(), next), None);
    }
    let config = loaded.value;
    let domain = config
        .enrolment
        .as_ref()
        .map(|enrolment| enrolment.trust_domain.as_str());
    let result = if domain == Some(EXAMPLE_DOMAIN) {
        let detail =
            format!("enrolment.trustDomain is the example {EXAMPLE_DOMAIN}, and cannot be changed later");
        let next = "helm upgrade --reuse-values --set trustDomain=NAME, before the first VM joins";
        CheckResult::warn(WHAT, detail, next)
    } else {
        CheckResult::ok(WHAT, format!("{namespace}/{name}: all keys are valid"))
    };
    (result, Some(config))
}

/// The certificate of the API: whether the Secret has all files, and how long it is valid.
async fn certificate(client: &Client, namespace: &str, workload: &Workload, now: u64) -> CheckResult {
    const WHAT: &str = "certificate of the API";
    let source = workload.volume("tls").and_then(|volume| volume.secret.as_ref());
    let name = source.and_then(|source| source.secret_name.as_deref());
    let Some(name) = name else {
        return CheckResult::ok(WHAT, "the pods mount no Secret");
    };
    let next = format!("kubectl -n {namespace} describe secret {name}");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = match secrets.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return CheckResult::warn(
                WHAT,
                format!("you may not read the Secret {namespace}/{name}"),
                next,
            );
        }
        Err(error) => {
            return CheckResult::fail(WHAT, format!("{namespace}/{name} cannot be read: {error}"), next);
        }
        Ok(None) => {
            return CheckResult::fail(
                WHAT,
                format!("the Secret {namespace}/{name} does not exist"),
                next,
            );
        }
        Ok(Some(secret)) => secret.data.unwrap_or_default(),
    };
    let certificate = ["tls.crt", "server.crt"]
        .into_iter()
        .find_map(|key| data.get(key));
    let Some(certificate) = certificate else {
        return CheckResult::fail(
            WHAT,
            format!("{namespace}/{name} has neither tls.crt nor server.crt"),
            next,
        );
    };
    match Validity::of_first(&certificate.0) {
        Err(reason) => CheckResult::fail(WHAT, format!("{namespace}/{name} {reason}"), next),
        Ok(valid) => {
            let left = valid.not_after.saturating_sub(now);
            let detail = format!("{namespace}/{name}: {} d left", left / 86_400);
            if left == 0 {
                CheckResult::fail(WHAT, format!("{namespace}/{name} has expired"), next)
            } else if left < EXPIRY_WARNING {
                CheckResult::warn(WHAT, detail, next)
            } else {
                CheckResult::ok(WHAT, detail)
            }
        }
    }
}
