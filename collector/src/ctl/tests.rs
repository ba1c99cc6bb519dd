//! Tests of the CLI with a real listener.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use clap::Parser as _;
use tokio::{net::TcpListener, runtime::Runtime};

use super::{cli::Cli, console::Console, run::run};
use crate::{
    api::{
        self,
        testing::{self, NOW, TestFleet},
    },
    ca::CaService,
};

/// A server on its own runtime, which ends with the test.
pub(super) struct Server {
    address: SocketAddr,
    pub(super) fleet: Arc<TestFleet>,
    pub(super) runtime: Runtime,
}

impl Server {
    pub(super) fn new() -> Self {
        let fleet = TestFleet::new(testing::fleet());
        Self::serving(api::router(testing::state(fleet.clone())), fleet)
    }

    /// With this authority.
    pub(super) fn with_ca(ca: CaService) -> Self {
        let fleet = TestFleet::new(testing::fleet());
        let mut state = testing::state(fleet.clone());
        state.ca = Some(ca);
        Self::serving(api::router(state), fleet)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn serving(router: Router, fleet: Arc<TestFleet>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            fleet,
            runtime,
        }
    }

    pub(super) fn cli(&self, args: &[&str]) -> Cli {
        let server = format!("http://{}", self.address);
        Cli::try_parse_from(["virtfleetctl", "--server", &server].iter().chain(args)).unwrap()
    }

    /// Exit code, standard output, and standard error with the server's address replaced.
    pub(super) fn run(&self, args: &[&str]) -> (u8, String, String) {
        let (code, out, err) = run_cli(&self.cli(args), false);
        (code, out, err.replace(&self.address.to_string(), "SERVER"))
    }
}

pub(super) fn run_cli(cli: &Cli, colour: bool) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        colour,
        terminal: false,
        now: || NOW,
    };
    let code = run(cli, &mut console);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

#[test]
fn snapshots_of_tables() {
    let server = Server::new();
    for (name, args) in [
        ("vms", &["vms"][..]),
        ("vms_wide", &["vms", "-o", "wide"]),
        (
            "vms_filtered",
            &["vms", "--state", "running,stopped", "--no-headers"],
        ),
        ("vms_none", &["vms", "--zone", "nowhere"]),
        ("vm", &["vm", "cluster-a/worker-0", "-o", "wide"]),
        ("vm_spec", &["vm", "cluster-a/worker-0", "--spec"]),
        ("vm_silent", &["vm", "worker-1"]),
        ("vms_sick", &["vms", "--health", "critical,degraded"]),
        ("host", &["host", "infra-1"]),
        ("top_hosts", &["top", "hosts"]),
        ("top_vms", &["top", "--by", "steal", "-o", "wide"]),
        ("hosts_wide", &["hosts", "-o", "wide"]),
        ("clusters_wide", &["clusters", "-o", "wide"]),
        ("findings_wide", &["findings", "-o", "wide"]),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        assert!(out.is_ascii() || !out.contains('\u{202e}'), "{out}");
        assert!(
            !out.contains('\u{1b}'),
            "{args:?} lets a guest write to the terminal: {out:?}"
        );
        insta::assert_snapshot!(name, format!("{out}--- stderr\n{err}"));
    }
}

#[test]
fn status_is_a_summary_whose_exit_code_is_the_worst_verdict() {
    let server = Server::new();
    let (code, out, err) = server.run(&["status"]);
    assert_eq!(code, 6, "{out}{err}");
    insta::assert_snapshot!("status", out);
    let (code, json, _) = server.run(&["status", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["verdict"]), (6, &"Degraded".into()));
}

