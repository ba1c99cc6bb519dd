//! The checks against a server on loopback, with answers that the real one does not give on demand.

use axum::{
    Router,
    extract::{Query, Request},
    http::HeaderMap,
};
use virtfleet_wire::{layered::Fragment, settings::Span};

use super::*;

/// The answer to a query, or to another path.
type Answers = fn(&str) -> (StatusCode, String);

/// A server whose queries need this token, if there is one.
async fn server(answers: Answers, token: Option<&'static str>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(
        move |headers: HeaderMap, Query(query): Query<BTreeMap<String, String>>, request: Request| async move {
            let bearer = token.map(|token| format!("Bearer {token}"));
            let sent = headers.get("authorization").and_then(|value| value.to_str().ok());
            if bearer.as_deref() != sent {
                return (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
            }
            answers(query.get("query").map_or(request.uri().path(), String::as_str))
        },
    );
    tokio::spawn(async { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn counted(count: u64) -> (StatusCode, String) {
    let result = match count {
        0 => String::new(),
        _ => format!(r#"{{"metric":{{}},"value":[1.5,"{count}"]}}"#),
    };
    let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#);
    (StatusCode::OK, body)
}

fn retains(text: &str) -> (StatusCode, String) {
    let body = format!(r#"{{"status":"success","data":{{"storageRetention":"{text}"}}}}"#);
    (StatusCode::OK, body)
}

/// A server that has everything.
fn complete(asked: &str) -> (StatusCode, String) {
    match asked {
        RUNTIME_INFO => retains("15d"),
        _ => counted(3),
    }
}

async fn checked(url: &str, more: &str) -> Vec<CheckResult> {
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\nprometheus: {{ url: '{url}'{more} }}\n"
    );
    let file = "c.yaml".to_owned();
    let loaded = CollectorConfig::load(&[Fragment { file, text }]);
    assert_eq!(loaded.problems, []);
    check(&loaded.value, 0).await
}

fn states(results: &[CheckResult]) -> Vec<(&str, CheckStatus)> {
    results
        .iter()
        .map(|one| (one.what.as_str(), one.status))
        .collect()
}

#[tokio::test]
async fn a_server_that_has_everything_is_ok() {
    let found = checked(&server(complete, None).await, "").await;
    let ok = [FILES, SERVER, SERIES, RETENTION].map(|what| (what, CheckStatus::Ok));
    assert_eq!(states(&found), ok, "{found:?}");
    assert!(
        found[2].detail.starts_with("3 VMs have node_cpu_seconds_total"),
        "{found:?}"
    );
    let config = CollectorConfig::default();
    assert_eq!(states(&check(&config, 0).await), [(FILES, CheckStatus::Ok)]);
    assert_eq!(states(&files(&config, 0).await), [(FILES, CheckStatus::Ok)]);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_and_nothing_is_sent() {
    let url = server(complete, None).await;
    let found = checked(&url, ", auth: { tokenFile: /nonexistent/token }").await;
    assert_eq!(states(&found), [(FILES, CheckStatus::Fail)]);
    assert!(
        found[0]
            .detail
            .starts_with("prometheus.auth.tokenFile: /nonexistent/token"),
        "{found:?}"
    );
    assert_eq!(found[0].next, "ls -l /nonexistent/token");
    let found = checked(&url, ", tls: { ca: /nonexistent/ca }").await;
    assert_eq!(states(&found), [("prometheus.tls.ca", CheckStatus::Fail)]);
}

#[tokio::test]
async fn a_server_that_refuses_or_does_not_answer_fails() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let auth = format!(", auth: {{ tokenFile: {} }}", token.display());
    let guarded = server(complete, Some("s3cret")).await;
    assert_eq!(checked(&guarded, &auth).await.len(), 4);
    std::fs::write(&token, "another\n").unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let other: Answers = |_| (StatusCode::NOT_FOUND, "404 page not found".to_owned());
    for (url, more, detail, next) in [
        (
            guarded.clone(),
            auth.as_str(),
            "refuses the credentials: 401",
            "correct prometheus.auth",
        ),
        (
            guarded.clone(),
            "",
            "refuses the credentials: 401",
            "correct prometheus.auth",
        ),
        (
            format!("http://{closed}"),
            "",
            "does not answer: ",
            "curl -v 'http://",
        ),
        (
            server(other, None).await,
            "",
            "gives no result for count(node_cpu",
            "prometheus.url ends before",
        ),
    ] {
        let found = checked(&url, more).await;
        assert_eq!(
            states(&found),
            [(FILES, CheckStatus::Ok), (SERVER, CheckStatus::Fail)]
        );
        let failed = &found[1];
        assert!(
            failed.detail.contains(detail) && failed.next.contains(next),
            "{failed:?}"
        );
        assert!(!format!("{failed:?}").contains("another"), "{failed:?}");
    }
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = PrometheusSettings {
        url: format!("http://{}", silent.local_addr().unwrap()),
        timeout: Span(Duration::from_millis(100)),
        ..PrometheusSettings::default()
    };
    let client = PrometheusClient::connect(settings.clone()).await.unwrap();
    let settings = &settings;
    let found = ServerCheck { client, settings }.run().await;
    assert!(
        found[0].detail.ends_with("does not answer within 100ms"),
        "{found:?}"
    );
}

#[tokio::test]
async fn missing_series_are_named_with_the_query() {
    let without_labels: Answers = |asked| counted(u64::from(!asked.contains("eu-1")) * 7);
    let other_labels: Answers = |asked| counted(u64::from(!asked.contains("name!=")) * 64);
    let nothing: Answers = |_| counted(0);
    let rare: Answers = |asked| counted(u64::from(!asked.contains("rate(")) * 7);
    let no_pressure: Answers = |asked| counted(u64::from(!asked.contains("pressure_io")) * 7);
    for (answers, detail, next) in [
        (
            without_labels,
            "without prometheus.labels it finds 7 VMs",
            "correct prometheus.labels",
        ),
        (
            other_labels,
            "has not the labels namespace and name",
            "scrape the guests",
        ),
        (
            nothing,
            "there is no node_cpu_seconds_total at all",
            "scrape the guests",
        ),
        (
            rare,
            "none has two samples within five minutes",
            "scrape_interval",
        ),
        (
            no_pressure,
            "none has node_pressure_io_waiting_seconds_total",
            "ls /proc/pressure",
        ),
    ] {
        let found = checked(&server(answers, None).await, ", labels: { infra_cluster: eu-1 }").await;
        let series = &found[2];
        assert_eq!(
            (series.what.as_str(), series.status),
            (SERIES, CheckStatus::Warn),
            "{found:?}"
        );
        assert!(
            series.detail.contains(detail) && series.next.contains(next),
            "{series:?}"
        );
    }
    let named = checked(&server(nothing, None).await, "").await;
    let query = r#"count(node_cpu_seconds_total{namespace!="",name!="",mode="idle",cpu="0"}) finds nothing"#;
    assert!(named[2].detail.starts_with(query), "{named:?}");
}

#[test]
fn a_short_retention_is_a_warning_and_an_unknown_one_is_said() {
    let of = |text: &str, seconds| {
        let text = text.to_owned();
        retention_result(Some(Retention { text, seconds }))
    };
    let short = of("24h", Some(86_400));
    assert_eq!(short.status, CheckStatus::Warn);
    assert!(
        short.next.ends_with("--storage.tsdb.retention.time=7d or more"),
        "{short:?}"
    );
    assert_eq!(of("7d", Some(7 * 86_400)).status, CheckStatus::Ok);
    assert!(of("50GB", None).detail.contains("is not known"));
    let unknown = retention_result(None);
    assert_eq!(unknown.status, CheckStatus::Ok);
    assert!(unknown.detail.starts_with("not known: "), "{unknown:?}");
}
