//! The label that says that a UserCluster hibernates, when its ClusterSource is deleted: nothing
//! says any more when the cluster wakes up, and with the label an outage would be no finding.

use super::{
    infra::{InfraError, SourceInfra},
    wanted,
};

/// Removes the label from UserClusters whose source is none of `sources`, the names of all of them.
pub(super) async fn wake_orphans(infra: &SourceInfra, sources: &[String]) {
    let labelled = match infra.hibernating().await {
        Ok(labelled) => labelled,
        Err(why) => {
            tracing::debug!(why, "the UserClusters that hibernate cannot be listed");
            return;
        }
    };
    for cluster in &labelled {
        // Without a source, the label has no effect.
        let source = wanted::existing(cluster).source;
        let is_orphan = source.is_some_and(|source| !sources.contains(&source));
        if is_orphan && let Err(InfraError::Request(why)) = infra.wake(cluster).await {
            tracing::warn!(
                why,
                "the label that says that a UserCluster hibernates cannot be removed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::{Client, client::Body};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        leader::WriteAccess,
        sources::{accounts::Accounts, cycle::SourceCycle, report::ReadyReason},
    };

    /// Requests that change something: path and body.
    type Patches = Arc<Mutex<Vec<(String, Value)>>>;

    /// A UserCluster with the label.
    fn user_cluster(name: &str, source: Option<&str>) -> Value {
        let mut labels = json!({ "virtfleet.io/hibernates": "true" });
        if let Some(source) = source {
            labels["virtfleet.io/cluster-source"] = source.into();
        }
        json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": "7", "labels": labels,
                "annotations": {
                    "virtfleet.io/source-cluster": format!("dev/{name}"), "virtfleet.io/source-uid": name,
                },
            },
            "spec": { "vmis": { "namespace": "shoots" }, "suspend": true },
        })
    }

    fn shoot(name: &str, is_off: bool) -> Value {
        json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": { "namespace": "dev", "name": name, "uid": name },
            "spec": { "hibernation": { "enabled": is_off } }, "status": { "technicalID": name },
        })
    }

    /// An infra cluster that is the garden, too, and the patches that it gets.
    fn infra() -> (SourceInfra, Patches) {
        let patches = Patches::default();
        let seen = Arc::clone(&patches);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let path = parts.uri.path();
                let items = match path.rsplit('/').next().unwrap() {
                    "userclusters" => vec![
                        user_cluster("off", Some("garden")),
                        user_cluster("awake", Some("garden")),
                        user_cluster("orphan", Some("deleted")),
                        user_cluster("by-hand", None),
                    ],
                    "shoots" => vec![shoot("off", true), shoot("awake", false)],
                    _ => Vec::new(),
                };
                let mut reply = json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items });
                if parts.method == http::Method::PATCH {
                    let name = path.rsplit('/').next().unwrap();
                    reply = user_cluster(name, Some("any"));
                    let body = serde_json::from_slice(&body).unwrap();
                    seen.lock().unwrap().push((path.to_owned(), body));
                }
                Ok::<_, Infallible>(Response::new(Body::from(reply.to_string().into_bytes())))
            }
        });
        let client = Client::new(service, "default");
        (SourceInfra::new(client, WriteAccess::fixed(true)), patches)
    }

    fn removal(name: &str) -> (String, Value) {
        let path = format!("/apis/virtfleet.io/v1alpha1/userclusters/{name}");
        let labels = json!({ "virtfleet.io/hibernates": null });
        (
            path,
            json!({ "metadata": { "resourceVersion": "7", "labels": labels } }),
        )
    }

    #[tokio::test]
    async fn a_deleted_source_leaves_no_label() {
        let (infra, patches) = infra();
        wake_orphans(&infra, &["garden".to_owned()]).await;
        assert_eq!(*patches.lock().unwrap(), [removal("orphan")]);
    }

    #[tokio::test]
    async fn a_suspended_source_takes_the_label_from_what_is_awake() {
        let (infra, patches) = infra();
        let source = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "ClusterSource", "metadata": { "name": "garden" },
            "spec": { "kind": "Gardener", "suspend": true, "vms": { "namespace": "shoots" } },
        });
        let cycle = SourceCycle {
            infra: Arc::new(infra),
            tenants: Arc::default(),
            accounts: Arc::new(Accounts::new()),
            source: Arc::new(serde_json::from_value(source).unwrap()),
        };
        let report = cycle.run().await;
        assert_eq!(report.reason, ReadyReason::Suspended, "{report:?}");
        assert_eq!(*patches.lock().unwrap(), [removal("awake")]);
    }
}
