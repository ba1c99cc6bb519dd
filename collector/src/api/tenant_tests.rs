//! Attacks of a tenant on the API: it asks for another tenant in every route and parameter.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use tower::ServiceExt as _;

use self::attack::{Attack, AttackAnswer};
use super::{
    super::{routes::RouteAccess, testing},
    *,
};
use crate::access::two_tenants::{self, ADMIN, ALPHA, ALPHA_CLUSTER, OF_BETA, OF_INFRA};

#[path = "tenant_attack.rs"]
mod attack;

/// Names of the other tenant, and one of the infra cluster.
const TARGETS: [&str; 8] = [
    "ns-beta",
    "uc-beta",
    "vm-beta-1",
    "hx-beta-only",
    "zx-beta-only",
    "rgx-1",
    "node-uid-vm-beta-1",
    "ns-beta/vm-beta-1",
];

/// The answer without what the request itself contains.
fn without_echo(answer: &AttackAnswer, target: &str) -> String {
    answer.text().replace(target, "TARGET")
}

#[tokio::test]
async fn no_answer_for_a_tenant_contains_anything_of_another() {
    for (token, redact) in [
        (ALPHA, false),
        (ALPHA_CLUSTER, false),
        (ALPHA, true),
        (ALPHA_CLUSTER, true),
    ] {
        let mut seen = String::new();
        for (target, own) in TARGETS
            .into_iter()
            .flat_map(|target| [(target, true), (target, false)])
        {
            // Each with a limit of requests of its own.
            let attack = Attack::new(true, redact);
            for path in Attack::paths(target, own) {
                let answer = attack.get(token, &path).await;
                assert_ne!(answer.status, 429, "{path}");
                let text = without_echo(&answer, target);
                for needle in OF_BETA {
                    assert!(!text.contains(needle), "{token}, {path}: {needle} in {text}");
                }
                for needle in OF_INFRA.into_iter().filter(|_| redact) {
                    assert!(!text.contains(needle), "{token}, {path}: {needle} in {text}");
                }
                seen.push_str(&text);
            }
        }
        // The tenant does see its own VMs, and its hosts if they are not hidden.
        for part in ["vm-alpha-1", "vm-alpha-2", "uc-alpha", "agent-wrong-vm"] {
            assert!(seen.contains(part), "{token}: {part}");
        }
        assert_eq!(seen.contains("hx-shared"), !redact);
        assert_eq!(seen.contains("\"infraNode\":\"infra-"), redact);
    }
}

#[tokio::test]
async fn the_needles_are_there_for_an_admin() {
    let attack = Attack::new(true, true);
    let mut seen = String::new();
    let details = "/api/v1/vms/ns-beta/vm-beta-2".to_owned();
    for path in Attack::paths("ns-beta", true).into_iter().chain([details]) {
        seen.push_str(&attack.get(ADMIN, &path).await.body);
    }
    for needle in OF_BETA.into_iter().chain(OF_INFRA) {
        assert!(seen.contains(needle), "{needle}");
    }
}

#[tokio::test]
async fn a_hidden_object_is_answered_like_one_that_does_not_exist() {
    for redact in [false, true] {
        for target in TARGETS {
            let nothing = target.replace("beta", "nada").replace("rgx-1", "rgx-2");
            if !redact && target.starts_with("rgx") {
                continue;
            }
            let pairs = Attack::paths(target, false)
                .into_iter()
                .zip(Attack::paths(&nothing, false));
            // `continue` is a position in a list and selects no object.
            let pairs: Vec<_> = pairs.filter(|(path, _)| !path.contains("continue=")).collect();
            // Each part with a limit of requests of its own.
            for part in pairs.chunks(100) {
                let attack = Attack::new(true, redact);
                for (path, other) in part {
                    let hidden = attack.get(ALPHA, path).await;
                    let missing = attack.get(ALPHA, other).await;
                    assert_eq!(
                        without_echo(&hidden, target),
                        without_echo(&missing, &nothing),
                        "{path}"
                    );
                }
            }
        }
    }
}

