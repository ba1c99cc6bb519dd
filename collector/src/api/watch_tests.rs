//! Tests of the stream of changes over HTTP.

use std::sync::Mutex;

use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::Request,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use virtfleet_collector_core::pull_result::{Failure, FailureClass, PullResult};

use super::*;
use crate::{
    access::two_tenants::{self, ADMIN, ALPHA, ALPHA_CLUSTER},
    api::{
        router,
        testing::{self, TestFleet},
        watch_slots::{WatchLimits, WatchSlots},
    },
    fleet::Fleet,
};

/// An open stream of a router.
struct TestStream(BodyDataStream);

impl TestStream {
    async fn open(router: &Router, token: Option<&str>) -> Result<Self, (u16, String)> {
        let mut request = Request::get("/api/v1/watch");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        if status != 200 {
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            return Err((status, String::from_utf8(body.unwrap().to_vec()).unwrap()));
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self(response.into_body().into_data_stream());
        assert_eq!(stream.event().await.unwrap(), ("ready".to_owned(), json!({})));
        Ok(stream)
    }

    /// The next event with its data; a comment has no name. None at the end.
    async fn event(&mut self) -> Option<(String, Value)> {
        let text = self.0.next().await?.unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let field = |name: &str| {
            let prefix = format!("{name}: ");
            text.lines().find_map(|line| line.strip_prefix(&prefix))
        };
        let data = field("data").map_or(Value::Null, |data| serde_json::from_str(data).unwrap());
        Some((field("event").unwrap_or_default().to_owned(), data))
    }
}

fn open_fleet() -> (Arc<TestFleet>, Router) {
    let fleet = TestFleet::new(testing::fleet());
    let router = router(testing::state(fleet.clone()));
    (fleet, router)
}

/// Removes a VM, and stops another one.
fn change_two(fleet: &TestFleet) {
    fleet.change(|snapshot| {
        snapshot.vms.remove(&testing::key("cluster-a", "worker-1"));
        let vm = snapshot
            .vms
            .get_mut(&testing::key("cluster-a", "worker-0"))
            .unwrap();
        Arc::make_mut(vm).infra_node = Some("infra-9".parse().unwrap());
    });
}

#[tokio::test(start_paused = true)]
async fn a_change_is_sent_with_the_vms_that_differ_within_half_a_second() {
    let (fleet, router) = open_fleet();
    let mut stream = TestStream::open(&router, None).await.unwrap();
    let changed = Instant::now();
    change_two(&fleet);
    let (name, data) = stream.event().await.unwrap();
    assert!(
        changed.elapsed() < Duration::from_millis(500),
        "{:?}",
        changed.elapsed()
    );
    assert_eq!(name, "change");
    let vms = data["vms"].as_array().unwrap();
    assert_eq!((vms.len(), &vms[0]["infraNode"]), (1, &json!("infra-9")));
    assert_eq!(
        data["removed"],
        json!([{ "namespace": "cluster-a", "name": "worker-1" }])
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_has_a_heartbeat_and_ends_at_a_shutdown() {
    let fleet = TestFleet::new(testing::fleet());
    let state = testing::state(fleet.clone());
    let shutdown = state.shutdown.clone();
    let router = router(state);
    let mut stream = TestStream::open(&router, None).await.unwrap();
    // A new revision without a difference is no event.
    fleet.change(|_| {});
    let begun = Instant::now();
    assert_eq!(stream.event().await.unwrap(), (String::new(), Value::Null));
    assert_eq!(begun.elapsed(), HEARTBEAT);
    shutdown.cancel();
    assert_eq!(stream.event().await, None);
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_one_order_to_read_the_lists_again() {
    let (fleet, router) = open_fleet();
    let mut stream = TestStream::open(&router, None).await.unwrap();
    fleet.change(|snapshot| {
        let vm = snapshot.vms.values().next().unwrap().clone();
        for number in 0..=MAX_EVENT_VMS {
            let key = testing::key("many", &format!("vm-{number}"));
            let (namespace, name) = (key.namespace.clone(), key.name.clone());
            let vm = VmView {
                namespace,
                name,
                ..VmView::clone(&vm)
            };
            snapshot.vms.insert(key, Arc::new(vm));
        }
    });
    let (_, data) = stream.event().await.unwrap();
    assert_eq!(data["vms"], json!([]));
    assert!(
        data["lists"].as_array().unwrap().contains(&json!("vms")),
        "{data}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_client_cannot_take_all_streams() {
    let (_fleet, router) = open_fleet();
    let mut open = Vec::new();
    let (status, body) = loop {
        match TestStream::open(&router, None).await {
            Ok(stream) => open.push(stream),
            Err(refused) => break refused,
        }
        assert!(open.len() < 100, "there is no limit");
    };
    assert_eq!((status, open.len()), (429, WatchLimits::STREAMS.of_client));
    assert!(body.contains("\"code\":\"too_many_requests\""), "{body}");
    open.pop();
    TestStream::open(&router, None).await.unwrap();
}

/// Long polls of one tenant that never end by themselves do not refuse those of others.
#[tokio::test]
async fn a_tenant_with_many_long_polls_refuses_only_its_own() {
    let mut api = testing::state_of(two_tenants::fleet(true));
    api.access = two_tenants::access(false);
    let router = router(api.clone());
    let get = |token: &str, query: String| {
        let request = Request::get(format!("/api/v1/vms{query}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Body::empty());
        router.clone().oneshot(request.unwrap())
    };
    // The query of a long poll for the next change.
    let wait = async |token: &'static str| {
        let response = get(token, String::new()).await.unwrap();
        let revision = response.headers()["virtfleet-revision"].to_str().unwrap();
        format!("?wait={revision}&timeout=1m")
    };
    let mut waiting = Vec::new();
    for (token, count) in [
        (ALPHA, WatchLimits::LONG_POLLS.of_tenant),
        // Another caller: a tenant of its own, and an admin.
        (ALPHA_CLUSTER, 1),
        (ADMIN, 1),
    ] {
        for _ in 0..count {
            waiting.push(tokio::spawn(get(token, wait(token).await)));
            while api.waiting.taken() < waiting.len() {
                tokio::task::yield_now().await;
            }
        }
        if token == ALPHA {
            let refused = get(ALPHA, wait(ALPHA).await).await.unwrap();
            assert_eq!(refused.status(), 429);
            assert_eq!(refused.headers()["retry-after"], "10");
            assert_eq!(get(ALPHA, String::new()).await.unwrap().status(), 200);
        }
    }
    api.shutdown.cancel();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(api.waiting.taken(), 0);
}

fn two_tenants() -> (Arc<Fleet>, Router) {
    let fleet = two_tenants::fleet(true);
    let mut api = testing::state_of(fleet.clone());
    api.access = two_tenants::access(false);
    (fleet, router(api))
}

/// The pull of a tenant's first VM fails.
fn fail(fleet: &Fleet, tenant: &str) {
    fleet.record_pull(PullResult {
        vm: testing::key(&format!("ns-{tenant}"), &format!("vm-{tenant}-1")),
        at: 2_000,
        address: None,
        pushed: false,
        outcome: Err(Failure::new(FailureClass::Timeout, "late")),
    });
}

/// Another tenant's change is no event for a tenant, and its own change has no other tenant's VM.
#[tokio::test(start_paused = true)]
async fn a_tenant_gets_changes_of_its_own_vms_only() {
    let (fleet, router) = two_tenants();
    assert_eq!(
        TestStream::open(&router, Some("unknown")).await.err().unwrap().0,
        401
    );
    let mut tenant = TestStream::open(&router, Some(ALPHA)).await.unwrap();
    let mut admin = TestStream::open(&router, Some(ADMIN)).await.unwrap();
    let names = |data: &Value| -> Vec<String> {
        let vms = data["vms"].as_array().unwrap().iter();
        vms.map(|vm| vm["namespace"].as_str().unwrap().to_owned())
            .collect()
    };
    fail(&fleet, "beta");
    let (_, data) = admin.event().await.unwrap();
    assert_eq!(names(&data), ["ns-beta"]);
    fail(&fleet, "alpha");
    let (name, data) = tenant.event().await.unwrap();
    assert_eq!(
        (name.as_str(), names(&data)),
        ("change", vec!["ns-alpha".to_owned()])
    );
    assert!(!data.to_string().contains("beta"), "{data}");
}

/// Rights that the test ends.
struct TestRights(Arc<Mutex<bool>>);

impl Rights for TestRights {
    async fn review(&self) -> Result<Option<Arc<TenantView>>, ApiError> {
        if *self.0.lock().unwrap() {
            Ok(None)
        } else {
            Err(ApiError::not_found("the token has expired", "get a new one"))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_rights_of_its_caller() {
    let fleet = TestFleet::new(testing::fleet());
    let valid = Arc::new(Mutex::new(true));
    let slot = WatchSlots::new(WatchLimits::STREAMS).take("a", false).unwrap();
    let api = testing::state(fleet.clone());
    let watch = FleetWatch::new(api, TestRights(Arc::clone(&valid)), None, slot);
    let mut stream = TestStream(watch.into_response().into_body().into_data_stream());
    assert_eq!(stream.event().await.unwrap().0, "ready");
    assert_eq!(stream.event().await.unwrap().0, "", "a heartbeat");
    *valid.lock().unwrap() = false;
    tokio::time::advance(RIGHTS_TTL).await;
    change_two(&fleet);
    let (name, data) = stream.event().await.unwrap();
    assert_eq!(
        (name.as_str(), &data["message"]),
        ("end", &json!("the token has expired"))
    );
    assert_eq!(stream.event().await, None);
}

#[test]
fn one_slow_comparison_delays_no_event() {
    let ms = Duration::from_millis;
    assert_eq!(pause(ms(1), ms(200)), MIN_INTERVAL);
    assert_eq!(pause(ms(100), ms(100)), ms(2000));
    assert_eq!(pause(ms(900), ms(900)), MAX_INTERVAL);
}
