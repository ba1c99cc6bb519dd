//! A hostile API server of a user cluster, behind a valid kubeconfig.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, Uri, header::LOCATION},
    response::{IntoResponse as _, Response},
};
use futures_util::stream;
use kube::Api;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{
    super::{
        failure::WatchFailure,
        kinds::Kind,
        object::Object,
        reflector::{Reflector, ReflectorEvent},
        resource_cache::ResourceCache,
    },
    *,
};
use crate::tls_testing::TlsListener;

/// Starts a server that answers with `answer`; returns its clients.
async fn server(answer: impl Fn(Uri) -> Response + Clone + Send + Sync + 'static) -> ClusterClients {
    install_crypto();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(move |uri: Uri| {
        let answer = answer.clone();
        async move { answer(uri) }
    });
    let tls = TlsListener(listener, TlsAcceptor::from(Arc::new(tls)));
    tokio::spawn(async move { axum::serve(tls, router).await });
    let (ca, token) = (k8s_openapi::ByteString(ca.pem().into_bytes()), "t");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("https://{address}"), "certificate-authority-data": ca } }],
        "users": [{ "name": "u", "user": { "token": token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    let url = Uri::from_static("https://198.51.100.7:6443");
    let rules = DialRules::new(vec!["127.0.0.0/8".parse().unwrap()], Vec::new(), 0);
    let policy = ConnectionPolicy::new(rules, &url);
    tenant(kubeconfig.to_string().as_bytes(), &policy).await.unwrap()
}

/// The first failure of a reflector with a limit of 100 Nodes.
async fn failure(clients: ClusterClients) -> WatchFailure {
    let cluster = "prod".parse().unwrap();
    let api = Api::all_with(clients.watch_client, &Kind::UserNode.resource());
    let mut follower: Reflector<Object> = Reflector::tenant(api, 100);
    let mut cache = ResourceCache::new(Kind::UserNode, Some(cluster));
    loop {
        let described = follower.next().await;
        if let Some(why) = cache.exceeds(&described, 100) {
            return follower.reject(why);
        }
        cache.take(&described);
        if let ReflectorEvent::Failed(failure) = described {
            return failure;
        }
    }
}

/// An endless body that repeats a text.
fn endless(text: &'static str) -> Body {
    let chunk = bytes::Bytes::from(text.repeat(64 * 1024 / text.len()));
    Body::from_stream(stream::repeat_with(move || {
        Ok::<_, std::convert::Infallible>(chunk.clone())
    }))
}

fn list(items: &[serde_json::Value], more: &str) -> Response {
    axum::Json(json!({ "metadata": { "resourceVersion": "1", "continue": more }, "items": items }))
        .into_response()
}

fn node(name: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name, "uid": "u" } })
}

#[tokio::test]
async fn failures_contain_no_text_of_errors() {
    for code in [401, 403, 404, 422, 500, 302] {
        let status = StatusCode::from_u16(code).unwrap();
        let clients = server(move |_| {
            (
                status,
                [(LOCATION, "https://169.254.169.254/")],
                endless("hunter2 "),
            )
                .into_response()
        });
        let failure = failure(clients.await).await;
        assert_eq!(failure.code, Some(code), "{failure:?}");
        assert!(!failure.message.contains("hunter2"), "{failure:?}");
        assert!(failure.message.len() < 200 && !failure.over_limit, "{failure:?}");
    }
    // Nor of a malformed response or an error in the stream of a watch.
    let clients = server(|_| r#"{"items":["hunter2"],"metadata":"hunter2"}"#.into_response());
    let found = failure(clients.await).await;
    assert!(
        found.message.contains("does not have the expected form"),
        "{found:?}"
    );
    assert!(!found.message.contains("hunter2"), "{found:?}");
    let clients = server(|uri| {
        if !uri.to_string().contains("watch=true") {
            return list(&[], "");
        }
        let error = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "hunter2", "code": 500 });
        format!("{}\n", json!({ "type": "ERROR", "object": error })).into_response()
    });
    let found = failure(clients.await).await;
    assert_eq!(
        (found.code, found.message.contains("hunter2")),
        (Some(500), false),
        "{found:?}"
    );
}

#[tokio::test]
async fn lists_lines_pages_and_nodes_have_limits() {
    let clients = server(|_| endless(" ").into_response());
    let found = failure(clients.await).await;
    assert!(
        found.over_limit && found.message.contains("a response has more than"),
        "{found:?}"
    );

    let clients = server(|uri| {
        if uri.to_string().contains("watch=true") {
            endless("x").into_response()
        } else {
            list(&[], "")
        }
    });
    let found = failure(clients.await).await;
    assert!(
        found.over_limit && found.message.contains("an object has more than"),
        "{found:?}"
    );

    // Always the same Node, and always another page.
    let clients = server(|_| list(&[node("a")], "more"));
    let found = failure(clients.await).await;
    assert!(
        found.over_limit && found.message.contains("more than 100 objects"),
        "{found:?}"
    );

    let clients = server(|_| list(&vec![json!({}); 10_000], ""));
    let found = failure(clients.await).await;
    assert!(
        found.over_limit && found.message.contains("than the 32 requested objects"),
        "{found:?}"
    );

    // A watch that sends ever more Nodes.
    let count = Arc::new(AtomicUsize::new(0));
    let clients = server(move |uri| {
        if !uri.to_string().contains("watch=true") {
            return list(&[], "");
        }
        let count = Arc::clone(&count);
        Body::from_stream(stream::repeat_with(move || {
            let name = format!("n-{}", count.fetch_add(1, Ordering::Relaxed));
            let line = format!("{}\n", json!({ "type": "ADDED", "object": node(&name) }));
            Ok::<_, std::convert::Infallible>(bytes::Bytes::from(line))
        }))
        .into_response()
    });
    let found = failure(clients.await).await;
    assert!(
        found.over_limit && found.message.contains("more than 100 objects"),
        "{found:?}"
    );
}

#[tokio::test]
async fn one_large_node_is_named_and_the_others_are_read() {
    let mut large = node("large");
    let labels = (0..5000).map(|n| (format!("example.com/{n}"), json!("x".repeat(60))));
    large["metadata"]["labels"] = serde_json::Value::Object(labels.collect());
    let clients = server(move |uri| {
        if uri.to_string().contains("watch=true") {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        } else {
            list(&[node("a"), large.clone(), node("b")], "")
        }
    });
    let cluster = "prod".parse().unwrap();
    let api = Api::all_with(clients.await.watch_client, &Kind::UserNode.resource());
    let mut follower: Reflector<Object> = Reflector::tenant(api, 100);
    let mut cache = ResourceCache::new(Kind::UserNode, Some(cluster));
    loop {
        let described = follower.next().await;
        assert_eq!(cache.exceeds(&described, 100), None);
        cache.take(&described);
        if matches!(described, ReflectorEvent::Complete) {
            break;
        }
    }
    assert_eq!(cache.len(), 2);
    let problem = cache.unreadable().values().next().unwrap();
    assert!(problem.contains("more than 131072 bytes"), "{problem}");
}
