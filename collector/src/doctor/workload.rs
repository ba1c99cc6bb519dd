//! The object that runs the collectors: the packaged Deployment, or a StatefulSet if each replica
//! has a volume for its queues.

use std::path::Path;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentCondition, StatefulSet},
        core::v1::{PodSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};

use super::CheckResult;

/// Label with the version of the chart or manifests.
const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Label with the tool that made an object.
const TOOL_LABEL: &str = "app.kubernetes.io/managed-by";
/// Name of the Deployment or StatefulSet, and of the collector's ServiceAccount.
pub(super) const COLLECTOR: &str = "virtfleet-collector";

/// What the Deployment or StatefulSet of the collectors says.
#[derive(Debug)]
pub struct Workload {
    /// `Deployment` or `StatefulSet`.
    pub kind: &'static str,
    /// Replicas that it should have.
    pub wanted: i32,
    pub available: i32,
    /// The version of the chart or manifests from which it was made; none if its labels lack it.
    pub(super) version: Option<String>,
    pub(super) is_of_helm: bool,
    counts: RolloutCounts,
    pod: PodSpec,
    /// There is a Deployment as well as a StatefulSet.
    is_double: bool,
}

/// What the status says about the pods of the latest spec.
#[derive(Debug)]
struct RolloutCounts {
    /// The controller has read the latest spec; the numbers are of that one.
    is_observed: bool,
    /// Pods of the latest spec.
    updated: i32,
    /// Pods of any spec.
    total: i32,
    is_paused: bool,
    /// Why the condition `Progressing` is false: `spec.progressDeadlineSeconds` have passed.
    stopped: Option<String>,
}

/// A rollout of the latest spec that is not complete. The old pods may be available meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenRollout {
    pub(super) detail: String,
    /// It does not continue by itself.
    pub(super) has_stopped: bool,
    /// The next verb of `kubectl rollout`; none: the pods show the reason.
    pub(super) verb: Option<&'static str>,
}

