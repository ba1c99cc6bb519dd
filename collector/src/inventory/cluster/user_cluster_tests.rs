use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::inventory::cluster::WatchMetrics;

/// How an API server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Works,
    /// It accepts each watch, and ends it.
    WatchesEnd,
    /// It keeps no version for a watch, and fails at the second page of a list.
    ListsBreak,
    /// It refuses the credentials of the next watch, and works then.
    RefusesOnce,
    /// It fails at the next list, and works then.
    ListFailsOnce,
}

/// The status, the body, and whether it stays open.
fn answer(mode: Mode, path: &str) -> (u16, String, bool) {
    let failure = |code: u16| {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "m" });
        (code, status.to_string(), false)
    };
    let list = |metadata: Value, items: Value| {
        let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items });
        (200, list.to_string(), false)
    };
    if path.contains("/leases") {
        return list(json!({ "resourceVersion": "1" }), json!([]));
    }
    if path.contains("watch=true") {
        return match mode {
            Mode::Works | Mode::ListFailsOnce => (200, String::new(), true),
            Mode::WatchesEnd => (200, String::new(), false),
            Mode::ListsBreak => failure(410),
            Mode::RefusesOnce => failure(401),
        };
    }
    let items = json!([{ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } }]);
    match mode {
        Mode::ListFailsOnce => failure(500),
        Mode::ListsBreak if path.contains("continue=") => failure(500),
        Mode::ListsBreak => list(json!({ "resourceVersion": "1", "continue": "more" }), items),
        _ => list(json!({ "resourceVersion": "1" }), items),
    }
}

fn client(mode: watch::Sender<Mode>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (path, now) = (request.uri().to_string(), *mode.borrow());
        let (code, text, stays_open) = answer(now, &path);
        if matches!((now, code), (Mode::RefusesOnce, 401) | (Mode::ListFailsOnce, 500)) {
            mode.send_replace(Mode::Works);
        }
        let text = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(text)))]);
        let frames = if stays_open {
            text.chain(stream::pending()).boxed()
        } else {
            text.boxed()
        };
        let response = Response::builder().status(code).body(StreamBody::new(frames));
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    Client::new(service, "default")
}

fn kubeconfig(mode: &watch::Sender<Mode>) -> ClusterClients {
    let client = client(mode.clone());
    ClusterClients {
        watch_client: client.clone(),
        request_client: client,
    }
}

fn name() -> ClusterName {
    "blue".parse().unwrap()
}

/// Follows a server. Sending on the second value sets another kubeconfig.
fn follow(mode: &watch::Sender<Mode>) -> (Arc<Tenants>, watch::Sender<Option<ClusterClients>>) {
    let (sender, clients) = watch::channel(Some(kubeconfig(mode)));
    let (events, mut received) = mpsc::channel(100);
    tokio::spawn(async move { while received.recv().await.is_some() {} });
    let tenants = Arc::new(Tenants::default());
    let shared = Arc::clone(&tenants);
    tokio::spawn(async move {
        let (found, _) = watch::channel(Vec::new());
        let registry = Arc::new(StatusRegistry::new(&[], found, WatchMetrics::default()));
        let name = name();
        let mut cache = ResourceCache::new(Kind::UserNode, Some(name.clone()));
        let mut nodes = NodeWatch {
            name: &name,
            tenants: &shared,
            registry: &registry,
            events: &events,
            cache: &mut cache,
            max_nodes: 100,
        };
        nodes.follow(clients, &CancellationToken::new()).await
    });
    (tenants, sender)
}

/// Waits for a state; returns after how long.
async fn until(tenants: &Tenants, is_wanted: impl Fn(&TenantState) -> bool) -> Duration {
    let begun = Instant::now();
    while !is_wanted(&tenants.state(&name())) {
        assert!(
            begun.elapsed() < Duration::from_mins(10),
            "{:?}",
            tenants.state(&name())
        );
        sleep(Duration::from_millis(50)).await;
    }
    begun.elapsed()
}

