//! Tests of data that only the leader has: a standby refers to the leader.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use virtfleet_collector_core::labels::plan::{Action, Decision, NodePlan, Reason};

use super::*;
use crate::{
    api::testing::{self, TestFleet},
    labels::LabelStatus,
    leader::{LeaseView, WriteAccess},
};

/// The API of a collector that led before, with a label that differs from its policy.
fn api(write_access: WriteAccess) -> Router {
    let mut state = testing::state(TestFleet::new(testing::fleet()));
    state.write_access = write_access;
    let drifted = Decision {
        key: "zone".into(),
        source: None,
        policy: None,
        mode: None,
        current: None,
        desired: None,
        action: Action::Report,
        reason: Reason::Unsafe,
        message: "a volume is bound".into(),
        dry_run: false,
    };
    let status = LabelStatus {
        cluster: "prod".parse().unwrap(),
        node: "worker-0.prod".parse().unwrap(),
        infra_node: None,
        plan: NodePlan {
            decisions: vec![drifted],
            ..NodePlan::default()
        },
        planned_at: String::new(),
        written_at: None,
        error: None,
        contested: BTreeSet::new(),
        contested_lately: BTreeSet::new(),
        by_leader: true,
    };
    state.labels = Arc::default();
    state.labels.put(&testing::key("cluster-a", "worker-0"), status);
    router(state)
}

async fn get(api: Router, path: &str) -> (u16, String) {
    let answer = api
        .oneshot(Request::get(path).body(Body::empty()).unwrap())
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn standby(holder: Option<&str>) -> Router {
    api(WriteAccess::standby_of(LeaseView {
        name: "virtfleet/virtfleet-collector".into(),
        holder: holder.map(str::to_owned),
    }))
}

#[tokio::test]
async fn a_standby_refers_to_the_leader_for_all_of_the_fleet() {
    let ask = async |holder, path: &str| get(standby(holder), path).await.0;
    let fleet = [
        "/api/v1/vms",
        "/api/v1/vms/cluster-a/worker-0",
        "/api/v1/hosts",
        "/api/v1/clusters",
        "/api/v1/findings",
        "/sd",
        "/metrics/fleet",
        "/vm/cluster-a/worker-0/metrics",
    ];
    for path in fleet {
        assert_eq!(ask(Some("collector-x7k_00ff"), path).await, 503, "{path}");
    }
    for path in ["/", "/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"] {
        assert_eq!(ask(Some("collector-x7k_00ff"), path).await, 200, "{path}");
    }
    assert_eq!(ask(None, "/api/v1/vms").await, 200, "the Lease is free");
}

#[tokio::test]
async fn a_standby_names_the_leader_and_has_no_drift() {
    let (status, body) = get(standby(Some("collector-x7k_00ff")), "/api/v1/labels").await;
    let error: Value = serde_json::from_str(&body).unwrap();
    let error = &error["error"];
    assert_eq!((status, error["code"].as_str()), (503, Some("not_leading")));
    let remedy = "query the leader: kubectl -n virtfleet port-forward pod/collector-x7k 10912";
    let shown = error["remedy"].as_str().unwrap();
    assert!(shown.starts_with(remedy), "{shown}");
    // A collector of one replica whose container has crashed.
    assert!(
        shown.contains("its former container still holds the Lease"),
        "{shown}"
    );
    let (_, body) = get(standby(None), "/api/v1/labels").await;
    assert!(
        body.contains("the Lease virtfleet/virtfleet-collector is free"),
        "{body}"
    );
    let (_, page) = get(standby(None), "/metrics/fleet").await;
    assert!(!page.contains("virtfleet_label_drift") && page.contains("virtfleet_vm_up"));
    assert_eq!(get(standby(None), "/api/v1/vms").await.0, 200);
    let (_, body) = get(standby(None), "/api/v1/status").await;
    let summary: Value = serde_json::from_str(&body).unwrap();
    assert!(
        summary["vms"].is_number() && summary["labels"].is_null(),
        "{body}"
    );
}

#[tokio::test]
async fn the_leader_and_a_collector_without_election_answer() {
    for write_access in [WriteAccess::fixed(true), WriteAccess::fixed(false)] {
        assert_eq!(get(api(write_access.clone()), "/api/v1/labels").await.0, 200);
        let (_, body) = get(api(write_access.clone()), "/api/v1/status").await;
        let summary: Value = serde_json::from_str(&body).unwrap();
        let expected = json!([{ "reason": "Unsafe", "nodes": 1 }]);
        assert_eq!(summary["labels"]["reasons"], expected, "{body}");
        let (_, page) = get(api(write_access), "/metrics/fleet").await;
        assert!(
            page.contains("virtfleet_label_drift{cluster=\"prod\",key=\"zone\""),
            "{page}"
        );
    }
}
