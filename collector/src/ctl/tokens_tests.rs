use super::tests::Server;
use crate::api::testing::{self, TestFleet};

fn server() -> Server {
    let fleet = TestFleet::new(testing::fleet());
    Server::serving(crate::api::router(testing::state(fleet.clone())), fleet)
}

#[test]
fn tokens_are_listed_without_their_hashes() {
    let server = server();
    let (code, out, err) = server.run(&["token", "list"]);
    assert_eq!(code, 0, "{err}");
    let mut lines = out.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
        [
            "ID",
            "CLUSTER",
            "VALID-FOR",
            "FROM",
            "LAST-USED",
            "REFUSED",
            "CREATED"
        ]
    );
    let row = lines.next().unwrap();
    for part in ["3f9c1a7be204", "cluster-a", "expired", "10.0.0.0/8"] {
        assert!(row.contains(part), "{row}");
    }
    for format in ["json", "yaml"] {
        let (_, whole, _) = server.run(&["token", "list", "-o", format]);
        assert!(
            whole.contains("3f9c1a7be204") && !whole.contains("a5a5"),
            "{whole}"
        );
    }
    let (_, none, _) = server.run(&["token", "list", "--cluster", "cluster-b"]);
    assert_eq!(none, "no join tokens\n");
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_next_step() {
    let server = server();
    for (args, code, part) in [
        (&["token", "create", "no-such-cluster"][..], 4, "no UserCluster"),
        // Only labels of VMs name it.
        (&["token", "create", "staging"], 4, "no UserCluster"),
        (&["token", "create", "prod", "--ttl", "30s"], 2, "8760h"),
        (&["token", "revoke", "x"], 2, "hexadecimal"),
        // The store of this test cannot be used.
        (&["token", "create", "prod"], 1, "cannot read"),
        (&["token", "revoke", "3f9c1a7be204"], 1, "cannot read"),
        (&["token", "list", "--watch"], 2, "--watch"),
    ] {
        let (found, out, err) = server.run(args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}