#[test]
fn drains_and_placements_have_exit_codes() {
    let server = Server::new();
    for (name, args, expected) in [
        ("drain", &["drain", "infra-1"][..], 7),
        ("drain_wide", &["drain", "infra-2", "-o", "wide"], 0),
        ("placement", &["placement"], 6),
        ("drain_missing", &["drain", "infra-11"], 4),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!(code, expected, "{args:?}: {out}{err}");
        insta::assert_snapshot!(name, format!("{out}--- stderr\n{err}"));
    }
    let (_, json, _) = server.run(&["drain", "infra-1", "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(plan["vms"][0]["outcome"], "blocks");
    let (code, _, err) = server.run(&["drain", "infra-1", "--watch"]);
    assert!(
        code == 2 && err.contains("drain does not support --watch"),
        "{code}: {err}"
    );
}

#[test]
fn colours_do_not_change_the_text() {
    let server = Server::new();
    for args in [&["vms"][..], &["vm", "worker-1"], &["findings"]] {
        let (_, coloured, _) = run_cli(&server.cli(args), true);
        assert!(coloured.contains("\x1b["), "{coloured}");
        let (_, plain, _) = server.run(args);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
    }
}

#[test]
fn json_and_yaml_are_the_response() {
    let server = Server::new();
    let (_, json, _) = server.run(&["vms", "--agent", "up", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["items"][0]["agent"]["status"], "up");
    assert_eq!(json["items"].as_array().unwrap().len(), 1);
    let (_, yaml, _) = server.run(&["vms", "--agent", "up", "-o", "yaml"]);
    let documents = virtfleet_wire::layered::parse_yaml(&yaml).unwrap();
    assert_eq!(documents[0].to_json(), json);
}

#[test]
fn errors_name_the_cause_and_the_next_step() {
    let server = Server::new();
    for (args, code, part) in [
        (
            &["vm", "worker-0"][..],
            1,
            "several VMs have the name worker-0; specify one:\n  cluster-a/worker-0\n  cluster-b/worker-0",
        ),
        (
            &["vm", "worker"],
            4,
            "there is no VM worker: did you mean cluster-a/worker-0",
        ),
        (
            &["vm", "unknown"],
            4,
            "there is no VM unknown: virtfleetctl vms lists all VMs",
        ),
        (
            &["vm", "cluster-a/unknown"],
            4,
            "there is no VM cluster-a/unknown",
        ),
        (&["vm", "Cluster/x"], 2, "\"Cluster\" is not a valid namespace"),
        (&["vms", "--zone", ""], 2, "\"zone\" is empty"),
        (&["vms", "--server", "ftp://x"], 2, "not an http or https URL"),
        (&["vms", "--cacert", "/nonexistent"], 2, "require an https URL"),
        (
            &["vms", "--server", "https://x", "--cacert", "/nonexistent"],
            2,
            "/nonexistent: No such file",
        ),
        (
            &["vms", "--server", "https://x", "--cacert", "/dev/null"],
            2,
            "contains no certificate",
        ),
    ] {
        let mut all: Vec<&str> = vec!["virtfleetctl"];
        let own = format!("http://{}", server.address);
        if !args.contains(&"--server") {
            all.extend(["--server", &own]);
        }
        all.extend(args);
        let (got, out, err) = run_cli(&Cli::try_parse_from(all).unwrap(), false);
        assert_eq!((got, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(part),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn an_unreachable_collector_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}/");
    let cli = Cli::try_parse_from(["virtfleetctl", "vms", "--server", &url]).unwrap();
    let (code, _, err) = run_cli(&cli, false);
    assert_eq!(code, 1);
    assert_eq!(
        err,
        format!(
            "error: cannot reach http://{free}: connection refused. Is virtfleet-collector running? \
             Set --server or VIRTFLEET_SERVER\n"
        )
    );
}

#[test]
fn control_characters_in_errors_are_escaped() {
    let refuse = || async {
        let body =
            serde_json::json!({ "error": { "code": "x", "message": "a\u{1b}[2J\u{9b}b", "remedy": "" } });
        (http::StatusCode::BAD_REQUEST, body.to_string())
    };
    let other = Router::new().route("/api/v1/vms", axum::routing::get(refuse));
    let server = Server::serving(other, TestFleet::new(testing::fleet()));
    let (code, _, err) = server.run(&["vms"]);
    assert_eq!((code, err.as_str()), (1, "error: a\\u{1b}[2J\\u{9b}b\n"));
}

#[test]
fn a_silent_collector_times_out() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let cli = Cli::try_parse_from(["virtfleetctl", "vms", "--server", &url, "--timeout", "50ms"]).unwrap();
    let (code, _, err) = run_cli(&cli, false);
    assert_eq!(code, 1);
    assert!(err.contains("no answer within 50ms (--timeout)"), "{err}");
}

#[test]
fn other_servers_are_detected() {
    let fleet = TestFleet::new(testing::fleet());
    let other = Router::new()
        .route("/api/v1/vms", axum::routing::get(|| async { "<html>" }))
        .route("/api/v1/hosts", axum::routing::get(|| async { "{\"a\":1}" }));
    let server = Server::serving(other, fleet);
    for (verb, part) in [
        ("vms", "returned 200 OK without JSON"),
        ("hosts", "cannot parse"),
        ("clusters", "returned 404 Not Found without JSON"),
    ] {
        let (code, _, err) = server.run(&[verb]);
        assert_eq!(code, 1);
        assert!(
            err.contains(part) && err.contains("http://SERVER/api/v1/"),
            "{verb}: {err}"
        );
    }
}

#[test]
fn an_incomplete_inventory_is_reported() {
    let server = Server::new();
    server.fleet.change(|fleet| {
        fleet.partial = true;
        fleet.findings.clear();
    });
    let (code, _, err) = server.run(&["vms"]);
    assert_eq!(code, 0);
    assert_eq!(
        err,
        "warning: the inventory is incomplete, so objects may be missing here\n"
    );
}

#[test]
fn usage_errors_are_exit_code_2_and_help_is_0() {
    for (args, code) in [
        (&["virtfleetctl", "vms", "--state", "dead"][..], 2),
        (&["virtfleetctl", "vmz"], 2),
        (&["virtfleetctl", "vms", "--cert", "x"], 2),
        (&["kubectl-virtfleet", "--help"], 0),
    ] {
        assert_eq!(
            Cli::try_parse_from(args).unwrap_err().exit_code(),
            code,
            "{args:?}"
        );
    }
    super::cli::command().debug_assert();
}

#[test]
fn every_verb_and_option_is_in_the_manual() {
    let manual = include_str!("../../../docs/cli.md");
    let command = super::cli::command();
    for verb in command.get_subcommands() {
        assert!(
            manual.contains(&format!("| `{}", verb.get_name())),
            "{}",
            verb.get_name()
        );
        for option in verb.get_arguments().chain(command.get_arguments()) {
            let Some(long) = option.get_long() else { continue };
            assert!(
                manual.contains(&format!("--{long}")),
                "--{long} is not in docs/cli.md"
            );
        }
    }
}

#[test]
fn a_limited_request_is_sent_again_after_a_pause() {
    let limited = Arc::new(std::sync::atomic::AtomicUsize::new(1));
    let router = |limited: Arc<std::sync::atomic::AtomicUsize>| {
        let fleet = TestFleet::new(testing::fleet());
        let layer = axum::middleware::from_fn(
            move |request: axum::extract::Request, next: axum::middleware::Next| {
                let limited = Arc::clone(&limited);
                async move {
                    use axum::response::IntoResponse as _;
                    use std::sync::atomic::Ordering::SeqCst;
                    if limited
                        .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                        .is_ok()
                    {
                        let code = api::TOO_MANY_REQUESTS;
                        let body = format!(
                            r#"{{"error":{{"code":"{code}","message":"too many requests","remedy":""}}}}"#
                        );
                        let head = [("retry-after", "0"), ("content-type", "application/json")];
                        return (http::StatusCode::TOO_MANY_REQUESTS, head, body).into_response();
                    }
                    next.run(request).await
                }
            },
        );
        Server::serving(api::router(testing::state(fleet.clone())).layer(layer), fleet)
    };
    let server = router(Arc::clone(&limited));
    let begun = std::time::Instant::now();
    let (code, _, err) = server.run(&["clusters"]);
    assert_eq!(code, 0, "{err}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "no pause");
    limited.store(usize::MAX, std::sync::atomic::Ordering::SeqCst);
    let (code, _, err) = server.run(&["clusters"]);
    assert!(code == 1 && err.contains("too many requests"), "{code} {err}");
    let left = limited.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(usize::MAX - left, 5, "it gives up");
}
