use std::{convert::Infallible, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::*;
use crate::leader::WriteAccess;

/// Clusters of the seed.
const CLUSTERS: usize = 500;
/// Time until each answer.
const LATENCY: Duration = Duration::from_millis(100);

fn clusters() -> Value {
    let cluster = |number: usize| {
        let name = format!("c{number:03}");
        json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
            "metadata": { "name": name, "uid": format!("uid-{name}") },
            "spec": { "cloud": { "kubevirt": {} } },
            "status": { "namespaceName": format!("cluster-{name}") },
        })
    };
    let items: Vec<_> = (0..CLUSTERS).map(cluster).collect();
    json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "ClusterList", "metadata": {}, "items": items,
    })
}

/// The answer to a request. Every tenth kubeconfig is never read.
async fn answer(method: &str, path: &str, body: &[u8]) -> Value {
    sleep(LATENCY).await;
    if method == "POST" {
        let mut made: Value = serde_json::from_slice(body).unwrap();
        made["metadata"]["uid"] = "uid".into();
        return made;
    }
    if path.ends_with("0/secrets/viewer-kubeconfig") {
        std::future::pending::<()>().await;
    }
    if path.ends_with("/viewer-kubeconfig") {
        return json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "viewer-kubeconfig" },
            "data": { "kubeconfig": STANDARD.encode("k") },
        });
    }
    if path.ends_with("/clusters") {
        return clusters();
    }
    json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [] })
}

/// A client of an infra cluster that is the seed, too. `made` gets the paths of the lists to which
/// objects are added.
fn client(made: &Arc<Mutex<Vec<String>>>) -> Client {
    let made = Arc::clone(made);
    let service = tower::service_fn(move |request: Request<Body>| {
        let made = Arc::clone(&made);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (method, path) = (parts.method.as_str(), parts.uri.path());
            let reply = answer(method, path, &body).await;
            if method == "POST" {
                made.lock().unwrap().push(path.to_owned());
            }
            Ok::<_, Infallible>(Response::new(Body::from(reply.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn clusters_that_do_not_answer_delay_no_cycle() {
    let source = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "ClusterSource",
        "metadata": { "name": "seed" }, "spec": { "kind": "KKP" },
    });
    let made = Arc::default();
    let cycle = SourceCycle {
        infra: Arc::new(SourceInfra::new(client(&made), WriteAccess::fixed(true))),
        tenants: Arc::default(),
        accounts: Arc::new(Accounts::new()),
        source: Arc::new(serde_json::from_value(source).unwrap()),
    };
    let begun = Instant::now();
    let report = cycle.run().await;
    let lasted = begun.elapsed();
    assert!(lasted <= Duration::from_secs(30), "{lasted:?}");
    let made = made.lock().unwrap();
    let count = |end: &str| made.iter().filter(|path| path.ends_with(end)).count();
    assert_eq!((count("/userclusters"), count("/secrets")), (500, 450));
    assert_eq!(
        (report.reason, report.managed),
        (ReadyReason::CredentialsFailed, 500)
    );
    let finding = &report.findings()[0];
    assert!(
        finding
            .message
            .starts_with("cluster source seed: c000: reading its kubeconfig")
            && finding
                .message
                .ends_with("took more than 5 seconds (and 49 more)"),
        "{finding:?}"
    );
}