impl Workload {
    /// Reads it from the API server; none if there is none in this namespace.
    ///
    /// # Errors
    /// The API server does not answer, or denies reading it.
    pub async fn find(client: &Client, namespace: &str) -> Result<Option<Self>, kube::Error> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get_opt(COLLECTOR).await?;
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
        let set = match sets.get_opt(COLLECTOR).await {
            // Who may read only the Deployment sees that one.
            Err(kube::Error::Api(status)) if status.code == 403 && deployment.is_some() => None,
            read => read?,
        };
        Ok(Self::of(deployment, set))
    }

    /// A StatefulSet is preferred: it replaces the Deployment.
    pub(super) fn of(deployment: Option<Deployment>, set: Option<StatefulSet>) -> Option<Self> {
        let is_double = deployment.is_some() && set.is_some();
        if let Some(set) = set {
            let (spec, status) = (set.spec?, set.status.unwrap_or_default());
            return Some(Self {
                kind: "StatefulSet",
                wanted: spec.replicas.unwrap_or(1),
                // Kubernetes 1.21 and older know only which replicas are ready.
                available: status
                    .available_replicas
                    .or(status.ready_replicas)
                    .unwrap_or_default(),
                counts: RolloutCounts {
                    is_observed: is_observed(&set.metadata, status.observed_generation),
                    updated: status.updated_replicas.unwrap_or_default(),
                    total: status.replicas,
                    is_paused: false,
                    stopped: None,
                },
                is_of_helm: is_of_helm(&set.metadata),
                version: version(set.metadata),
                pod: spec.template.spec.unwrap_or_default(),
                is_double,
            });
        }
        let deployment = deployment?;
        let (spec, status) = (deployment.spec?, deployment.status.unwrap_or_default());
        Some(Self {
            kind: "Deployment",
            wanted: spec.replicas.unwrap_or(1),
            available: status.available_replicas.unwrap_or_default(),
            counts: RolloutCounts {
                is_observed: is_observed(&deployment.metadata, status.observed_generation),
                updated: status.updated_replicas.unwrap_or_default(),
                total: status.replicas.unwrap_or_default(),
                is_paused: spec.paused.unwrap_or_default(),
                stopped: status.conditions.iter().flatten().find_map(stopped),
            },
            is_of_helm: is_of_helm(&deployment.metadata),
            version: version(deployment.metadata),
            pod: spec.template.spec.unwrap_or_default(),
            is_double,
        })
    }

    /// Whether there are replicas, and all are available.
    pub(super) fn is_available(&self) -> bool {
        self.wanted > 0 && self.available >= self.wanted
    }

    /// The rollout of the latest spec; none if it is complete.
    pub(super) fn rollout(&self) -> Option<OpenRollout> {
        let (counts, wanted) = (&self.counts, self.wanted);
        let of_latest = format!("{} of {wanted} are of the latest version", counts.updated);
        let is_complete = counts.is_observed && counts.updated >= wanted && counts.total <= counts.updated;
        let (detail, has_stopped, verb) = if let Some(reason) = &counts.stopped {
            let detail = format!("{of_latest}, and the rollout has stopped: {reason}");
            (detail, true, None)
        } else if is_complete {
            return None;
        } else if counts.is_paused {
            (
                format!("{of_latest}, and the rollout is paused"),
                true,
                Some("resume"),
            )
        } else if counts.is_observed {
            (format!("{of_latest}, and the rollout goes on"), false, None)
        } else {
            let detail = "the controller has not read the latest version yet".to_owned();
            (detail, false, Some("status"))
        };
        Some(OpenRollout {
            detail,
            has_stopped,
            verb,
        })
    }

    /// Name of the ConfigMap with the settings that the pods mount. kustomize adds a hash to it.
    #[must_use]
    pub fn settings_name(&self) -> Option<&str> {
        let map = self.volume("config")?.config_map.as_ref()?;
        Some(map.name.as_str())
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Volume> {
        let mut volumes = self.pod.volumes.iter().flatten();
        volumes.find(|volume| volume.name == name)
    }

    /// Whether a volume is mounted at this file, or at a folder above it.
    pub(super) fn mounts(&self, file: &str) -> bool {
        let containers = self.pod.containers.iter();
        let mut mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.any(|mount| Path::new(file).starts_with(&mount.mount_path))
    }

    /// A warning if the former Deployment still runs beside the StatefulSet.
    pub(super) fn double(&self, namespace: &str) -> Option<CheckResult> {
        self.is_double.then(|| {
            CheckResult::warn(
                "Deployment",
                format!("{namespace}/{COLLECTOR} exists beside the StatefulSet that replaces it"),
                format!("kubectl -n {namespace} delete deployment {COLLECTOR}"),
            )
        })
    }
}

/// Whether Helm made the object: it adds this label to each object of a release.
fn is_of_helm(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.get(TOOL_LABEL).is_some_and(|tool| tool == "Helm"))
}

/// Whether the status is about the latest spec.
fn is_observed(metadata: &ObjectMeta, observed: Option<i64>) -> bool {
    observed >= metadata.generation
}

/// Why a Deployment does not progress, if the condition says so.
fn stopped(condition: &DeploymentCondition) -> Option<String> {
    let is_false = condition.type_ == "Progressing" && condition.status == "False";
    is_false.then(|| {
        let texts = [&condition.reason, &condition.message].map(|text| text.as_deref().unwrap_or_default());
        texts.join(": ")
    })
}

