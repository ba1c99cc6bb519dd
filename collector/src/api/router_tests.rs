//! Tests of the API over HTTP.

use std::{io::Read as _, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{Request, Response},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{
    api::{
        WatchLimits, WatchSlots,
        testing::{self, TestFleet},
    },
    fleet::FleetRead as _,
};

struct TestResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl TestResponse {
    async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: to_bytes(body, usize::MAX).await.unwrap().to_vec(),
        }
    }
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
    fn names(&self) -> Vec<String> {
        let list = self.json();
        let items = list["items"]
            .as_array()
            .unwrap_or_else(|| panic!("{list}"))
            .iter();
        items
            .map(|vm| {
                format!(
                    "{}/{}",
                    vm["namespace"].as_str().unwrap(),
                    vm["name"].as_str().unwrap()
                )
            })
            .collect()
    }
}

async fn request_status(fleet: &Arc<TestFleet>, request: Request<Body>) -> TestResponse {
    let router = router(testing::state(fleet.clone()));
    TestResponse::of(router.oneshot(request).await.unwrap()).await
}

async fn get_path(fleet: &Arc<TestFleet>, path: &str) -> TestResponse {
    request_status(fleet, Request::get(path).body(Body::empty()).unwrap()).await
}

fn fleet() -> Arc<TestFleet> {
    TestFleet::new(testing::fleet())
}

#[tokio::test]
async fn filters_select() {
    let fleet = fleet();
    for (query, expected) in [
        (
            "namespace=cluster-b",
            vec!["cluster-b/worker-0", "cluster-b/worker-9"],
        ),
        ("state=running&agent=up", vec!["cluster-a/worker-0"]),
        (
            "agent=silent,waiting",
            vec!["cluster-a/worker-1", "cluster-a/worker-2"],
        ),
        ("q=WORKER-0", vec!["cluster-a/worker-0", "cluster-b/worker-0"]),
        ("node=infra-2", vec!["cluster-a/worker-2"]),
        ("zone=zone%20%22b%22%5C%0A", vec!["cluster-a/worker-2"]),
        ("region=eu&state=unknown", vec!["stray/odd"]),
        ("cluster=other", vec![]),
    ] {
        let answer = get_path(&fleet, &format!("/api/v1/vms?{query}")).await;
        assert_eq!(answer.names(), expected, "{query}");
    }
    let hosts = get_path(&fleet, "/api/v1/hosts?ready=false,unknown").await.json();
    let hosts: Vec<_> = hosts["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| &host["name"])
        .collect();
    assert_eq!(hosts, ["infra-2", "infra-3"]);
}

#[tokio::test]
async fn findings_are_one_list() {
    let fleet = fleet();
    for (query, expected) in [
        ("", vec!["inventory-broken-file", "agent-silent"]),
        ("?severity=critical", vec!["inventory-broken-file"]),
        ("?scope=vm", vec!["agent-silent"]),
        ("?scope=inventory", vec!["inventory-broken-file"]),
        ("?namespace=cluster-a", vec!["agent-silent"]),
        ("?namespace=cluster-b", vec![]),
    ] {
        let list = get_path(&fleet, &format!("/api/v1/findings{query}")).await.json();
        let ids: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["id"])
            .collect();
        assert_eq!(ids, expected, "{query}");
    }
}

#[tokio::test]
async fn errors_have_message_and_remedy() {
    let fleet = fleet();
    for (path, status, code, part) in [
        (
            "/api/v1/vms?zome=a",
            400,
            "unknown_parameter",
            "did you mean \\\"zone\\\"?",
        ),
        (
            "/api/v1/vms?state=dead",
            400,
            "invalid_parameter",
            "stopped, starting",
        ),
        (
            "/api/v1/vms/cluster-a/worker-7",
            404,
            "not_found",
            "did you mean cluster-a/worker-",
        ),
        (
            "/api/v1/vms/nowhere/odd",
            404,
            "not_found",
            "did you mean stray/odd?",
        ),
        ("/api/v1/vms/UPPER/x", 400, "invalid_parameter", "lower-case"),
        ("/api/v1/vms/%FF/x", 400, "invalid_parameter", "percent-encode"),
        (
            "/api/v1/openapi.json?x=1",
            400,
            "unknown_parameter",
            "has no parameters",
        ),
        ("/api/v2/vms", 404, "unknown_path", "/api/v1/vms, "),
    ] {
        let answer = get_path(&fleet, path).await;
        let text = String::from_utf8(answer.body.clone()).unwrap();
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (status, &json!(code)),
            "{path}: {text}"
        );
        assert!(text.contains(part), "{path}: {text}");
        assert!(!answer.json()["error"]["remedy"].as_str().unwrap().is_empty());
    }
    let post = request_status(&fleet, Request::post("/sd").body(Body::empty()).unwrap()).await;
    assert_eq!(
        (post.status, post.json()["error"]["code"].as_str()),
        (405, Some("method_not_allowed"))
    );
    assert_eq!(post.headers["allow"], "GET,HEAD");
}

