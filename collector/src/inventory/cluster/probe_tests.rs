use std::sync::Mutex;

use http::{Request as HttpRequest, Response};
use kube::client::Body;
use serde_json::{Value, json};
use virtfleet_wire::finding::Finding;

use super::*;
use crate::inventory::cluster::WatchMetrics;

/// How an API server answers.
#[derive(Debug, Clone, Copy)]
enum Mode {
    Answers,
    Hangs,
    /// With this status.
    Fails(u16),
    /// It refuses requests for Leases.
    WithoutLeases,
    /// It limits requests for all Leases.
    Limits,
    /// It does not answer them.
    HangsOnAll,
    /// It sends pages without Leases for ever.
    Endless,
    /// It fails for pages of the usual size.
    SmallPages,
}

/// An API server, and what it was asked.
struct Server {
    mode: watch::Sender<Mode>,
    asked: Arc<Mutex<Vec<String>>>,
    answer: watch::Receiver<Option<WatchFailure>>,
    problems: watch::Receiver<Vec<Finding>>,
    events: mpsc::Receiver<InventoryEvent>,
}

fn status(code: u16) -> (u16, Value) {
    let body =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "m" });
    (code, body)
}

fn is_about_one(path: &str) -> bool {
    path.contains("limit=1&") || path.ends_with("limit=1")
}