/// The version in the labels of an object.
fn version(metadata: ObjectMeta) -> Option<String> {
    metadata.labels?.remove(VERSION_LABEL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An object with `replicas` wanted, and this status.
    fn object<T: serde::de::DeserializeOwned>(replicas: i32, status: &serde_json::Value) -> Option<T> {
        let volumes = json!([{ "name": "config", "configMap": { "name": "virtfleet-settings-abc" } }]);
        let mounts = json!([{ "name": "tls", "mountPath": "/etc/virtfleet/tls" }]);
        let containers = json!([{ "name": "collector", "volumeMounts": mounts }]);
        let pod = json!({ "containers": containers, "volumes": volumes });
        serde_json::from_value(json!({
            "metadata": { "name": COLLECTOR, "labels": { VERSION_LABEL: "0.0.9" } },
            "spec": {
                "replicas": replicas, "selector": {}, "serviceName": COLLECTOR, "template": { "spec": pod },
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_is_seen_although_the_old_pods_are_available() {
        let complete = json!({
            "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            "conditions": [{ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" }],
        });
        let rollout = |status: &serde_json::Value, is_paused: bool| {
            let mut deployment: Deployment = object(2, status).unwrap();
            deployment.metadata.generation = Some(2);
            deployment.spec.as_mut().unwrap().paused = Some(is_paused);
            Workload::of(Some(deployment), None).unwrap().rollout()
        };
        assert_eq!(rollout(&complete, false), None);
        assert_eq!(rollout(&complete, true), None, "nothing is left to do");
        let with = |changes: serde_json::Value| {
            let mut status = complete.clone();
            for (key, value) in changes.as_object().unwrap() {
                status[key] = value.clone();
            }
            status
        };
        let deadline = json!([{
            "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out",
        }]);
        let running = with(json!({ "replicas": 3, "updatedReplicas": 1 }));
        for (status, is_paused, has_stopped, verb, words) in [
            (&running, false, false, None, "1 of 2 are of the latest version"),
            (&running, true, true, Some("resume"), "paused"),
            // Both new pods, and the old ones, which are those that are available.
            (&with(json!({ "replicas": 4 })), false, false, None, "goes on"),
            (
                &with(json!({ "observedGeneration": 1 })),
                false,
                false,
                Some("status"),
                "not read",
            ),
            (
                &with(json!({ "observedGeneration": null })),
                false,
                false,
                Some("status"),
                "not read",
            ),
            (
                &with(json!({ "replicas": 4, "conditions": deadline })),
                false,
                true,
                None,
                "stopped: ProgressDeadlineExceeded: timed out",
            ),
        ] {
            let found = rollout(status, is_paused).unwrap();
            assert_eq!((found.has_stopped, found.verb), (has_stopped, verb), "{found:?}");
            assert!(found.detail.contains(words), "{words}: {found:?}");
        }
        let mut set: StatefulSet = object(2, &running).unwrap();
        set.metadata.generation = Some(2);
        let found = Workload::of(None, Some(set)).unwrap().rollout().unwrap();
        assert!(!found.has_stopped, "{found:?}");
    }

    #[test]
    fn a_stateful_set_is_read_like_a_deployment() {
        let status = json!({ "replicas": 2, "availableReplicas": 1, "readyReplicas": 2 });
        let deployment = || object(3, &status);
        let only = Workload::of(deployment(), None).unwrap();
        assert_eq!((only.kind, only.wanted, only.available), ("Deployment", 3, 1));
        assert_eq!(only.settings_name(), Some("virtfleet-settings-abc"));
        assert_eq!(only.version.as_deref(), Some("0.0.9"));
        assert!(!only.is_of_helm);
        let mut of_helm: Deployment = deployment().unwrap();
        let labels = of_helm.metadata.labels.get_or_insert_default();
        labels.insert(TOOL_LABEL.to_owned(), "Helm".to_owned());
        assert!(Workload::of(Some(of_helm), None).unwrap().is_of_helm);
        assert!(only.mounts("/etc/virtfleet/tls/server.crt"));
        assert!(!only.mounts("/etc/virtfleet/tls-2/server.crt"));
        assert!(only.double("virtfleet").is_none());

        let set = Workload::of(None, object(2, &status)).unwrap();
        assert_eq!((set.kind, set.wanted, set.available), ("StatefulSet", 2, 1));
        assert_eq!(set.settings_name(), Some("virtfleet-settings-abc"));
        let old = json!({ "replicas": 2, "readyReplicas": 2 });
        assert_eq!(Workload::of(None, object(2, &old)).unwrap().available, 2);

        let both = Workload::of(deployment(), object(2, &status)).unwrap();
        assert_eq!(both.kind, "StatefulSet");
        let warning = both.double("fleet").unwrap();
        assert_eq!(
            warning.next,
            "kubectl -n fleet delete deployment virtfleet-collector"
        );
        assert!(Workload::of(None, None).is_none());
    }
}
