//! The object that runs the collectors: the packaged Deployment, or a StatefulSet if each replica
//! has a volume for its queues.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{PodSpec, Volume},
};
use kube::{Api, Client};

use super::CheckResult;

/// Name of the Deployment or StatefulSet, and of the collector's ServiceAccount.
pub(super) const COLLECTOR: &str = "virtfleet-collector";

/// What the Deployment or StatefulSet of the collectors says.
#[derive(Debug)]
pub struct Workload {
    /// `Deployment` or `StatefulSet`.
    pub kind: &'static str,
    /// Replicas that it should have.
    pub wanted: i32,
    /// Replicas that are available.
    pub available: i32,
    /// Its pods.
    pod: PodSpec,
    /// There is a Deployment as well as a StatefulSet.
    is_double: bool,
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
    fn of(deployment: Option<Deployment>, set: Option<StatefulSet>) -> Option<Self> {
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
            pod: spec.template.spec.unwrap_or_default(),
            is_double,
        })
    }

    /// Name of the ConfigMap with the settings that the pods mount. kustomize adds a hash to it.
    #[must_use]
    pub fn settings_name(&self) -> Option<&str> {
        let map = self.volume("config")?.config_map.as_ref()?;
        Some(map.name.as_str())
    }

    /// A volume of the pods.
    pub(super) fn volume(&self, name: &str) -> Option<&Volume> {
        let mut volumes = self.pod.volumes.iter().flatten();
        volumes.find(|volume| volume.name == name)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An object with `replicas` wanted, and this status.
    fn object<T: serde::de::DeserializeOwned>(replicas: i32, status: &serde_json::Value) -> Option<T> {
        let volumes = json!([{ "name": "config", "configMap": { "name": "virtfleet-settings-abc" } }]);
        let pod = json!({ "containers": [], "volumes": volumes });
        serde_json::from_value(json!({
            "metadata": { "name": COLLECTOR },
            "spec": {
                "replicas": replicas, "selector": {}, "serviceName": COLLECTOR, "template": { "spec": pod },
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_stateful_set_is_read_like_a_deployment() {
        let status = json!({ "replicas": 2, "availableReplicas": 1, "readyReplicas": 2 });
        let deployment = || object(3, &status);
        let only = Workload::of(deployment(), None).unwrap();
        assert_eq!((only.kind, only.wanted, only.available), ("Deployment", 3, 1));
        assert_eq!(only.settings_name(), Some("virtfleet-settings-abc"));
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
