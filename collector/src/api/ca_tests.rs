use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    api::{self, testing},
    ca::{CaService, CaStore},
    leader::{LeaseView, WriteAccess},
};

fn router(ca: Option<CaService>) -> Router {
    let mut state = testing::state(testing::TestFleet::new(testing::fleet()));
    state.ca = ca;
    api::router(state)
}

/// A service with a new authority in a folder.
async fn stored(folder: &std::path::Path, write_access: WriteAccess) -> CaService {
    let store = CaStore::folder(folder.join("ca"), "example.org");
    let authorities = store.load_or_create(1_767_225_600).await.unwrap();
    CaService::of(store, authorities, write_access)
}

fn standby() -> WriteAccess {
    WriteAccess::standby_of(LeaseView {
        name: "virtfleet/virtfleet-collector".into(),
        holder: Some("collector-x7k_00ff".into()),
    })
}

async fn send(
    router: Router,
    method: Method,
    path: &str,
    media_type: &str,
    body: impl Into<Body>,
) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, media_type);
    let answer = router.oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const ROTATE: &str = "/api/v1/ca/rotate";

async fn rotate(router: Router, body: &Value) -> (u16, Value) {
    let (status, body) = send(router, Method::POST, ROTATE, "application/json", body.to_string()).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn a_root_is_rotated_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let service = stored(folder.path(), WriteAccess::fixed(false)).await;
    let (status, body) = rotate(router(Some(service)), &json!({ "root": "clients" })).await;
    assert_eq!(status, 200, "{body}");
    let roles: Vec<_> = body["roots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|root| (root["kind"].as_str().unwrap(), root["role"].as_str().unwrap()))
        .collect();
    assert_eq!(
        roles,
        [
            ("agents", "signs"),
            ("clients", "signs"),
            ("clients", "trusted"),
            ("clients", "crossSigned")
        ]
    );
    assert!(!body.to_string().contains("PRIVATE"));
    let stored = std::fs::read_to_string(folder.path().join("ca/clients.crt")).unwrap();
    assert_eq!(stored.matches("BEGIN CERTIFICATE").count(), 2);
}

#[tokio::test]
async fn the_roots_of_clients_are_text_for_user_data() {
    let (status, text) = send(
        router(Some(CaService::in_memory())),
        Method::GET,
        "/api/v1/ca/clients.pem",
        "text/plain",
        "",
    )
    .await;
    assert_eq!(status, 200);
    assert!(
        text.starts_with("-----BEGIN CERTIFICATE-----\n") && text.ends_with("-----END CERTIFICATE-----\n")
    );
    assert!(!text.contains("PRIVATE"));
}

#[tokio::test]
async fn a_standby_refers_to_the_leader_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let service = stored(folder.path(), standby()).await;
    let before = std::fs::read(folder.path().join("ca/agents.crt")).unwrap();
    let (status, body) = rotate(router(Some(service)), &json!({ "root": "agents" })).await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (503, Some("not_leading"))
    );
    assert!(
        body["error"]["remedy"]
            .as_str()
            .unwrap()
            .contains("pod/collector-x7k"),
        "{body}"
    );
    assert_eq!(
        std::fs::read(folder.path().join("ca/agents.crt")).unwrap(),
        before
    );
}

#[tokio::test]
async fn a_refused_rotation_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let service = stored(folder.path(), WriteAccess::fixed(true)).await;
    for _ in 0..3 {
        let (status, body) = rotate(router(Some(service.clone())), &json!({ "root": "clients" })).await;
        assert_eq!(status, 200, "{body}");
    }
    let (status, body) = rotate(router(Some(service.clone())), &json!({ "root": "clients" })).await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (409, Some("ca_refused"))
    );
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("--drop-oldest"),
        "{body}"
    );
    let (status, _) = rotate(
        router(Some(service)),
        &json!({ "root": "clients", "dropOldest": true }),
    )
    .await;
    assert_eq!(status, 200);
    // A folder that cannot be written.
    let (status, body) = rotate(router(Some(CaService::in_memory())), &json!({ "root": "agents" })).await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (503, Some("ca_unavailable"))
    );
}

#[tokio::test]
async fn without_enrolment_there_is_no_authority() {
    for path in ["/api/v1/ca", "/api/v1/ca/clients.pem"] {
        let (status, body) = send(router(None), Method::GET, path, "text/plain", "").await;
        assert_eq!(status, 404);
        assert!(body.contains("enrolment.trustDomain"), "{body}");
    }
    assert_eq!(rotate(router(None), &json!({ "root": "agents" })).await.0, 404);
}

/// A page of another origin can make a browser send these types without asking first.
#[tokio::test]
async fn a_change_must_be_json() {
    let router = router(Some(CaService::in_memory()));
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let body = r#"{"root":"agents"}"#;
        let (status, body) = send(router.clone(), Method::POST, ROTATE, media_type, body).await;
        assert_eq!(status, 415);
        assert!(body.contains("unsupported_media_type"), "{body}");
    }
    for (body, expected) in [
        ("", "invalid_body"),
        (r#"{"root":"servers"}"#, "unknown variant"),
        (r#"{"root":"agents","dropAll":true}"#, "unknown field"),
    ] {
        let (status, text) = send(router.clone(), Method::POST, ROTATE, "application/json", body).await;
        assert!(status == 400 && text.contains(expected), "{text}");
    }
    let large = " ".repeat(70_000);
    let (status, _) = send(router.clone(), Method::POST, ROTATE, "application/json", large).await;
    assert_eq!(status, 413);
    let (status, text) = send(
        router,
        Method::POST,
        "/api/v1/ca/rotate?force=1",
        "application/json",
        r#"{"root":"agents"}"#,
    )
    .await;
    assert!(status == 400 && text.contains("unknown_parameter"), "{text}");
}

#[tokio::test]
async fn each_path_names_its_methods() {
    for (method, path, remedy) in [
        (Method::GET, ROTATE, "use POST"),
        (Method::HEAD, ROTATE, ""),
        (Method::DELETE, ROTATE, "use POST"),
        (Method::POST, "/api/v1/ca", "use GET or HEAD"),
        (Method::POST, "/api/v1/vms/a/b", "use GET or HEAD"),
    ] {
        let router = router(Some(CaService::in_memory()));
        let (status, body) = send(router, method.clone(), path, "application/json", "{}").await;
        assert!(status == 405 && body.contains(remedy), "{method} {path}: {body}");
    }
}
