//! `history` against the real API, whose Prometheus is a server on loopback.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use axum::{Router, extract::Query, http::StatusCode};
use serde_json::json;

use super::tests::Server;
use crate::{
    api::{
        self,
        testing::{self, NOW, TestFleet},
    },
    config::PrometheusSettings,
    history::HistoryReader,
};

/// A share in thousandths at a time in seconds since 1970, by the query; none: no sample.
type Samples = fn(&str, u64) -> Option<u64>;

/// An API whose Prometheus has these samples. None: it has no Prometheus.
fn server(samples: Option<Samples>) -> Server {
    let fleet = TestFleet::new(testing::fleet());
    let mut state = testing::state(fleet.clone());
    let Some(samples) = samples else {
        return Server::serving(api::router(state), fleet);
    };
    // The listener exists before the runtime that serves it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    state.histories = Some(reader(listener.local_addr().unwrap()));
    let server = Server::serving(api::router(state), fleet);
    let _entered = server.runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    server
        .runtime
        .spawn(async move { axum::serve(listener, prometheus(samples)).await });
    server
}

fn reader(address: SocketAddr) -> Arc<HistoryReader> {
    let settings = PrometheusSettings {
        url: format!("http://{address}"),
        ..PrometheusSettings::default()
    };
    Arc::new(HistoryReader::new(settings, || NOW))
}

fn prometheus(samples: Samples) -> Router {
    Router::new().fallback(move |Query(query): Query<BTreeMap<String, String>>| async move {
        let number = |name: &str| query[name].parse::<u64>().unwrap();
        let times = (number("start")..=number("end")).step_by(usize::try_from(number("step")).unwrap());
        let values: Vec<_> = times
            .filter_map(|at| {
                let share = samples(&query["query"], at)? as f64 / 1000.0;
                Some((at, share.to_string()))
            })
            .collect();
        let result = if values.is_empty() {
            json!([])
        } else {
            json!([{ "metric": {}, "values": values }])
        };
        let body = json!({ "status": "success", "data": { "resultType": "matrix", "result": result } });
        (StatusCode::OK, body.to_string())
    })
}

/// Steal with a peak three hours ago, a guest without pressure of I/O, and a gap of an hour.
fn busy(query: &str, at: u64) -> Option<u64> {
    let age = NOW / 1000 - at;
    let is_gap = (36_000..39_600).contains(&age);
    let share = match query {
        _ if is_gap => return None,
        query if query.contains("steal\",") || query.contains("mode=\"steal\"") => {
            if (9_000..12_600).contains(&age) { 625 } else { 4 }
        }
        query if query.contains("cpu_waiting") => 50,
        query if query.contains("memory_waiting") => 0,
        query if query.contains("io_waiting") => return None,
        _ => 300 + age % 7 * 10,
    };
    Some(share)
}

#[test]
fn snapshots_of_histories() {
    let server = server(Some(busy));
    for (name, args) in [
        ("history", &["history", "cluster-a/worker-0"][..]),
        (
            "history_wide",
            &["history", "worker-1", "--range", "6h", "-o", "wide"],
        ),
        ("history_created", &["history", "worker-1", "--range=7d"]),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        insta::assert_snapshot!(name, out);
    }
    let (_, json, _) = server.run(&["history", "worker-1", "--range", "7d", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["stepMs"], 5_040_000);
    assert_eq!(json["createdMs"], NOW - 86_400_000);
    assert_eq!(json["cpuSteal"].as_array().unwrap().len(), 120);
}

#[test]
fn reasons_for_missing_points_are_given_in_words() {
    let only_pressure: Samples = |query, _| query.contains("waiting").then_some(1);
    for (samples, line) in [
        (
            (|_, _| None) as Samples,
            "Prometheus has no samples of this VM in this time. Check:",
        ),
        (
            only_pressure,
            "Prometheus has no samples for CPU steal, CPU used: it does not scrape node_cpu_seconds_total.",
        ),
        (
            busy,
            "Prometheus has no samples for I/O pressure: the guest's kernel does not report it",
        ),
    ] {
        let (code, out, err) = server(Some(samples)).run(&["history", "worker-1"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.lines().any(|one| one.starts_with(line)), "{line}: {out}");
    }
}

#[test]
fn errors_of_histories_say_what_to_do() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fleet = TestFleet::new(testing::fleet());
    let mut state = testing::state(fleet.clone());
    state.histories = Some(reader(gone.local_addr().unwrap()));
    drop(gone);
    let gone = Server::serving(api::router(state), fleet);
    let none = server(None);
    for (server, args, code, part) in [
        (
            &none,
            &["history", "worker-1"][..],
            1,
            "no Prometheus to read histories from: set prometheus in the collector's settings",
        ),
        (&gone, &["history", "worker-1"], 1, "the collector's Prometheus: "),
        (
            &gone,
            &["history", "worker-1"],
            1,
            "check `prometheus` in the collector's settings",
        ),
        (&none, &["history", "worker-7"], 4, "there is no VM worker-7"),
        (&none, &["history", "cluster-a/nowhere"], 4, "cluster-a/nowhere"),
        (
            &none,
            &["history", "worker-1", "--watch"],
            2,
            "history does not support --watch",
        ),
    ] {
        let (got, out, err) = server.run(args);
        assert_eq!((got, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(part),
            "{args:?}: {err}"
        );
    }
}
