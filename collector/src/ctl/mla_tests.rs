//! Golden outputs and exit codes of `mla`.

use std::sync::Arc;

use serde_json::Value;
use virtfleet_collector_core::mla::status::{QueueStatusView, StreamName, StreamState};

use super::tests::Server;
use crate::{
    api::{
        self,
        testing::{self, NOW, TestFleet},
    },
    mla::status::MlaStatus,
};

fn serving(queues: &[QueueStatusView]) -> Server {
    let fleet = TestFleet::new(testing::fleet());
    let mut state = testing::state(fleet.clone());
    let status = MlaStatus::default();
    for queue in queues {
        assert!(status.publish_queue(queue.clone(), NOW));
    }
    state.mla = Arc::new(status);
    Server::serving(api::router(state), fleet)
}

#[test]
fn snapshots_of_mla() {
    let server = Server::new();
    for (name, args) in [
        ("mla", &["mla"][..]),
        ("mla_queues", &["mla", "queues"]),
        ("mla_queues_wide", &["mla", "queues", "-o", "wide"]),
        ("mla_targets", &["mla", "targets", "--sort-by", "samples"]),
        (
            "mla_targets_wide",
            &["mla", "targets", "--cluster", "prod", "-o", "wide"],
        ),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        insta::assert_snapshot!(name, out);
    }
}

#[test]
fn names_and_filters_of_streams_and_pages() {
    let server = Server::new();
    for (args, expected) in [
        (&["mla", "-o", "name"][..], "cluster/prod\nfleet\n"),
        (
            &["mla", "queues", "--cluster", "prod", "-o", "name"],
            "cluster/prod\n",
        ),
        (
            &["mla", "queues", "--state", "live,stopped", "-o", "name"],
            "fleet\n",
        ),
        (
            &["mla", "targets", "--error", "overLimit", "-o", "name"],
            "cluster-a/worker-2\n",
        ),
        (
            &["mla", "targets", "--error", "pullFailed", "-o", "name"],
            "cluster-a/worker-1\n",
        ),
        (&["mla", "targets", "-n", "stray", "-o", "name"], "stray/odd\n"),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!((code, out.as_str()), (0, expected), "{args:?}: {err}");
    }
    let (_, json, _) = server.run(&["mla", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["items"][0]["dropped"]["queueFull"], 5_000);
}

#[test]
fn a_stopped_or_refused_stream_has_an_exit_code() {
    for (state, expected) in [
        (StreamState::Live, 0),
        (StreamState::Retrying, 0),
        (StreamState::NotConfigured, 0),
        (StreamState::Refused, 7),
        (StreamState::Stopped, 7),
    ] {
        let queue = QueueStatusView {
            problem: Some("Secret mla/gw has no key \"ca.crt\"\u{1b}[2J".to_owned()),
            ..QueueStatusView::new(StreamName::Fleet, state)
        };
        let server = serving(&[queue]);
        for args in [&["mla"][..], &["mla", "queues", "-o", "wide"]] {
            let (code, out, err) = server.run(args);
            assert_eq!(code, expected, "{state:?}: {out}{err}");
            assert!(out.contains("has no key") && !out.contains('\u{1b}'), "{out}");
        }
    }
    let (code, out, _) = serving(&[]).run(&["mla"]);
    assert_eq!((code, out.as_str()), (0, "No streams: MLA is not configured.\n"));
}