#[tokio::test]
async fn service_discovery_has_prometheus_shape() {
    let fleet = fleet();
    let answer = get_path(&fleet, "/sd?any=thing").await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let groups = answer.json();
    assert_eq!(
        groups.as_array().unwrap().len(),
        1,
        "only verified agents: {groups}"
    );
    assert_eq!(
        groups[0],
        json!({
            "targets": ["10.0.0.7:10911"],
            "labels": {
                "__scheme__": "https", "job": "node", "instance": "worker-0.prod", "cluster": "prod",
                "namespace": "cluster-a", "name": "worker-0",
                "__meta_virtfleet_zone": "eu-a", "__meta_virtfleet_region": "eu",
                "__meta_virtfleet_infra_node": "infra-1", "__meta_virtfleet_user_node": "worker-0.prod",
                "__meta_virtfleet_uid": "uid-cluster-a-worker-0", "__meta_virtfleet_state": "running",
                "__meta_virtfleet_way": "direct",
            },
        })
    );
    fleet.change(|fleet| fleet.vms.clear());
    let empty = get_path(&fleet, "/sd").await;
    assert_eq!((empty.status, empty.body.as_slice()), (200, b"[]".as_slice()));
    fleet.change(|fleet| fleet.synced = false);
    assert_eq!(get_path(&fleet, "/sd").await.status, 503);
}

#[tokio::test]
async fn service_discovery_has_each_address_once() {
    let fleet = fleet();
    let names = async |since: u64| -> Vec<String> {
        fleet.change(|fleet| {
            let agent =
                &mut Arc::make_mut(fleet.vms.get_mut(&testing::key("cluster-a", "worker-1")).unwrap()).agent;
            agent.verified_ms = Some(since);
        });
        let groups = get_path(&fleet, "/sd").await.json();
        let name = |group: &Value| group["labels"]["name"].as_str().unwrap().to_owned();
        groups.as_array().unwrap().iter().map(name).collect()
    };
    let first = fleet.snapshot().vms[&testing::key("cluster-a", "worker-0")]
        .agent
        .verified_ms
        .unwrap();
    assert_eq!(names(first - 1).await, ["worker-0"], "the VM verified there last");
    assert_eq!(names(first + 1).await, ["worker-1"]);
    assert_eq!(names(first).await, [""; 0], "none if that is unknown");
}

#[tokio::test]
async fn without_a_node_the_instance_is_the_vms_name() {
    let fleet = fleet();
    fleet.change(|fleet| {
        for vm in fleet.vms.values_mut().map(Arc::make_mut) {
            vm.user_node = None;
            vm.agent.address = vm.agent.address.map(|_| "[fd00::7]:10911".parse().unwrap());
        }
    });
    let groups = get_path(&fleet, "/sd").await.json();
    assert_eq!(groups[0]["labels"]["instance"], "worker-0");
    assert_eq!(groups[0]["targets"], json!(["[fd00::7]:10911"]));
}

#[tokio::test]
async fn readiness_follows_the_inventory_and_liveness_does_not() {
    let fleet = fleet();
    assert_eq!(get_path(&fleet, "/readyz").await.status, 200);
    fleet.change(|fleet| fleet.synced = false);
    let answer = get_path(&fleet, "/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("inventory")
    );
    assert_eq!(get_path(&fleet, "/healthz").await.status, 200);
}

#[tokio::test]
async fn own_metrics_are_a_page_of_format_0_0_4() {
    let answer = get_path(&fleet(), "/metrics").await;
    let text = String::from_utf8(answer.body).unwrap();
    for part in [
        "# TYPE virtfleet_collector_pulls_total counter\nvirtfleet_collector_pulls_total 3\n",
        "\nprocess_resident_memory_bytes ",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("# EOF"));
}

#[tokio::test]
async fn an_unchanged_fleet_is_not_modified() {
    let fleet = fleet();
    let first = get_path(&fleet, "/api/v1/vms").await;
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.headers[REVISION_HEADER], "5");
    let again = |tags: String| {
        Request::get("/api/v1/vms")
            .header("if-none-match", tags)
            .body(Body::empty())
            .unwrap()
    };
    let unchanged = request_status(&fleet, again(format!("\"x\", {etag}"))).await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(
        request_status(&fleet, again("\"x\"".to_owned())).await.status,
        200
    );
    fleet.change(|_| {});
    assert_eq!(request_status(&fleet, again(etag)).await.status, 200);
}

