//! The reader against a server on loopback that answers what the real one does not on demand.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    response::IntoResponse as _,
};
use virtfleet_wire::{ids::VmKey, settings::Span};

use super::*;
use crate::config::{EndpointAuth, EndpointHeader};

const NOW_MS: UnixMs = 1_800_000_000_000;
const EMPTY: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;

/// What the server got: path with query, and headers.
type Got = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// A server that gives each request this answer; none: it never answers.
async fn server(answer: Option<(StatusCode, String)>) -> (SocketAddr, Got) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let got = Got::default();
    let seen = Arc::clone(&got);
    let router = Router::new().fallback(move |request: Request| {
        let path = request.uri().to_string();
        seen.lock().unwrap().push((path, request.headers().clone()));
        let answer = answer.clone();
        async move {
            match answer {
                Some(answer) => answer.into_response(),
                None => std::future::pending().await,
            }
        }
    });
    tokio::spawn(async { axum::serve(listener, router).await });
    (address, got)
}

fn settings(address: SocketAddr) -> PrometheusSettings {
    PrometheusSettings {
        url: format!("http://{address}/prometheus"),
        ..PrometheusSettings::default()
    }
}

async fn read(settings: PrometheusSettings) -> Result<UsageHistoryView, HistoryError> {
    let vm = VmKey {
        namespace: "cluster-a".parse().unwrap(),
        name: "worker-1".parse().unwrap(),
    };
    let reader = HistoryReader::new(settings, || NOW_MS);
    reader.read(HistoryRange::Day, &vm, 0).await
}

#[tokio::test]
async fn queries_go_below_the_path_of_the_url_with_headers_and_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret-of-the-operator\n").unwrap();
    let (address, got) = server(Some((StatusCode::OK, EMPTY.to_owned()))).await;
    let history = read(PrometheusSettings {
        headers: vec![EndpointHeader {
            name: "X-Scope-OrgID".to_owned(),
            value: Some("fleet".to_owned()),
            file: None,
        }],
        auth: EndpointAuth {
            token_file: Some(token.display().to_string()),
            ..EndpointAuth::default()
        },
        ..settings(address)
    })
    .await
    .unwrap();
    assert!(history.cpu_steal.iter().all(Option::is_none));
    let got = got.lock().unwrap();
    assert_eq!(got.len(), 5);
    for (path, headers) in &*got {
        assert!(
            path.starts_with("/prometheus/api/v1/query_range?query=max%5Fover"),
            "{path}"
        );
        assert!(path.ends_with("&end=1800000000&step=720"), "{path}");
        assert_eq!(headers["x-scope-orgid"], "fleet");
        assert_eq!(headers[AUTHORIZATION], "Bearer secret-of-the-operator");
    }
}

#[tokio::test]
async fn each_failure_says_what_failed() {
    let long = "x".repeat(2 << 20);
    for (status, body, expected) in [
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            r#"{"status":"error","errorType":"execution","error":"too many samples"}"#,
            "422 Unprocessable Entity: too many samples",
        ),
        (
            StatusCode::UNAUTHORIZED,
            "<html>",
            "401 Unauthorized: the answer is none of",
        ),
        (StatusCode::OK, "<html>", "the answer is none of"),
        (
            StatusCode::OK,
            &long,
            "the answer ended early or has more than 1048576 bytes",
        ),
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            EMPTY,
            "500 Internal Server Error",
        ),
    ] {
        let (address, _) = server(Some((status, body.to_owned()))).await;
        let failed = read(settings(address)).await;
        let Err(HistoryError::Failed(why)) = failed else {
            panic!("{expected}: {failed:?}");
        };
        assert!(why.starts_with(expected), "{why}");
    }
    let (address, _) = server(None).await;
    let slow = read(PrometheusSettings {
        timeout: Span(Duration::from_millis(200)),
        ..settings(address)
    });
    assert_eq!(slow.await, Err(HistoryError::Timeout(Duration::from_millis(200))));
    let missing = read(PrometheusSettings {
        auth: EndpointAuth {
            token_file: Some("/no/such/file".to_owned()),
            ..EndpointAuth::default()
        },
        ..settings(address)
    });
    let Err(HistoryError::Failed(why)) = missing.await else {
        panic!("a file is missing");
    };
    assert!(
        why.starts_with("prometheus.auth.tokenFile: /no/such/file cannot be read: "),
        "{why}"
    );
}
