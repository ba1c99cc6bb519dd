use super::tests::Server;
use crate::{
    ca::{CaService, CaStore},
    leader::{LeaseView, WriteAccess},
};

/// A collector with a new authority in a folder.
fn server(folder: &std::path::Path, write_access: WriteAccess) -> Server {
    let store = CaStore::folder(folder.join("ca"), "example.org");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let authorities = runtime.block_on(store.load_or_create(1_767_225_600)).unwrap();
    Server::with_ca(CaService::of(store, authorities, write_access))
}

#[test]
fn status_and_rotation_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), WriteAccess::fixed(false));
    let (code, out, err) = server.run(&["ca", "status"]);
    assert_eq!(code, 0, "{err}");
    for part in [
        "Trust domain:    example.org\n",
        "Denied serials:  0\n",
        "  KIND     ROLE   SHA256            VALID-UNTIL           MANAGED-BY\n",
        "  clients  signs  ",
        "  2035-12-30T00:00:00Z  -\n",
        "Next:\n  nothing to do; rotate the roots before 2035-07-03T00:00:00Z\n",
    ] {
        assert!(out.contains(part), "{out}");
    }
    let (code, out, err) = server.run(&["ca", "rotate", "clients"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("  clients  trusted       ") && out.contains("  clients  cross-signed  "),
        "{out}"
    );
    let (_, json, _) = server.run(&["ca", "status", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["trustDomain"], "example.org");
    let (_, yaml, _) = server.run(&["ca", "rotate", "agents", "-o", "yaml"]);
    assert!(yaml.contains("role: crossSigned"), "{yaml}");
}

#[test]
fn wrong_rotations_name_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let lease = LeaseView {
        name: "virtfleet/virtfleet-collector".into(),
        holder: Some("collector-x7k_00ff".into()),
    };
    let server = server(folder.path(), WriteAccess::standby_of(lease));
    for (args, code, part) in [
        (
            &["ca", "rotate", "clients"][..],
            1,
            "this collector is a standby; the leader is collector-x7k_00ff",
        ),
        (
            &["ca", "rotate", "agents", "--drop-oldest"],
            2,
            "--drop-oldest applies to clients",
        ),
        (
            &["ca", "rotate", "agents", "--watch"],
            2,
            "ca rotate does not support --watch",
        ),
    ] {
        let (exit, _, err) = server.run(args);
        assert!(exit == code && err.contains(part), "{args:?}: {exit} {err}");
    }
}
