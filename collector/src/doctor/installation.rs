//! `virtfleetctl install check`: checks an installation on an infra cluster from outside, with the
//! credentials of an admin.
//!
//! ```text
//! API server ─ KubeVirt ─ caller ─▶ workload ─┬▶ version ─ roles ─ definitions ─ certificate
//!                                             ├▶ settings ─▶ rights of its account ─ authority ─ Lease
//!                                             └▶ user clusters ─ objects of Prometheus
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client, api::ListParams};
use virtfleet_runtime::tls::Validity;
use virtfleet_wire::layered::Fragment;

use super::{
    CheckResult, CheckStatus, authority,
    caller::{self, CallerWay},
    definitions, features, mla,
    monitoring::{self, MonitoringOrigin},
    node_conditions, rights, server, user_clusters,
    versions::{OWN, compare},
    workload::{COLLECTOR, OpenRollout, Workload},
};
use crate::config::CollectorConfig;

/// Key of the settings in their ConfigMap.
const SETTINGS_KEY: &str = "collector.yaml";
/// The trust domain of the shipped settings.
const EXAMPLE_DOMAIN: &str = "virtfleet.example";
/// A certificate that is valid for less than this is reported, in seconds.
const EXPIRY_WARNING: u64 = 14 * 86_400;
/// What the check of the API's certificate is called.
const CERTIFICATE: &str = "certificate of the API";
const PODS: &str = "app.kubernetes.io/name=virtfleet-collector";
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

/// All checks that need only the API server. `now` is in seconds since 1970. `caller_ways` are
/// those on which virtfleetctl sends requests to the collector; none if they do not pass the API
/// server. After `limit` the checks that remain are left out.
pub async fn installation(
    client: &Client,
    namespace: &str,
    now: u64,
    caller_ways: &[CallerWay],
    limit: Duration,
) -> Installation {
    let mut found = Installation {
        is_available: false,
        results: Vec::new(),
    };
    let checks = check_all(client, namespace, now, caller_ways, &mut found);
    let is_complete = tokio::time::timeout(limit, checks).await.is_ok();
    if !is_complete {
        let detail = format!(
            "the checks took {} s; those after the last one above are missing",
            limit.as_secs()
        );
        let next = "kubectl get --raw /readyz?verbose";
        found.results.push(CheckResult::fail("time limit", detail, next));
    }
    found
}

async fn check_all(
    client: &Client,
    namespace: &str,
    now: u64,
    caller_ways: &[CallerWay],
    found: &mut Installation,
) {
    let results = &mut found.results;
    results.push(server::version(client).await);
    if results[0].status == CheckStatus::Fail {
        return;
    }
    results.push(kubevirt(client).await);
    results.push(caller::rights(client, namespace, caller_ways).await);
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
            return;
        }
        Err(error) => {
            results.push(CheckResult::fail(
                "Deployment",
                format!("{namespace}/{COLLECTOR} cannot be read: {error}"),
                format!("kubectl -n {namespace} get deployment {COLLECTOR}"),
            ));
            return;
        }
    };
    found.is_available = workload.available > 0;
    results.push(replicas_result(client, namespace, &workload).await);
    results.extend(workload.double(namespace));
    results.push(version(&workload, namespace));
    results.push(caller::roles(client, namespace).await);
    results.extend(definitions::check(client, lacking(workload.version.as_deref())).await);
    let (result, config) = settings(client, namespace, &workload).await;
    let in_settings = config
        .as_ref()
        .and_then(|config| certificate_in_settings(config, |file| workload.mounts(file)));
    results.push(match in_settings {
        Some(result) => result,
        None => certificate(client, namespace, &workload, now).await,
    });
    results.push(result);
    results.extend(user_clusters::check(client).await);
    let origin = MonitoringOrigin {
        namespace,
        is_of_helm: workload.is_of_helm,
        issues_certificate: config
            .as_ref()
            .is_some_and(CollectorConfig::issues_api_certificate),
    };
    results.push(monitoring::check(client, origin).await);
    let Some(config) = config else { return };
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
}

