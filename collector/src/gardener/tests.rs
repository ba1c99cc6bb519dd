use std::{fs, path::Path};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::BodyExt as _;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use virtfleet_delivery::osc::PATH_IN_IMAGE;

use super::{
    args::GardenerArgs,
    items::load,
    metrics::WebhookMetrics,
    server::{MAX_BODY_BYTES, Webhook, router},
};

/// The authority of the examples.
const AUTHORITY: &str = include_str!("../../../cloud-init/fleet-ca.crt");
const DELIVERY: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n\
                        tls: {enrolment: true, clientCA: ca.crt}\n";

fn args(folder: &Path, delivery: &str) -> GardenerArgs {
    fs::write(folder.join("ca.crt"), AUTHORITY).unwrap();
    let file = folder.join("delivery.yaml");
    fs::write(&file, delivery).unwrap();
    GardenerArgs {
        delivery: file,
        image: "registry.example.org/virtfleet-agent:1".to_owned(),
        path: PATH_IN_IMAGE.to_owned(),
        address: ([127, 0, 0, 1], 0).into(),
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        probe_address: ([127, 0, 0, 1], 0).into(),
        check: false,
    }
}

/// The problems of a Delivery.
fn problems(delivery: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    load(&args(folder.path(), delivery)).unwrap_err().join("\n")
}

fn review(operation: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": operation, "namespace": "shoot--a--b", "name": "osc", "object": object},
    })
}

fn object(purpose: &str) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": "osc", "namespace": "shoot--a--b"},
        "spec": {"purpose": purpose, "type": "flatcar", "files": []},
    })
}

/// A webhook and its metrics.
struct Running {
    router: axum::Router,
    registry: Registry,
}

impl Running {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let items = load(&args(folder.path(), DELIVERY)).unwrap();
        let mut registry = Registry::default();
        let metrics = WebhookMetrics::register(&mut registry);
        let router = router(Webhook::new(items, metrics));
        Self { router, registry }
    }

    async fn send(&self, method: Method, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
        let request = Request::builder()
            .method(method)
            .uri("/mutate")
            .body(body.into())
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes().to_vec(),
        )
    }

    async fn response(&self, review: &Value) -> Value {
        let (status, body) = self.send(Method::POST, review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["kind"], &body["response"]["uid"]),
            (&json!("AdmissionReview"), &json!("u-1"))
        );
        assert_eq!(body["response"]["allowed"], true);
        body["response"].clone()
    }

    /// The number of requests with this result.
    fn counted(&self, result: &str) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let name = format!("admissions_total{{result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
    }
}

#[tokio::test]
async fn a_review_is_answered_with_a_patch_a_warning_or_neither() {
    let running = Running::new();
    let response = running.response(&review("CREATE", &object("reconcile"))).await;
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    assert!(
        patch.iter().any(|one| one["path"] == "/spec/files/-"),
        "{patch:?}"
    );
    assert_eq!(running.counted("patched"), "1");

    let unchanged = json!({"uid": "u-1", "allowed": true});
    assert_eq!(
        running.response(&review("UPDATE", &object("provision"))).await,
        unchanged
    );
    assert_eq!(
        running.response(&review("DELETE", &object("reconcile"))).await,
        unchanged
    );
    let mut status = review("UPDATE", &object("reconcile"));
    status["request"]["subResource"] = "status".into();
    assert_eq!(running.response(&status).await, unchanged);
    let mut without = review("CREATE", &Value::Null);
    without["request"].as_object_mut().unwrap().remove("object");
    assert_eq!(running.response(&without).await, unchanged);
    assert_eq!(running.counted("skipped"), "4");

    let mut odd = object("reconcile");
    odd["spec"]["files"] = 7.into();
    let response = running.response(&review("CREATE", &odd)).await;
    assert!(
        response["warnings"][0].as_str().unwrap().contains("spec.files"),
        "{response}"
    );
    assert!(response.get("patch").is_none(), "{response}");
    assert_eq!(running.counted("conflict"), "1");
}

#[tokio::test]
async fn what_is_no_review_gets_400_and_what_is_too_large_413() {
    let running = Running::new();
    let mut other_version = review("CREATE", &object("reconcile"));
    other_version["apiVersion"] = "admission.k8s.io/v1beta1".into();
    let mut without_uid = review("CREATE", &object("reconcile"));
    without_uid["request"]["uid"] = "".into();
    let bad = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "\u{0}".to_owned(),
        "[".repeat(100_000),
        json!("x".repeat(100_000)).to_string(),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 7}})
            .to_string(),
        other_version.to_string(),
        without_uid.to_string(),
    ];
    let expected = bad.len();
    for body in bad {
        let start: String = body.chars().take(80).collect();
        let (status, reason) = running.send(Method::POST, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{start}");
        assert!(
            (1..400).contains(&reason.len()),
            "{start}: {} bytes",
            reason.len()
        );
    }
    assert_eq!(running.counted("malformed"), expected.to_string());
    let (status, _) = running.send(Method::POST, vec![b' '; MAX_BODY_BYTES + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let (status, _) = running.send(Method::GET, Body::empty()).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

/// A Delivery has a meaning here, and a mistake is reported before anything is admitted.
#[test]
fn a_delivery_that_cannot_be_used_is_refused_with_its_line() {
    let with = |more: &str| format!("{DELIVERY}{more}\n");
    let plain = DELIVERY.lines().take(2).collect::<Vec<_>>().join("\n");
    for (delivery, words) in [
        (
            with("agent: {file: ca.crt, sources: [{url: \"https://x/y\"}]}"),
            ":4: agent: remove it",
        ),
        (with("platform: kkp"), ":4: platform: remove it"),
        (with("settings: {disk: []}"), ":4: settings.disk"),
        (
            with("files: [{path: /etc/x, from: ../ca.crt}]"),
            "name a file in the same folder",
        ),
        (
            with("files: [{path: /etc/x, from: absent}]"),
            "absent cannot be read",
        ),
        (
            format!("{plain}\ntls: {{certificate: ca.crt, key: ca.crt, clientCA: ca.crt}}\n"),
            ":3: tls: set enrolment: true",
        ),
        (
            format!("{plain}\ntls: {{enrolment: true}}\n"),
            "/api/v1/ca/clients.pem",
        ),
        (
            format!("{plain}\ntls: {{enrolment: true, clientCA: delivery.yaml}}\n"),
            "tls.clientCA",
        ),
        (plain.clone(), "settings.server.tls"),
    ] {
        let found = problems(&delivery);
        assert!(found.contains(words), "{words}: {found}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut args = args(folder.path(), DELIVERY);
    args.image = "registry.example.org/virtfleet-agent".to_owned();
    assert!(load(&args).unwrap_err()[0].starts_with("--agent.image: "));
    args.delivery = folder.path().join("absent");
    args.image.push_str(":1");
    assert!(load(&args).unwrap_err()[0].contains("--delivery"));
}