/// Whatever another tenant does, the answers are the same, byte by byte: also totals, revisions
/// and findings about values that both have.
#[tokio::test]
async fn answers_for_a_tenant_do_not_depend_on_another() {
    for token in [ALPHA, ALPHA_CLUSTER] {
        let (with, mut without) = (Attack::new(true, false), Attack::new(false, false));
        // One authority: each new one has other keys.
        without.api.ca.clone_from(&with.api.ca);
        for path in Attack::paths("ns-alpha", true) {
            let (one, other) = (with.get(token, &path).await, without.get(token, &path).await);
            assert_eq!(one, other, "{token}, {path}");
        }
        // The whole fleet does differ.
        let (one, other) = (with.get(ADMIN, "/sd").await, without.get(ADMIN, "/sd").await);
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn pseudonyms_can_be_filtered_by_and_joined() {
    let attack = Attack::new(true, true);
    let list = async |path: &str| -> serde_json::Value {
        serde_json::from_str(&attack.get(ALPHA, path).await.body).unwrap()
    };
    let vms = list("/api/v1/vms").await;
    let first = &vms["items"][0];
    let (node, zone) = (
        first["infraNode"].as_str().unwrap(),
        first["zone"].as_str().unwrap(),
    );
    assert!(node.starts_with("infra-") && zone.starts_with("infra-") && node != zone);
    for filter in [format!("node={node}"), format!("zone={zone}")] {
        let found = list(&format!("/api/v1/vms?{filter}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{filter}");
    }
    let hosts = list("/api/v1/hosts").await;
    let host = hosts["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|host| host["name"] == node)
        .unwrap();
    assert_eq!((&host["zone"], &host["vms"]), (&first["zone"], &1.into()));
    let detail = list("/api/v1/vms/ns-alpha/vm-alpha-1").await;
    assert_eq!(detail["infraNodeLabels"]["topology.kubernetes.io/zone"], zone);
    assert_eq!(detail["infraNodeLabels"]["kubernetes.io/os"], "linux");
    assert_eq!(
        detail["userNodeLabels"]["topology.kubernetes.io/zone"], zone,
        "it was copied"
    );
    let labels = list("/api/v1/labels?node=vm-alpha-1&key=topology.kubernetes.io/zone").await;
    assert_eq!(
        (&labels["items"][0]["desired"], &labels["items"][0]["current"]),
        (&zone.into(), &zone.into())
    );
    // The plan that virtfleetctl makes of the inputs is that of the collector.
    let inputs: crate::api::LabelInputs =
        serde_json::from_value(list("/api/v1/labels/inputs").await).unwrap();
    for input in inputs.into_inputs() {
        let planned = virtfleet_collector_core::labels::plan::plan(&input, None);
        let shown = list(&format!("/api/v1/labels?node={}", input.node)).await;
        for (decision, shown) in planned.decisions.iter().zip(shown["items"].as_array().unwrap()) {
            let reason = serde_json::to_value(decision.reason).unwrap();
            assert_eq!(
                (&reason, &decision.key),
                (&shown["reason"], &shown["key"].as_str().unwrap().to_owned())
            );
            assert_eq!(decision.desired.as_deref(), shown["desired"].as_str());
            assert_eq!(decision.current.as_deref(), shown["current"].as_str());
        }
    }
}

#[tokio::test]
async fn totals_are_those_of_the_tenant() {
    let attack = Attack::new(true, false);
    let list = async |token: &str, path: &str| -> Vec<serde_json::Value> {
        let body = attack.get(token, path).await.body;
        let mut list: serde_json::Value = serde_json::from_str(&body).unwrap();
        serde_json::from_value(list["items"].take()).unwrap()
    };
    for (token, hosts) in [(ALPHA, 1), (ADMIN, 3)] {
        let all = list(token, "/api/v1/hosts").await;
        let shared = all.iter().find(|host| host["name"] == "hx-shared").unwrap();
        assert_eq!(shared["vms"], hosts, "{token}");
    }
    let names = |items: &[serde_json::Value]| -> Vec<String> {
        items
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&list(ALPHA, "/api/v1/clusters").await),
        ["uc-alpha", "uc-ghost"]
    );
    assert_eq!(
        names(&list(ADMIN, "/api/v1/clusters").await),
        ["uc-alpha", "uc-beta", "uc-ghost"]
    );
    let ghost = &list(ALPHA, "/api/v1/clusters").await[1];
    assert_eq!((&ghost["vms"], &ghost["known"]), (&1.into(), &false.into()));
    assert_eq!(
        names(&list(ALPHA_CLUSTER, "/api/v1/clusters").await),
        ["uc-alpha"]
    );
    assert_eq!(
        list(ALPHA_CLUSTER, "/api/v1/vms").await.len(),
        2,
        "those of the cluster alone"
    );

    // Findings that name only hidden VMs are not there, nor in any count.
    let ids = |items: &[serde_json::Value]| -> Vec<String> {
        items
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let duplicates = |ids: &[String]| ids.iter().filter(|id| id.starts_with("duplicate-")).count();
    assert_eq!(duplicates(&ids(&list(ALPHA, "/api/v1/findings").await)), 0);
    assert!(duplicates(&ids(&list(ADMIN, "/api/v1/findings").await)) >= 2);
    for vm in list(ALPHA, "/api/v1/vms").await {
        let found = list(ALPHA, "/api/v1/findings").await;
        let of_vm = found.iter().filter(|one| one["name"] == vm["name"]).count();
        assert_eq!(vm["findings"], of_vm, "{}", vm["name"]);
        let path = format!("/api/v1/vms/ns-alpha/{}", vm["name"].as_str().unwrap());
        let detail: serde_json::Value = serde_json::from_str(&attack.get(ALPHA, &path).await.body).unwrap();
        assert_eq!(detail["findings"], of_vm);
    }
    let page = attack.get(ALPHA, "/metrics/fleet").await.body;
    assert!(
        page.contains("virtfleet_inventory_problems{severity=\"critical\"} 0\n"),
        "{page}"
    );
    assert!(
        page.contains("virtfleet_host_vms{infra_node=\"hx-shared\",region=\"rgx-1\",zone=\"zx-shared\"} 1\n"),
        "{page}"
    );
    assert!(
        page.contains("virtfleet_label_drift{cluster=\"uc-alpha\""),
        "{page}"
    );
}

/// Prometheus would attribute the other tenant's guest to the VM in the labels.
#[tokio::test]
async fn an_address_that_was_verified_last_for_a_hidden_vm_is_not_listed() {
    use virtfleet_collector_core::view::{AgentStatus, FleetSnapshot, VmState};
    let list = async |verified_later: bool| {
        let mut ours = testing::vm("ns-alpha", "vm-alpha-1", VmState::Running, AgentStatus::Up);
        ours.agent.verified_ms = Some(1_000);
        let mut theirs = testing::vm("ns-beta", "vm-beta-1", VmState::Running, AgentStatus::Up);
        theirs.agent.verified_ms = Some(if verified_later { 2_000 } else { 500 });
        let vms = [ours, theirs].into_iter().map(Arc::new);
        let mut api = testing::state(testing::TestFleet::new(FleetSnapshot {
            synced: true,
            vms: vms
                .map(|vm| (testing::key(vm.namespace.as_str(), vm.name.as_str()), vm))
                .collect(),
            ..FleetSnapshot::default()
        }));
        api.access = two_tenants::access(false);
        let fleet = two_tenants::fleet(true);
        Attack::of(fleet, api).get(ALPHA, "/sd").await.body
    };
    assert!(list(false).await.contains("vm-alpha-1"));
    assert_eq!(list(true).await, "[]");
}

#[tokio::test]
async fn only_callers_with_the_right_get_an_answer() {
    let attack = Attack::new(true, false);
    for route in ROUTES {
        let path = route
            .path
            .replace("{namespace}", "ns-alpha")
            .replace("{name}", "vm-alpha-1")
            .replace("{file}", "app.js");
        let unknown = attack.get("another token", &path).await;
        let public = route.access == RouteAccess::Public;
        assert_eq!(unknown.status, if public { 200 } else { 401 }, "{path}");
        if !public {
            assert!(
                unknown.body.contains("\"code\":\"unauthenticated\""),
                "{}",
                unknown.body
            );
            assert!(
                unknown.headers.contains("www-authenticate"),
                "{}",
                unknown.headers
            );
        }
        let changes = matches!(route.access, RouteAccess::Change(_));
        assert_eq!(changes, route.method() == Method::POST, "{path}");
        let of_all = matches!(route.access, RouteAccess::WholeFleet | RouteAccess::Infra);
        let expected = match path.as_str() {
            _ if changes || of_all => 403,
            // There is no scraper and no Prometheus in this test.
            path if path.starts_with("/vm/") || path.ends_with("/history") => 503,
            _ => 200,
        };
        assert_eq!(attack.get(ALPHA, &path).await.status, expected, "{path}");
    }
    // The query of a caller without credentials is not checked.
    assert_eq!(attack.get("another token", "/api/v1/vms?x=y").await.status, 401);
    let denied = attack.get(ALPHA, "/metrics").await.body;
    assert!(
        denied.contains("\"code\":\"forbidden\"") && denied.contains("scope `all`"),
        "{denied}"
    );
}

/// The reasons why the collector is not ready name objects of tenants.
#[tokio::test]
async fn readiness_names_reasons_only_to_those_that_may_see_them() {
    let fleet = testing::TestFleet::new(virtfleet_collector_core::view::FleetSnapshot {
        synced: false,
        ..testing::fleet()
    });
    fleet.change(|fleet| fleet.findings[0].id = "manifest-broken".to_owned());
    let mut api = testing::state(fleet);
    let get = async |router: Router, token: &str| {
        let request = Request::get("/readyz").header("authorization", format!("Bearer {token}"));
        let response = router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    assert!(
        get(router(api.clone()), "x").await.contains("infra/nodes.yaml"),
        "everyone on loopback"
    );
    assert!(!get(probes(api.clone()), "x").await.contains("infra/nodes.yaml"));
    api.access = two_tenants::access(false);
    for (token, named) in [("x", false), (ALPHA, false), (ADMIN, true)] {
        assert_eq!(
            get(router(api.clone()), token).await.contains("infra/nodes.yaml"),
            named,
            "{token}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_of_a_tenant_ends_with_its_own_changes_only() {
    let attack = Attack::new(true, false);
    let first = attack.get(ALPHA, "/api/v1/vms").await;
    let revision = |answer: &AttackAnswer| -> u64 {
        let list: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        list["revision"].as_u64().unwrap()
    };
    let known = revision(&first);
    let wait = format!("/api/v1/vms?wait={known}&timeout=60s");
    let poll = async || {
        let begun = tokio::time::Instant::now();
        let answer = attack.get(ALPHA, &wait).await;
        (revision(&answer), begun.elapsed().as_secs())
    };
    let fail = |tenant: &str| {
        let vm = testing::key(&format!("ns-{tenant}"), &format!("vm-{tenant}-1"));
        let failure = virtfleet_collector_core::pull_result::Failure::new(
            virtfleet_collector_core::pull_result::FailureClass::Timeout,
            "late",
        );
        attack
            .fleet
            .record_pull(virtfleet_collector_core::pull_result::PullResult {
                vm,
                at: 2_000,
                address: None,
                pushed: false,
                outcome: Err(failure),
            });
    };
    let change = async |tenant: &str| {
        tokio::time::sleep(Duration::from_secs(10)).await;
        fail(tenant);
    };
    let ((same, waited), ()) = tokio::join!(poll(), change("beta"));
    assert_eq!((same, waited), (known, 60), "a change of beta is not seen");
    let ((other, waited), ()) = tokio::join!(poll(), change("alpha"));
    assert!(other != known && (10..=11).contains(&waited), "{waited}");
}
