//! The logs of the collectors, with the caller's own rights in their namespace: `list` of pods and
//! `get` of `pods/log`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use tokio::time::timeout;

use super::part::{BundlePart, PartContent};

/// Label of the packaged pods.
const PODS: &str = "app.kubernetes.io/name=virtfleet-collector";
/// Their container.
const CONTAINER: &str = "collector";
/// Maximum pods whose logs are read.
const MAX_PODS: usize = 8;
/// Only lines of the last hour are read.
const LOG_SECONDS: i64 = 3600;
/// Maximum lines of a pod; the newest ones are read.
const MAX_LINES: i64 = 5000;
/// Maximum bytes of these lines.
const MAX_BYTES: i64 = 4 << 20;
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The log of each collector; what cannot be read is added to `missing`.
pub(super) async fn collect(client: &Client, namespace: &str, missing: &mut Vec<String>) -> Vec<BundlePart> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(PODS);
    let found = match in_time(pods.list(&selected)).await {
        Ok(list) => list.items,
        Err(why) => {
            missing.push(by_hand("logs", &why, namespace));
            return Vec::new();
        }
    };
    let names: Vec<String> = found.into_iter().filter_map(|pod| pod.metadata.name).collect();
    if names.is_empty() {
        missing.push(by_hand("logs", "no pod has the label", namespace));
    } else if names.len() > MAX_PODS {
        let why = format!("there are {} pods, and only {MAX_PODS} are read", names.len());
        missing.push(by_hand("logs of all pods", &why, namespace));
    }
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        since_seconds: Some(LOG_SECONDS),
        tail_lines: Some(MAX_LINES),
        limit_bytes: Some(MAX_BYTES),
        ..LogParams::default()
    };
    let mut parts = Vec::new();
    for pod in names.iter().take(MAX_PODS) {
        let name = format!("logs/{pod}.txt");
        match in_time(pods.logs(pod, &parameters)).await {
            Ok(text) => parts.push(BundlePart {
                name,
                about: "log of a collector, the last hour",
                content: PartContent::Text(text),
            }),
            Err(why) => missing.push(by_hand(&name, &why, namespace)),
        }
    }
    parts
}

/// What is missing, why, and the command that shows it.
pub(super) fn by_hand(name: &str, why: &str, namespace: &str) -> String {
    let command = format!("kubectl -n {namespace} logs -l {PODS} --since=1h --tail={MAX_LINES}");
    format!("{name}: {why}; by hand: {command}")
}

/// The response to a request, or why there is none.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the API server does not answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server with two pods, which denies the log of the second one.
    fn client(may_list: bool) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let uri = request.uri();
            let (code, text): (u16, String) = match uri.path() {
                "/api/v1/namespaces/fleet/pods" if may_list => {
                    let items = ["c-1", "c-2"].map(|name| json!({ "metadata": { "name": name } }));
                    let list =
                        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
                    (200, list.to_string())
                }
                "/api/v1/namespaces/fleet/pods/c-1/log" => {
                    let query = uri.query().unwrap_or_default();
                    (200, query.to_owned())
                }
                _ => {
                    let status = json!({
                        "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                        "message": "pods is forbidden",
                    });
                    (403, status.to_string())
                }
            };
            let response = Response::builder().status(code);
            let response = response.body(Body::from(text.into_bytes()));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        });
        Client::new(service, "fleet")
    }

    #[tokio::test]
    async fn logs_are_read_as_far_as_the_caller_may() {
        let mut missing = Vec::new();
        let parts = collect(&client(true), "fleet", &mut missing).await;
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].name, "logs/c-1.txt");
        let PartContent::Text(query) = &parts[0].content else {
            panic!("not a text");
        };
        for part in [
            "container=collector",
            "sinceSeconds=3600",
            "tailLines=5000",
            "limitBytes=4194304",
        ] {
            assert!(query.contains(part), "{query}");
        }
        let denied = |missing: &[String], name: &str| {
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert!(missing[0].starts_with(name), "{missing:?}");
            for part in ["forbidden", "kubectl -n fleet logs -l "] {
                assert!(missing[0].contains(part), "{missing:?}");
            }
        };
        denied(&missing, "logs/c-2.txt: ");
        missing.clear();
        assert!(collect(&client(false), "fleet", &mut missing).await.is_empty());
        denied(&missing, "logs: ");
    }
}
