//! Golden outputs of the verbs that tell a VM's story, and of options that all lists have.

use std::{sync::Arc, time::Duration};

use clap::CommandFactory as _;
use virtfleet_collector_core::{
    health::{HealthCause, HealthVerdict},
    view::VmView,
};

use super::{cli::Program, tests::Server};
use crate::api::{
    self,
    testing::{self, TestFleet},
};

#[test]
fn snapshots_of_stories() {
    let server = Server::new();
    for (name, args) in [
        ("events", &["events"][..]),
        ("events_wide", &["events", "worker-1", "-o", "wide"]),
        ("migrations", &["migrations"]),
        ("migrations_wide", &["migrations", "-o", "wide"]),
        ("why_silent", &["why", "worker-1"]),
        ("why_healthy", &["why", "cluster-a/worker-0"]),
        ("why_stopped", &["why", "cluster-b/worker-0"]),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        assert!(!out.contains('\u{1b}'), "{out:?}");
        insta::assert_snapshot!(name, out);
    }
}

#[test]
fn lists_are_filtered() {
    let server = Server::new();
    for (args, part, without) in [
        (&["events", "--kind", "pause"][..], "pause", "migration"),
        (&["events", "--host", "infra-2"], "worker-2", "worker-1"),
        (&["events", "--node", "infra-2"], "worker-2", "worker-1"),
        (&["events", "cluster-a/worker-1"], "worker-1", "worker-2"),
        (&["migrations", "--phase", "running"], "worker-2", "worker-1"),
        (
            &["migrations", "--host", "infra-9"],
            "No migrations known.",
            "worker",
        ),
        (&["migrations", "--state", "migrating"], "worker-2", "worker-1"),
        (&["findings", "--host", "infra-2"], "No findings.", "Manifest"),
        (&["findings", "--health", "degraded"], "worker-1", "Manifest"),
        (&["vms", "-l", "app=worker"], "worker-0", "No VMs"),
        (&["vms", "-l", "app!=worker"], "No VMs found.", "worker-0"),
        (&["vms", "--host", "infra-2"], "worker-2", "worker-0"),
    ] {
        let (code, out, err) = server.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        assert!(out.contains(part) && !out.contains(without), "{args:?}: {out}");
    }
    let (code, _, err) = server.run(&["vms", "-l", "a within (b)"]);
    assert!(code == 2 && err.contains("\"selector\""), "{code} {err}");
    let (code, out, _) = server.run(&["events", "--since", "2m"]);
    assert!(
        code == 0 && out.contains("AgentStopped") && !out.contains("paused"),
        "{out}"
    );
}

#[test]
fn names_can_be_piped_into_other_commands() {
    let server = Server::new();
    let (_, out, _) = server.run(&["vms", "-o", "name", "--sort-by", "state"]);
    let names: Vec<&str> = out.lines().collect();
    assert_eq!(names.len(), 6, "{out}");
    assert_eq!(names[0], "cluster-a/worker-2", "migrating comes first");
    let (code, _, err) = server.run(&["why", names[0]]);
    assert_eq!(code, 0, "{err}");
    for (args, first) in [
        (&["hosts", "-o", "name"][..], "infra-1"),
        (&["clusters", "-o", "name"], "prod"),
        (&["findings", "-o", "name"], "Manifest/infra/nodes.yaml"),
        (&["events", "-o", "name"], "cluster-a/worker-2"),
        (&["vm", "worker-1", "-o", "name"], "cluster-a/worker-1"),
    ] {
        let (_, out, err) = server.run(args);
        assert_eq!(out.lines().next(), Some(first), "{args:?}: {err}");
    }
    let (code, _, err) = server.run(&["vms", "--sort-by", "colour"]);
    assert!(code == 2 && err.contains("fields: "), "{code} {err}");
}

#[test]
fn status_waits_for_a_verdict() {
    let fleet = TestFleet::new(testing::fleet());
    let server = Server::serving(api::router(testing::state(fleet.clone())), fleet.clone());
    let begun = std::time::Instant::now();
    let (code, out, err) = server.run(&["status", "--wait", "--wait-timeout", "1s"]);
    assert_eq!(code, 6, "{err}");
    assert!(
        out.contains("Degraded") && begun.elapsed() >= Duration::from_secs(1),
        "{out}"
    );
    assert_eq!(err, "error: the fleet did not become Healthy within 1s\n");
    let (code, _, err) = server.run(&["status", "--wait=degraded", "--wait-timeout", "1s"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, _, err) = server.run(&["status", "--wait", "--watch"]);
    assert!(code == 2 && err.contains("--watch"), "{err}");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.run(&["status", "--wait=unknown", "--wait-timeout", "30s"]));
        while fleet.waiters() == 0 {
            std::thread::yield_now();
        }
        fleet.change(|fleet| {
            for vm in fleet.vms.values_mut() {
                let mut view = VmView::clone(vm);
                view.health.verdict = HealthVerdict::Unknown;
                view.health.cause = Some(HealthCause::Vm);
                *vm = Arc::new(view);
            }
        });
        let (code, out, err) = waits.join().unwrap();
        assert_eq!(code, 0, "{out}{err}");
    });
}

#[test]
fn help_names_the_program_as_it_was_called() {
    for (called, shown) in [
        ("/usr/bin/kubectl-virtfleet", "Usage: kubectl virtfleet "),
        ("virtfleetctl", "Usage: virtfleetctl "),
    ] {
        let name = super::run::called_as(Some(&called.into()));
        let mut command = Program::command().bin_name(name);
        let help = command.render_help().to_string();
        assert!(help.contains(shown), "{help}");
    }
}
