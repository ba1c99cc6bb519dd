use super::tests::Server;
use crate::api::testing::{self, TestFleet};

fn server() -> Server {
    let fleet = TestFleet::new(testing::fleet());
    Server::serving(crate::api::router(testing::state(fleet.clone())), fleet)
}

#[test]
fn recorded_keys_are_listed_and_shown_with_their_vm() {
    let server = server();
    let (code, out, err) = server.run(&["enrolment", "list"]);
    assert_eq!(code, 0, "{err}");
    let mut lines = out.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAMESPACE", "NAME", "STATE", "KEY", "VALID-FOR", "SINCE"]
    );
    let row = lines.next().unwrap();
    for part in ["cluster-a", "worker-2", "enrolled", "a5a5a5a5a5a5a5a5 "] {
        assert!(row.contains(part), "{row}");
    }
    let (_, wide, _) = server.run(&["enrollment", "list", "-o", "wide"]);
    assert!(wide.contains(&"a5".repeat(32)) && wide.contains("4a1b"), "{wide}");
    let (_, none, _) = server.run(&["enrolment", "list", "--state", "revoked"]);
    assert_eq!(none, "no recorded keys\n");
    let (_, vm, _) = server.run(&["vm", "cluster-a/worker-2"]);
    assert!(vm.contains("Enrolment:") && vm.contains("uid-1"), "{vm}");
    let (_, vm, _) = server.run(&["vm", "cluster-a/worker-0"]);
    assert!(!vm.contains("Enrolment:"), "{vm}");
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_next_step() {
    let server = server();
    for (args, code, part) in [
        // There is no keeper, so nothing is recorded.
        (&["enrolment", "revoke", "worker-2"][..], 1, "stopping"),
        (
            &["enrolment", "reset", "cluster-a/worker-0"],
            4,
            "no key is recorded",
        ),
        (&["enrolment", "reset", "no-such-vm"], 4, "no-such-vm"),
        (&["enrolment", "list", "--watch"], 2, "--watch"),
        (&["vm", "revoke", "worker-2"], 1, "stopping"),
        (&["vm", "reset", "cluster-a/worker-0"], 4, "no key is recorded"),
        (&["vm", "revoke", "no-such-vm"], 4, "no-such-vm"),
        (&["vm", "reset", "worker-2", "--watch"], 2, "--watch"),
        // A VM of that name needs its namespace.
        (&["vm", "cluster-a/revoke"], 4, "cluster-a/revoke"),
    ] {
        let (found, out, err) = server.run(args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}
