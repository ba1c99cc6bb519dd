//! Tests of the access control: who is authenticated how, what each may see, and the audit log.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use http::HeaderMap;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber as _;
use virtfleet_runtime::http::RequestPeer;

use super::{
    reviews::tests::server,
    two_tenants::{ADMIN, ALPHA},
    *,
};
use crate::{config::CertificateAccess, fleet::FleetRead};

fn headers(token: &str) -> HeaderMap {
    let value = format!("Bearer {token}").parse().unwrap();
    HeaderMap::from_iter([(TOKEN_HEADER, value)])
}

fn peer(names: Option<&[&str]>) -> RequestPeer {
    let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    RequestPeer {
        address: "10.2.0.1:40000".parse().unwrap(),
        names: names.map(own),
    }
}

fn read(namespaces: &[&str]) -> AccessNeed {
    AccessNeed::Read {
        namespaces: namespaces.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

async fn enter(
    access: &AccessControl,
    names: Option<&[&str]>,
    token: Option<&str>,
    need: &AccessNeed,
) -> Result<AccessScope, AccessError> {
    let fleet: Arc<dyn FleetRead> = two_tenants::fleet(true);
    let (peer, headers) = (peer(names), token.map(headers).unwrap_or_default());
    let request = AccessRequest {
        page: None,
        is_repeated: false,
        peer: Some(&peer),
        headers: &headers,
        method: "GET",
        path: "/api/v1/vms",
    };
    access.enter(&request, need, &*fleet).await
}

/// Access by TokenReview: alice may read the namespace ns-alpha, root everything.
fn by_review() -> (AccessControl, Arc<Mutex<Vec<Value>>>) {
    let (client, asked) = server(|spec| {
        if let Some(token) = spec["token"].as_str() {
            let known = ["alice", "mallory", "root"].contains(&token);
            return Ok(json!({
                "authenticated": known, "user": { "username": token, "groups": ["g"] }, "audiences": spec["audiences"],
            }));
        }
        let attributes = &spec["resourceAttributes"];
        let allowed = match spec["user"].as_str() {
            Some("root") => true,
            Some("alice") => attributes["namespace"] == "ns-alpha",
            _ => false,
        };
        Ok(json!({ "allowed": allowed }))
    });
    let settings = AccessSettings {
        token_review: Some(crate::config::TokenReviewSettings::default()),
        ..AccessSettings::default()
    };
    let reviews = Reviews::new(
        client,
        settings.token_review.clone().unwrap(),
        AccessMetrics::default(),
    );
    let access = AccessControl::new(&settings, None, Some(reviews), None, AccessMetrics::default());
    (access.unwrap(), asked)
}

#[tokio::test]
async fn rbac_decides_what_a_token_may_see() {
    let (access, asked) = by_review();
    let alpha = AccessScope::of_namespaces(["ns-alpha".parse().unwrap()]);
    let reviewed = |asked: &Arc<Mutex<Vec<Value>>>| -> Vec<String> {
        let all = asked.lock().unwrap();
        let rights = all.iter().filter(|spec| !spec["user"].is_null());
        let place = |spec: &Value| {
            spec["resourceAttributes"]["namespace"]
                .as_str()
                .unwrap_or("*")
                .to_owned()
        };
        rights.map(place).collect()
    };
    // Lazy: a request that names a namespace needs the review of no other.
    assert_eq!(
        enter(&access, None, Some("alice"), &read(&["ns-alpha"])).await,
        Ok(alpha.clone())
    );
    assert_eq!(reviewed(&asked), ["*", "ns-alpha"]);
    // One that names another gets what it may see, so that its answer is an empty list.
    assert_eq!(
        enter(&access, None, Some("alice"), &read(&["ns-beta"])).await,
        Ok(alpha.clone())
    );
    assert_eq!(
        enter(&access, None, Some("alice"), &read(&["no-such"])).await,
        Ok(alpha.clone())
    );
    assert_eq!(enter(&access, None, Some("alice"), &read(&[])).await, Ok(alpha));
    assert_eq!(
        enter(&access, None, Some("root"), &read(&[])).await,
        Ok(AccessScope::All)
    );
    for need in [read(&[]), read(&["ns-alpha"]), AccessNeed::ReadAll] {
        let error = enter(&access, None, Some("mallory"), &need).await.unwrap_err();
        assert!(matches!(error, AccessError::Forbidden { .. }), "{error}");
        assert!(error.to_string().contains("\"mallory\" cannot "), "{error}");
        assert!(
            error.remedy().contains("kubectl auth can-i "),
            "{}",
            error.remedy()
        );
    }
    for (token, resource, allowed) in [
        ("root", WriteResource::Vms, true),
        ("root", WriteResource::CertificateAuthorities, true),
        ("root", WriteResource::JoinTokens, true),
        ("alice", WriteResource::JoinTokens, false),
        ("alice", WriteResource::Vms, false),
        ("alice", WriteResource::CertificateAuthorities, false),
    ] {
        let done = enter(&access, None, Some(token), &AccessNeed::Write(resource)).await;
        assert_eq!(done.is_ok(), allowed, "{token}: {done:?}");
    }
    assert_eq!(
        enter(&access, None, Some("mallory"), &AccessNeed::Caller).await,
        Ok(AccessScope::nothing())
    );
    for token in [None, Some("unknown")] {
        let error = enter(&access, None, token, &AccessNeed::Caller)
            .await
            .unwrap_err();
        assert!(matches!(error, AccessError::Unauthenticated { .. }), "{error}");
        assert_eq!(
            enter(&access, None, token, &AccessNeed::Nothing).await,
            Ok(AccessScope::nothing())
        );
    }
}

#[tokio::test]
async fn a_certificate_is_used_before_a_token_and_a_static_token_before_a_review() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let line = format!(
        "sha256:{},static,namespace:ns-beta\n",
        two_tenants::sha256("alice")
    );
    crate::regular_file::write_private(&file, line.as_bytes()).unwrap();
    let (client, asked) = server(|_| Err(500));
    let settings = AccessSettings {
        token_review: Some(crate::config::TokenReviewSettings::default()),
        certificates: vec![CertificateAccess {
            name: "tenant.example".to_owned(),
            scope: vec!["namespace:ns-alpha".to_owned()],
        }],
        ..AccessSettings::default()
    };
    let reviews = Reviews::new(
        client,
        settings.token_review.clone().unwrap(),
        AccessMetrics::default(),
    );
    let tokens = StaticTokens::open(&file, Instant::now()).unwrap();
    let access = AccessControl::new(
        &settings,
        Some(tokens),
        Some(reviews),
        None,
        AccessMetrics::default(),
    );
    let access = access.unwrap();
    let of = |name: &str| AccessScope::of_namespaces([name.parse().unwrap()]);
    let tenant = Some(&["tenant.example"][..]);
    assert_eq!(
        enter(&access, tenant, Some("alice"), &read(&[])).await,
        Ok(of("ns-alpha"))
    );
    assert_eq!(
        enter(&access, Some(&["other"]), None, &read(&[])).await,
        Ok(AccessScope::All)
    );
    assert_eq!(
        enter(&access, None, Some("alice"), &read(&[])).await,
        Ok(of("ns-beta"))
    );
    assert!(asked.lock().unwrap().is_empty(), "a static token is sent nowhere");
    // Other tokens need the API server, and its failure denies.
    let error = enter(&access, None, Some("bob"), &read(&[])).await.unwrap_err();
    assert!(matches!(error, AccessError::Unavailable { .. }), "{error}");
    // By default a certificate may read everything and change nothing.
    let need = AccessNeed::Write(WriteResource::Vms);
    let error = enter(&access, Some(&["other"]), None, &need).await.unwrap_err();
    assert!(error.remedy().contains("`admin`"), "{}", error.remedy());
}

#[tokio::test]
async fn without_authentication_everything_is_allowed_and_closed_allows_nothing() {
    let open = AccessControl::open();
    for need in [
        read(&[]),
        AccessNeed::ReadAll,
        AccessNeed::Write(WriteResource::Vms),
    ] {
        assert_eq!(enter(&open, None, None, &need).await, Ok(AccessScope::All));
        enter(&AccessControl::closed(), Some(&["x"]), None, &need)
            .await
            .unwrap_err();
        enter(&AccessControl::closed(), None, Some("x"), &need)
            .await
            .unwrap_err();
    }
}

#[derive(Clone, Default)]
struct AuditLines(Arc<Mutex<Vec<u8>>>);

impl Write for AuditLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn denied_requests_and_reads_across_tenants_are_audited() {
    let lines = AuditLines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(move || writer.clone())
        .finish();
    // With a single subscriber, a call in another test, without one, would turn the line off here.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let access = two_tenants::access(false);
    async {
        for _ in 0..20 {
            enter(&access, None, Some("a wrong secret"), &read(&[]))
                .await
                .unwrap_err();
            enter(&access, None, Some("wrong-secret"), &read(&[]))
                .await
                .unwrap_err();
        }
        enter(&access, None, Some(ALPHA), &read(&[])).await.unwrap();
        enter(&access, None, Some(ALPHA), &AccessNeed::ReadAll)
            .await
            .unwrap_err();
        enter(&access, None, Some(ADMIN), &read(&["ns-beta"]))
            .await
            .unwrap();
        enter(&access, None, Some(ADMIN), &AccessNeed::Caller)
            .await
            .unwrap();
    }
    .with_subscriber(subscriber)
    .await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for secret in ["wrong-secret", ALPHA, ADMIN] {
        assert!(!text.contains(secret), "{text}");
    }
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        lines
            .iter()
            .all(|line| line["target"] == "audit" && line["client"] == "10.2.0.1"),
        "{text}"
    );
    let of = |caller: &str| -> Vec<&Value> { lines.iter().filter(|line| line["caller"] == caller).collect() };
    assert_eq!(lines.len(), 12, "{text}");
    assert_eq!(of("unknown").len(), 10, "limited: {text}");
    assert_eq!(
        (&of("unknown")[0]["result"], &of("unknown")[0]["reason"]),
        (&json!("denied"), &json!("unauthenticated"))
    );
    let [denied] = of("alpha").try_into().unwrap();
    assert_eq!(
        (&denied["reason"], &denied["path"], &denied["level"]),
        (&json!("forbidden"), &json!("/api/v1/vms"), &json!("WARN"))
    );
    assert_eq!(denied["authentication"], "static_token");
    let [across] = of("root").try_into().unwrap();
    assert_eq!(
        (&across["result"], &across["suppressed"]),
        (&json!("allowed"), &json!(0))
    );
}

