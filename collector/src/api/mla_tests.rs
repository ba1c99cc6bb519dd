//! Tests of `/api/v1/queues` and `/api/v1/targets`: entity tags, filters, standby.

use axum::{
    body::{Body, to_bytes},
    http::{Request, header},
};
use serde_json::Value;
use tower::ServiceExt as _;
use virtfleet_collector_core::mla::status::{QueueStatusView, StreamName, StreamState};

use super::*;
use crate::{
    api::testing::{self, NOW, TestFleet},
    leader::{LeaseView, WriteAccess},
};

fn state() -> ApiState {
    testing::state(TestFleet::new(testing::fleet()))
}

/// Status, entity tag and body of an answer.
async fn get(state: &ApiState, path: &str, known: &str) -> (u16, String, Value) {
    let request = Request::get(path).header(header::IF_NONE_MATCH, known);
    let request = request.body(Body::empty()).unwrap();
    let response = router(state.clone()).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let etag = response
        .headers()
        .get(header::ETAG)
        .map(|tag| tag.to_str().unwrap().to_owned());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    (status, etag.unwrap_or_default(), body)
}

#[tokio::test]
async fn a_tag_changes_with_the_streams_and_not_with_the_fleet() {
    let fleet = TestFleet::new(testing::fleet());
    let state = testing::state(fleet.clone());
    let path = "/api/v1/queues";
    let (status, tag, body) = get(&state, path, "").await;
    assert_eq!((status, body["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!(get(&state, path, &tag).await.0, 304);
    fleet.change(|_| {});
    assert_eq!(
        get(&state, path, &tag).await.0,
        304,
        "nothing about streams has changed"
    );
    state
        .mla
        .publish_queue(QueueStatusView::new(StreamName::Fleet, StreamState::Stopped), NOW);
    let (status, other, body) = get(&state, path, &tag).await;
    assert_eq!(
        (status, body["items"][1]["state"].as_str()),
        (200, Some("stopped"))
    );
    assert_ne!(tag, other);
    // A long poll with the known revision ends at the timeout, one with another at once.
    let known = body["revision"].as_u64().unwrap();
    let waited = get(&state, &format!("{path}?wait={known}&timeout=10ms"), "").await;
    assert_eq!(waited.2["revision"].as_u64(), Some(known));
    let (_, _, status) = get(&state, "/api/v1/status", "").await;
    assert_eq!(status["mla"]["notLive"][0]["stream"], "fleet");
}

#[tokio::test]
async fn pages_have_what_the_stream_or_the_pull_knows() {
    let state = state();
    let (_, _, body) = get(&state, "/api/v1/targets?cluster=prod&limit=3", "").await;
    let items = body["items"].as_array().unwrap();
    assert_eq!((items.len(), body["continue"].is_string()), (3, true));
    assert_eq!(
        (&items[0]["inStream"], &items[0]["seriesAdded"]),
        (&true.into(), &3.into())
    );
    assert_eq!(
        (&items[1]["inStream"], &items[1]["seriesAdded"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(items[1]["error"]["reason"], "pullFailed");
    assert_eq!(items[2]["error"]["message"], "line 813: more than 812 samples");
    state.mla.clear_targets();
    let (_, _, body) = get(&state, "/api/v1/targets", "").await;
    assert_eq!(
        (&body["items"][0]["inStream"], &body["items"][0]["samples"]),
        (&false.into(), &400.into())
    );
    assert_eq!(
        get(&state, "/api/v1/targets?error=none,malformed", "").await.2["items"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert_eq!(get(&state, "/api/v1/queues?state=lively", "").await.0, 400);
}

#[tokio::test]
async fn a_standby_names_the_leader() {
    let mut state = state();
    state.write_access = WriteAccess::standby_of(LeaseView {
        name: "virtfleet/virtfleet-collector".to_owned(),
        holder: Some("collector-1_x".to_owned()),
    });
    for path in ["/api/v1/queues", "/api/v1/targets"] {
        let (status, _, body) = get(&state, path, "").await;
        assert_eq!(status, 503, "{body}");
        assert!(body.to_string().contains("collector-1"), "{body}");
    }
}