async fn stays(tenants: &Tenants, is_wanted: impl Fn(&TenantState) -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(5) {
        let state = tenants.state(&name());
        assert!(is_wanted(&state), "{state:?} after {:?}", begun.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_watches_or_lists_always_break_becomes_unreachable() {
    let is_unreachable = |state: &TenantState| matches!(state, TenantState::Unreachable(_));
    for broken in [Mode::WatchesEnd, Mode::ListsBreak] {
        let mode = watch::Sender::new(Mode::Works);
        let (tenants, _sender) = follow(&mode);
        until(&tenants, |state| *state == TenantState::Ready).await;
        mode.send_replace(broken);
        // The watch that is open lasts for less than three minutes.
        let after = until(&tenants, is_unreachable).await;
        assert!(after <= Duration::from_mins(4), "{broken:?}: {after:?}");
        stays(&tenants, is_unreachable).await;
        mode.send_replace(Mode::Works);
        let after = until(&tenants, |state| *state == TenantState::Ready).await;
        assert!(after <= Duration::from_mins(1), "{broken:?}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_watch_that_is_refused_changes_nothing() {
    let mode = watch::Sender::new(Mode::Works);
    let (tenants, _sender) = follow(&mode);
    until(&tenants, |state| *state == TenantState::Ready).await;
    mode.send_replace(Mode::RefusesOnce);
    stays(&tenants, |state| *state == TenantState::Ready).await;
    assert_eq!(*mode.borrow(), Mode::Works, "a watch was refused");
}

#[tokio::test(start_paused = true)]
async fn one_list_that_fails_with_a_new_kubeconfig_changes_nothing() {
    let is_unreachable = |state: &TenantState| matches!(state, TenantState::Unreachable(_));
    let mode = watch::Sender::new(Mode::ListFailsOnce);
    let (tenants, sender) = follow(&mode);
    // There are no Nodes that are still followed.
    let after = until(&tenants, is_unreachable).await;
    assert!(after <= Duration::from_secs(1), "{after:?}");
    until(&tenants, |state| *state == TenantState::Ready).await;

    mode.send_replace(Mode::ListFailsOnce);
    sender.send_replace(Some(kubeconfig(&mode)));
    stays(&tenants, |state| *state == TenantState::Ready).await;
    assert_eq!(*mode.borrow(), Mode::Works, "a list failed");

    mode.send_replace(Mode::ListsBreak);
    sender.send_replace(Some(kubeconfig(&mode)));
    let after = until(&tenants, is_unreachable).await;
    assert!(after >= MAX_WATCH_OUTAGE, "{after:?}");
}

#[test]
fn credentials_are_reported_two_weeks_or_a_third_of_their_time_before_their_end() {
    const DAY: u64 = 86_400;
    let name: ClusterName = "blue".parse().unwrap();
    let of = |life: u64, left: i64| {
        let valid = Validity {
            not_before: 100 * DAY,
            not_after: 100 * DAY + life,
        };
        let now = valid.not_after.checked_add_signed(-left).unwrap();
        expiry(&name, false, valid, now).map(|(_, found)| found.severity)
    };
    let (day, warning, critical) = (86_400_i64, Some(Severity::Warning), Some(Severity::Critical));
    for (life, left, expected) in [
        (90 * DAY, 15 * day, None),
        (90 * DAY, 14 * day, warning),
        (30 * DAY, 14 * day, None),
        (30 * DAY, 10 * day, warning),
        // A garden's, which its ClusterSource replaces after half of its time.
        (DAY, day / 2, None),
        (DAY, day / 3, warning),
        (DAY, 1, warning),
        (DAY, 0, critical),
        (DAY, -day, critical),
    ] {
        assert_eq!(of(life, left), expected, "{life} {left}");
    }
    let valid = Validity {
        not_before: 0,
        not_after: 1_800_000_000,
    };
    assert_eq!(expiry(&name, true, valid, 1_900_000_000), None);
    let (text, found) = expiry(&name, false, valid, 1_799_999_000).unwrap();
    assert_eq!(
        text,
        "the credentials in its kubeconfig expire at 2027-01-15T08:00:00Z"
    );
    assert!(
        found
            .remedy
            .starts_with("virtfleetctl cluster rotate blue --kubeconfig FILE; "),
        "{}",
        found.remedy
    );
}

#[test]
fn a_hibernated_cluster_has_no_finding_until_it_wakes_up() {
    let mut metrics = prometheus_client::registry::Registry::default();
    let (sender, problems) = watch::channel(Vec::new());
    let registry = StatusRegistry::new(&[], sender, WatchMetrics::register(&mut metrics));
    let (name, id) = (name(), UserClusterTask::id(&name()));
    let shown = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics).unwrap();
        (problems.borrow().len(), text.contains("watch_synced{"))
    };
    let failure = WatchFailure {
        code: None,
        message: "no answer".to_owned(),
        count: 2,
        over_limit: false,
    };
    let fail = |state: TenantState| {
        registry.failed(&id, &failure);
        registry.cluster(&name, Some(finding(&name, &state, "no answer")));
    };
    fail(TenantState::Unreachable(String::new()));
    for (hibernates, expected) in [(false, (1, true)), (true, (0, false)), (false, (1, true))] {
        registry.set_hibernates(&name, hibernates);
        assert_eq!(shown(), expected, "{hibernates}");
    }
    registry.set_hibernates(&name, true);
    for (state, expected) in [
        (TenantState::Pending(String::new()), 0),
        (TenantState::Unreachable(String::new()), 0),
        (TenantState::Failed(String::new()), 1),
    ] {
        fail(state);
        assert_eq!(shown(), (expected, false));
    }
}
