//! `virtfleetctl install check` with a collector that answers in part, or not in time.

use std::time::{Duration, Instant};

use axum::{Router, routing::get};

use super::{client::Client, install_agents::check, tests::Server};
use crate::{
    api::testing::{self, TestFleet},
    doctor::{CheckResult, CheckStatus},
};

fn client(server: &Server) -> Client {
    Client::new(&server.cli(&["status"]).connection).unwrap()
}

/// The results of a collector that answers only with its status.
fn results_of_status(partial: bool) -> Vec<CheckResult> {
    let whole = Server::new();
    let status = client(&whole).get("/api/v1/status", &[], Duration::ZERO);
    let mut status = status.unwrap().body;
    status["partial"] = partial.into();
    let status = status.to_string();
    let only = Router::new().route("/api/v1/status", get(move || async move { status }));
    let server = Server::serving(only, TestFleet::new(testing::fleet()));
    check(&client(&server), "fleet")
}

#[test]
fn an_incomplete_inventory_is_a_warning() {
    let found = &results_of_status(true)[0];
    assert_eq!(found.status, CheckStatus::Warn);
    assert!(found.next.ends_with("--scope inventory"), "{found:?}");
}

#[test]
fn a_check_for_which_the_collector_does_not_answer_is_a_warning() {
    let results = results_of_status(false);
    let found: Vec<_> = results
        .iter()
        .map(|result| (result.status, result.what.as_str()))
        .collect();
    let warned = [
        "version of the collector",
        "versions of the agents",
        "agents",
        "credentials",
        "labels",
        "drain of an infra node",
    ];
    assert_eq!(found[0], (CheckStatus::Ok, "API of the collector"));
    assert_eq!(found[1..], warned.map(|what| (CheckStatus::Warn, what)));
    for result in &results[1..] {
        assert!(
            result.detail.contains("404 Not Found without JSON") && result.next.contains("-n fleet logs"),
            "{result:?}"
        );
    }
}

#[test]
fn the_requests_to_the_collector_end_together() {
    let server = Server::new();
    let results = check(&client(&server).ending_at(Instant::now()), "fleet");
    assert_eq!(
        (results.len(), results[0].status),
        (1, CheckStatus::Fail),
        "{results:?}"
    );
    assert!(
        results[0].detail.contains("the time for all requests is over"),
        "{results:?}"
    );
}