/// The version of the chart or manifests.
fn version(workload: &Workload, namespace: &str) -> CheckResult {
    const WHAT: &str = "version of the manifests";
    let upgrade = format!(
        "helm upgrade virtfleet packaging/helm/virtfleet -n {namespace} --reset-then-reuse-values, or \
         kubectl apply -k with the manifests of {OWN}"
    );
    match &workload.version {
        Some(version) => compare(WHAT, version, upgrade),
        None => CheckResult::warn(
            WHAT,
            "unknown: the label app.kubernetes.io/version is missing, so they are older, or were changed",
            upgrade,
        ),
    }
}

/// The status of a definition that lacks fields of this version: a collector of this version needs
/// them. Manifests of an older version may have no label with it.
fn lacking(version: Option<&str>) -> CheckStatus {
    if version == Some(OWN) {
        CheckStatus::Fail
    } else {
        CheckStatus::Warn
    }
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

/// Whether all replicas are available, and of the latest version; else with the reason of the first
/// container that waits.
async fn replicas_result(client: &Client, namespace: &str, workload: &Workload) -> CheckResult {
    let rollout = workload.rollout();
    if workload.is_available() && rollout.is_none() {
        let detail = format!(
            "{} of {} replicas are available",
            workload.available, workload.wanted
        );
        return CheckResult::ok(workload.kind, detail);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(PODS)).await;
    let reason = pods.ok().and_then(|pods| pods.items.iter().find_map(waiting));
    incomplete(namespace, workload, rollout, reason)
}

/// The result for replicas that are not available or not of the latest version. `reason` is why a
/// container waits.
fn incomplete(
    namespace: &str,
    workload: &Workload,
    rollout: Option<OpenRollout>,
    reason: Option<String>,
) -> CheckResult {
    let (what, wanted, available) = (workload.kind, workload.wanted, workload.available);
    let has_stopped = rollout.as_ref().is_some_and(|rollout| rollout.has_stopped);
    // Without pods there is more to say about them than about the rollout.
    let verb = rollout.as_ref().and_then(|rollout| rollout.verb);
    let next = match verb.filter(|_| available > 0) {
        Some(verb) => format!(
            "kubectl -n {namespace} rollout {verb} {}/{COLLECTOR}",
            what.to_lowercase()
        ),
        None if wanted == 0 => format!(
            "kubectl -n {namespace} scale {}/{COLLECTOR} --replicas=2",
            what.to_lowercase()
        ),
        None => format!("kubectl -n {namespace} describe pods -l {PODS}"),
    };
    let replicas = format!("{available} of {wanted} replicas are available");
    let parts = [Some(replicas), rollout.map(|rollout| rollout.detail), reason];
    let detail = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    if has_stopped || available == 0 {
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

/// The certificate of the API as the settings say: the collector issues it, or the pods lack its
/// file, and cannot start. None: the Secret has it. `mounts` is whether a volume has a file.
fn certificate_in_settings(config: &CollectorConfig, mounts: impl Fn(&str) -> bool) -> Option<CheckResult> {
    if config.issues_api_certificate() {
        let detail = "the collector issues it, from the authority of the fleet";
        return Some(CheckResult::ok(CERTIFICATE, detail));
    }
    let file = config.server.tls.certificate.as_deref()?;
    (!mounts(file)).then(|| {
        let detail = format!("server.tls.certificate is {file}, and the pods mount no volume there");
        let next = "list the component packaging/collector/kubernetes/api-certificate in your overlay, or remove \
                    server.tls from its collector.yaml";
        CheckResult::fail(CERTIFICATE, detail, next)
    })
}

/// The certificate of the API: whether the Secret has all files, and how long it is valid.
async fn certificate(client: &Client, namespace: &str, workload: &Workload, now: u64) -> CheckResult {
    const WHAT: &str = CERTIFICATE;
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

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn checks_end_in_time_and_keep_what_they_have_found() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path() != "/version" {
                std::future::pending::<()>().await;
            }
            let version = json!({
                "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            });
            let body = Body::from(version.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::new(body))
        });
        let client = Client::new(service, "fleet");
        let found = installation(&client, "fleet", 0, &[], Duration::from_mins(1)).await;
        let results: Vec<_> = found
            .results
            .iter()
            .map(|result| (result.status, result.what.as_str()))
            .collect();
        assert_eq!(
            results,
            [(CheckStatus::Ok, "API server"), (CheckStatus::Fail, "time limit")]
        );
        assert!(!found.is_available);
    }

    #[test]
    fn definitions_fail_only_for_a_collector_of_this_version() {
        assert_eq!(lacking(Some(OWN)), CheckStatus::Fail);
        for other in [Some("0.0.1"), None] {
            assert_eq!(lacking(other), CheckStatus::Warn, "{other:?}");
        }
    }

    #[test]
    fn a_rollout_that_has_stopped_is_a_failure_although_old_pods_are_available() {
        let result = |available: i64, is_paused: bool, reason: Option<&str>| {
            let deployment = json!({
                "metadata": { "generation": 2 },
                "spec": { "replicas": 2, "paused": is_paused, "selector": {}, "template": {} },
                "status": {
                    "observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": available,
                },
            });
            let workload = Workload::of(serde_json::from_value(deployment).unwrap(), None).unwrap();
            let rollout = workload.rollout();
            incomplete("fleet", &workload, rollout, reason.map(str::to_owned))
        };
        let running = result(2, false, Some("ImagePullBackOff"));
        assert_eq!(running.status, CheckStatus::Warn);
        assert!(running.detail.ends_with(": ImagePullBackOff"), "{running:?}");
        assert!(
            running.next.starts_with("kubectl -n fleet describe pods -l "),
            "{running:?}"
        );
        let paused = result(2, true, None);
        assert_eq!(paused.status, CheckStatus::Fail);
        assert_eq!(
            paused.next,
            "kubectl -n fleet rollout resume deployment/virtfleet-collector"
        );
        assert_eq!(result(0, false, None).status, CheckStatus::Fail);

        let none = json!({ "metadata": {}, "spec": { "replicas": 0, "selector": {}, "template": {} } });
        let none = Workload::of(serde_json::from_value(none).unwrap(), None).unwrap();
        assert!(!none.is_available() && none.rollout().is_none());
        let scaled = incomplete("fleet", &none, None, None);
        assert_eq!(scaled.status, CheckStatus::Fail);
        assert!(
            scaled.next.contains("scale deployment/virtfleet-collector"),
            "{scaled:?}"
        );
    }

    #[test]
    fn a_certificate_that_the_pods_do_not_mount_is_a_failure() {
        let load = |tls: &str| {
            let text = format!(
                "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{cluster: {{}}}}\n\
                 enrolment: {{trustDomain: t}}\nserver: {{address: '0.0.0.0:1', access: {{tokenReview: {{}}}}, \
                 tls: {{{tls}}}}}\n"
            );
            let file = SETTINGS_KEY.to_owned();
            let loaded = CollectorConfig::load(&[Fragment { file, text }]);
            assert_eq!(loaded.problems, []);
            loaded.value
        };
        let status = |config: &CollectorConfig, is_mounted: bool| {
            let result = certificate_in_settings(config, |_| is_mounted);
            result.map(|result| result.status)
        };
        assert_eq!(status(&load(""), false), Some(CheckStatus::Ok));
        let given = load("certificate: /etc/virtfleet/tls/server.crt, key: k");
        assert_eq!(status(&given, true), None);
        assert_eq!(status(&given, false), Some(CheckStatus::Fail));
    }
}
