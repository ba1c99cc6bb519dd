//! Scope in which objects may be missing or outdated, derived from the inventory's findings.

use virtfleet_wire::finding::Severity;

use super::{
    tests::{apply, small},
    *,
};
use crate::{
    facts::{Fact, Migration},
    store::tests::{cluster, key, labels, vmi},
    view::ClusterState,
};

const START_MS: u64 = 1_800_000_000_000;

#[test]
fn a_broken_object_of_one_tenant_affects_only_that_tenant() {
    let mut index = small();
    index.apply(InventoryEvent::Init);
    index.apply(InventoryEvent::Synced);
    let broken = |name: &str, value: &str| {
        let subject = ("Node", "n");
        let found = Finding::new(
            findings::INVENTORY_OBJECT_UNREADABLE,
            Severity::Warning,
            subject,
            "R",
            "m",
        );
        found.with(name, value)
    };
    apply(&mut index, [Fact::UserCluster(cluster("c", "ns", &[]))]);
    index.set_inventory_findings(vec![broken("cluster", "c"), broken("namespace", "team")]);
    let snapshot = index.snapshot();
    assert!(!snapshot.partial);
    let expected = Gaps {
        clusters: ["c".parse().unwrap()].into(),
        namespaces: ["team".parse().unwrap()].into(),
    };
    assert_eq!(snapshot.gaps, expected);
    assert!(snapshot.clusters[0].partial);
    let unreachable = Finding::new(
        findings::USER_CLUSTER_FAILED,
        Severity::Warning,
        ("UserCluster", "c"),
        "R",
        "m",
    );
    index.set_inventory_findings(vec![unreachable.with("cluster", "c")]);
    assert!(index.snapshot().clusters[0].partial);
    index.set_inventory_findings(Vec::new());
    assert!(!index.snapshot().clusters[0].partial);
    let hibernated = ClusterStatus {
        state: ClusterState::Hibernated,
        message: None,
    };
    index.set_cluster_statuses(BTreeMap::from([("c".parse().unwrap(), hibernated)]));
    let off = index.snapshot();
    assert_eq!((off.clusters[0].partial, off.gaps), (false, Gaps::default()));
    apply(&mut index, [Fact::Vmi(Box::new(vmi("ns", "w0")))]);
    let running = index.snapshot();
    assert!(running.clusters[0].partial, "the Node of its VM is not read");
    index.set_cluster_statuses(BTreeMap::new());
    // A gap without a valid cluster name affects all clusters.
    index.set_inventory_findings(vec![broken("cluster", "Not A Name")]);
    assert!(index.snapshot().partial);
}

/// A VM whose VMI names a migration without object.
fn forgotten(namespace: &str, uid: &str, label: &str) -> Fact {
    let mut made = vmi(namespace, "a");
    made.labels = labels(&[("a", label)]);
    made.migration = Some(Migration {
        source: Some("n1".parse().unwrap()),
        target: Some("n2".parse().unwrap()),
        uid: Some(uid.parse().unwrap()),
        ..Migration::default()
    });
    Fact::Vmi(Box::new(made))
}

/// States of the VM of each of both namespaces.
fn states(index: &FleetIndex) -> [VmState; 2] {
    ["ns", "other"].map(|namespace| index.detail(&key(namespace, "a")).unwrap().vm.state)
}

#[test]
fn a_failing_watch_revives_no_migration_and_ends_none() {
    use VmState::{Migrating, Running};
    for id in [findings::INVENTORY_KIND_ABSENT, findings::INVENTORY_WATCH_FAILING] {
        let fails = Finding::new(id, Severity::Warning, ("Watch", "w"), "R", "m").with("namespace", "ns");
        let mut index = FleetIndex::default();
        index.set_cluster_statuses(BTreeMap::new());
        let go_on = |index: &mut FleetIndex, seconds: u64| {
            index.set_time(String::new(), START_MS + seconds * 1000);
            index.settle();
        };
        go_on(&mut index, 0);
        let both = |uid, label| ["ns", "other"].map(|namespace| forgotten(namespace, uid, label));
        apply(&mut index, both("u", "old"));
        index.apply(InventoryEvent::Synced);
        assert_eq!(states(&index), [Migrating, Migrating]);
        let revision = index.revision();
        go_on(&mut index, 300);
        assert_eq!(states(&index), [Running, Running]);
        assert_ne!(index.revision(), revision, "it is a visible change");

        index.set_inventory_findings(vec![fails]);
        apply(&mut index, both("u", "new"));
        assert_eq!(states(&index), [Running, Running], "{id}");

        // The next migration ends in the namespace only whose objects are followed.
        apply(&mut index, both("w", "new"));
        go_on(&mut index, 700);
        assert_eq!(states(&index), [Migrating, Running], "{id}");
        index.set_inventory_findings(Vec::new());
        go_on(&mut index, 999);
        assert_eq!(states(&index), [Migrating, Running], "{id}");
        go_on(&mut index, 1000);
        assert_eq!(states(&index), [Running, Running], "{id}");
    }
}

#[test]
fn without_namespaces_forgotten_migrations_are_noticed() {
    let absent = Finding::new(
        findings::INVENTORY_KIND_ABSENT,
        Severity::Warning,
        ("Watch", "namespaces"),
        "Forbidden",
        "m",
    );
    let mut index = FleetIndex::default();
    index.set_cluster_statuses(BTreeMap::new());
    index.set_inventory_findings(vec![absent.with("kind", "Namespace")]);
    index.set_time(String::new(), START_MS);
    index.settle();
    apply(
        &mut index,
        ["ns", "other"].map(|namespace| forgotten(namespace, "u", "a")),
    );
    index.apply(InventoryEvent::Synced);
    assert_eq!(states(&index), [VmState::Migrating; 2]);
    index.set_time(String::new(), START_MS + 300_000);
    index.settle();
    assert_eq!(states(&index), [VmState::Running; 2]);
}