fn page(path: &str) -> Value {
    let lease = |name: &str| {
        let spec = json!({ "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40 });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let never = json!({ "metadata": { "name": "never-renewed" }, "spec": {} });
    if is_about_one(path) {
        let metadata = json!({ "resourceVersion": "1", "continue": "more" });
        json!({ "kind": "LeaseList", "metadata": metadata, "items": [lease("n1")] })
    } else if path.contains("continue=more") {
        json!({ "kind": "LeaseList", "metadata": { "resourceVersion": "1" }, "items": [lease("n2"), never] })
    } else {
        let metadata = json!({ "resourceVersion": "1", "continue": "more" });
        json!({ "kind": "LeaseList", "metadata": metadata, "items": [lease("n1")] })
    }
}

fn respond(mode: Mode, path: &str) -> (u16, Value) {
    match mode {
        Mode::Fails(code) => status(code),
        Mode::WithoutLeases if path.contains("/leases") => status(403),
        Mode::Limits if !is_about_one(path) => status(429),
        Mode::SmallPages if path.contains("limit=500") => status(500),
        Mode::Endless if !is_about_one(path) => {
            let metadata = json!({ "resourceVersion": "1", "continue": "on" });
            (
                200,
                json!({ "kind": "LeaseList", "metadata": metadata, "items": [] }),
            )
        }
        _ => (200, page(path)),
    }
}

impl Server {
    fn start(limits: ProbeLimits) -> Self {
        let (mode, modes) = watch::channel(Mode::Answers);
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let record = Arc::clone(&asked);
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let (path, mode) = (request.uri().to_string(), *modes.borrow());
            record.lock().unwrap().push(path.clone());
            async move {
                let hangs_on_all = matches!(mode, Mode::HangsOnAll) && !is_about_one(&path);
                if matches!(mode, Mode::Hangs) || hangs_on_all {
                    std::future::pending::<()>().await;
                }
                let (code, body) = respond(mode, &path);
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let (events, received) = mpsc::channel(100);
        let (answers, answer) = watch::channel(None);
        let (found, problems) = watch::channel(Vec::new());
        let probe = ServerProbe::new(ProbeParts {
            client: Client::new(service, "default"),
            cluster: Some("blue".parse().unwrap()),
            max_leases: 1000,
            limits,
            events,
            registry: Arc::new(StatusRegistry::new(&[], found, WatchMetrics::default())),
        });
        tokio::spawn(probe.run(answers));
        Self {
            mode,
            asked,
            answer,
            problems,
            events: received,
        }
    }

    /// Waits for the next change of whether the server is reached; returns after how long.
    async fn until(&mut self, is_reached: bool) -> Duration {
        let begun = Instant::now();
        let changed = timeout(Duration::from_mins(10), self.answer.changed()).await;
        changed.unwrap().unwrap();
        assert_eq!(self.answer.borrow_and_update().is_none(), is_reached);
        begun.elapsed()
    }

    async fn leases(&mut self) -> Vec<NodeLease> {
        match self.events.recv().await {
            Some(InventoryEvent::Leases(leases)) => leases.leases,
            other => panic!("{other:?}"),
        }
    }

    fn problems(&self) -> Vec<Finding> {
        self.problems.borrow().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_noticed_and_comes_back_with_its_leases() {
    for (limits, longest) in [(ProbeLimits::USER_CLUSTER, 35), (ProbeLimits::INFRA, 30)] {
        let mut server = Server::start(limits);
        let leases = server.leases().await;
        let names: Vec<_> = leases.iter().map(|one| one.node.as_str()).collect();
        assert_eq!(names, ["n1", "n2"], "of both pages, and those that were renewed");
        let first = (leases[0].renewed_ms, leases[0].lasts_ms);
        assert_eq!(first, (1_767_225_600_000, Some(40_000)));

        server.mode.send_replace(Mode::Hangs);
        let after = server.until(false).await;
        assert!(after <= Duration::from_secs(longest), "{after:?}");
        let why = server.answer.borrow().clone().unwrap();
        assert!(why.message.contains("did not answer within"), "{why:?}");

        while server.events.try_recv().is_ok() {}
        server.mode.send_replace(Mode::Answers);
        server.until(true).await;
        let first = server.events.try_recv();
        assert!(
            matches!(first, Ok(InventoryEvent::Leases(_))),
            "the heartbeats are sent first"
        );
        // Kubelets renew them now, so they are read with each question.
        let begun = Instant::now();
        for _ in 0..4 {
            server.leases().await;
        }
        assert!(
            begun.elapsed() <= AFTER_OUTAGE + Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        server.leases().await;
        assert!(begun.elapsed() + INTERVAL >= AFTER_OUTAGE + LEASES_INTERVAL);
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_expire_are_noticed_soon_and_one_refusal_is_none() {
    let mut server = Server::start(ProbeLimits::USER_CLUSTER);
    server.leases().await;
    server.mode.send_replace(Mode::Fails(401));
    tokio::time::sleep(INTERVAL + Duration::from_secs(2)).await;
    server.mode.send_replace(Mode::Answers);
    tokio::time::sleep(INTERVAL * 2).await;
    assert!(!server.answer.has_changed().unwrap());
    server.mode.send_replace(Mode::Fails(401));
    let after = server.until(false).await;
    assert!(after <= INTERVAL + RETRY_INTERVAL, "{after:?}");
    assert_eq!(server.answer.borrow().as_ref().unwrap().code, Some(401));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_none_and_a_long_one_is() {
    let mut server = Server::start(ProbeLimits::USER_CLUSTER);
    server.leases().await;
    server.mode.send_replace(Mode::Fails(500));
    tokio::time::sleep(Duration::from_secs(14)).await;
    server.mode.send_replace(Mode::Answers);
    tokio::time::sleep(INTERVAL).await;
    assert!(!server.answer.has_changed().unwrap());
    server.mode.send_replace(Mode::Fails(503));
    server.asked.lock().unwrap().clear();
    let after = server.until(false).await;
    assert!(after <= Duration::from_secs(40), "{after:?}");
    let asked = server.asked.lock().unwrap().clone();
    assert!(asked.iter().all(|path| is_about_one(path)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_leases_nodes_are_asked_for() {
    let mut server = Server::start(ProbeLimits::USER_CLUSTER);
    server.mode.send_replace(Mode::WithoutLeases);
    assert_eq!(
        server.leases().await,
        [],
        "the index uses the status of the Nodes"
    );
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(
        !server.answer.has_changed().unwrap(),
        "a server that refuses answers"
    );
    let found = server.problems();
    let remedy = found.first().map(|one| one.remedy.as_str()).unwrap_or_default();
    assert!(remedy.contains("user-cluster/rbac.yaml"), "{found:?}");
    let asked = server.asked.lock().unwrap().clone();
    let of_nodes = asked
        .iter()
        .filter(|path| path.starts_with("/api/v1/nodes?"))
        .count();
    assert!(asked.len() - of_nodes <= 7 && of_nodes >= 29, "{asked:?}");
    // A question about one object costs the server little.
    let mut nodes = asked.iter().filter(|path| path.contains("nodes"));
    assert!(nodes.all(|path| is_about_one(path)));
    server.mode.send_replace(Mode::Answers);
    let granted = async { while server.leases().await.is_empty() {} };
    timeout(Duration::from_mins(15), granted).await.unwrap();
    assert_eq!(server.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_passes_forgets_no_heartbeat() {
    let mut server = Server::start(ProbeLimits::USER_CLUSTER);
    server.leases().await;
    server.mode.send_replace(Mode::WithoutLeases);
    tokio::time::sleep(LEASES_INTERVAL + Duration::from_secs(5)).await;
    server.mode.send_replace(Mode::Answers);
    let begun = Instant::now();
    assert_eq!(server.leases().await.len(), 2);
    assert!(begun.elapsed() <= INTERVAL, "{:?}", begun.elapsed());
    assert_eq!(server.problems(), []);
}

/// Only then the status of the Nodes can count before the last Leases are too old.
#[tokio::test(start_paused = true)]
async fn a_list_of_leases_that_fails_is_no_silence_and_given_up_in_time() {
    for mode in [Mode::Limits, Mode::HangsOnAll, Mode::Endless] {
        let mut server = Server::start(ProbeLimits::USER_CLUSTER);
        server.leases().await;
        let begun = Instant::now();
        server.mode.send_replace(mode);
        assert_eq!(server.leases().await, [], "{mode:?}");
        let after = begun.elapsed();
        assert!(after <= Duration::from_secs(100), "{mode:?}: {after:?}");
        assert!(!server.answer.has_changed().unwrap(), "{mode:?}");
        assert_eq!(server.problems().len(), 1, "{mode:?}");
        let asked = server.asked.lock().unwrap().len();
        assert!(asked <= 150, "{mode:?}: {asked} requests");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_too_large_are_read_in_smaller_pages() {
    let mut server = Server::start(ProbeLimits::USER_CLUSTER);
    server.mode.send_replace(Mode::SmallPages);
    assert_eq!(server.leases().await.len(), 2);
    assert_eq!(server.problems(), []);
}