#[tokio::test]
async fn a_flood_of_requests_is_limited_and_causes_no_reviews() {
    let (access, asked) = by_review();
    let fleet: Arc<dyn FleetRead> = two_tenants::fleet(true);
    let enter = async |token: Option<&str>, need: AccessNeed| {
        let (peer, headers) = (peer(None), token.map(headers).unwrap_or_default());
        let request = AccessRequest {
            page: None,
            is_repeated: false,
            peer: Some(&peer),
            headers: &headers,
            method: "GET",
            path: "/api/v1/vms",
        };
        access.enter(&request, &need, &*fleet).await
    };
    let is_limited = |result: &Result<AccessScope, AccessError>| matches!(result, Err(error @ AccessError::TooManyRequests { .. }) if error.retry_after() == Some(1));
    enter(Some("alice"), read(&[])).await.unwrap();
    let reviews_of_alice = asked.lock().unwrap().len();
    let (mut guesses, mut limited) = (0, 0);
    while limited == 0 && guesses < 100 {
        while !is_limited(&enter(None, read(&[])).await) {}
        let token = format!("guess-{guesses}");
        guesses += 1;
        limited += usize::from(is_limited(&enter(Some(&token), read(&[])).await));
    }
    assert_eq!(limited, 1, "{guesses} guesses");
    // Two audiences are tried for each token that is not limited.
    assert_eq!(
        asked.lock().unwrap().len(),
        reviews_of_alice + 2 * (guesses - limited)
    );
    // A caller with a known token has its own limit.
    let mut allowed = 1;
    while !is_limited(&enter(Some("alice"), read(&[])).await) {
        allowed += 1;
        assert!(allowed < 100_000);
    }
    assert!(allowed >= 400, "{allowed}");
    // Probes have no limit.
    enter(Some("alice"), AccessNeed::Nothing).await.unwrap();
}