#[tokio::test]
async fn gzip_on_request_and_head_without_a_body() {
    let fleet = fleet();
    let packed = |method: Method, path: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("accept-encoding", "gzip");
        request.body(Body::empty()).unwrap()
    };
    let plain = get_path(&fleet, "/api/v1/vms").await;
    let answer = request_status(&fleet, packed(Method::GET, "/api/v1/vms")).await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(answer.body.as_slice())
        .read_to_end(&mut text)
        .unwrap();
    assert_eq!(text, plain.body);
    let head = request_status(&fleet, packed(Method::HEAD, "/api/v1/vms")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(
        head.headers["content-length"],
        answer.body.len().to_string().as_str()
    );
    let small = request_status(&fleet, packed(Method::GET, "/healthz")).await;
    assert!(!small.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn a_long_poll_answers_on_change_on_time_out_and_on_shutdown() {
    let fleet = fleet();
    let state = testing::state(fleet.clone());
    let request_status = |query: &str| {
        let request = Request::get(format!("/api/v1/vms?{query}"))
            .body(Body::empty())
            .unwrap();
        let response = router(state.clone()).oneshot(request);
        async {
            TestResponse::of(response.await.unwrap()).await.json()["revision"]
                .as_u64()
                .unwrap()
        }
    };
    // An old revision, or one of a restarted collector: returns at once.
    assert_eq!(
        (request_status("wait=4").await, request_status("wait=9").await),
        (5, 5)
    );
    assert_eq!(request_status("wait=5&timeout=5ms").await, 5);
    let deadline = Duration::from_secs(20);
    let waiting = tokio::spawn(request_status("wait=5&timeout=1m"));
    while fleet.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    fleet.change(|_| {});
    assert_eq!(tokio::time::timeout(deadline, waiting).await.unwrap().unwrap(), 6);
    let waiting = tokio::spawn(request_status("wait=6&timeout=1m"));
    while fleet.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    state.shutdown.cancel();
    assert_eq!(tokio::time::timeout(deadline, waiting).await.unwrap().unwrap(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn filtered_pages_add_up_to_the_filtered_list(limit in 1usize..5, filter in prop::sample::select(vec!["", "agent=off&", "q=worker&", "state=running,stopped&"])) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fleet = fleet();
            let whole = get_path(&fleet, &format!("/api/v1/vms?{filter}")).await.names();
            let mut pages = Vec::new();
            let mut next = String::new();
            loop {
                let answer = get_path(&fleet, &format!("/api/v1/vms?{filter}limit={limit}{next}")).await;
                pages.extend(answer.names());
                match answer.json()["continue"].as_str() {
                    Some(token) => next = format!("&continue={}", token.replace('/', "%2F")),
                    None => break,
                }
            }
            assert_eq!(pages, whole);
        });
    }
}

#[tokio::test]
async fn long_polls_never_block_other_requests() {
    let fleet = fleet();
    let mut api = testing::state(fleet);
    api.waiting = WatchSlots::new(WatchLimits {
        all: 2,
        ..WatchLimits::LONG_POLLS
    });
    let revision = api.fleet.snapshot().revision;
    let router = router(api.clone());
    let request_status = |query: String| {
        let request = Request::get(format!("/api/v1/vms{query}"))
            .body(Body::empty())
            .unwrap();
        let router = router.clone();
        async move { router.oneshot(request).await.unwrap().status() }
    };
    let wait = format!("?wait={revision}&timeout=1m");
    let waiting = [
        tokio::spawn(request_status(wait.clone())),
        tokio::spawn(request_status(wait.clone())),
    ];
    while api.waiting.taken() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        request_status(wait).await,
        503,
        "no permit is left for a long poll"
    );
    assert_eq!(
        request_status(String::new()).await,
        200,
        "other requests are answered"
    );
    api.shutdown.cancel();
    for waited in waiting {
        assert_eq!(waited.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn the_probe_router_serves_only_liveness_and_readiness() {
    let fleet = TestFleet::new(testing::fleet());
    let request_status = async |path: &str| {
        let router = probes(testing::state(fleet.clone()));
        let request = Request::get(path).body(Body::empty()).unwrap();
        TestResponse::of(router.oneshot(request).await.unwrap())
            .await
            .status
    };
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/", 404),
        ("/api/v1/vms", 404),
        ("/metrics", 404),
        ("/sd", 404),
    ] {
        assert_eq!(request_status(path).await, status, "{path}");
    }
}
