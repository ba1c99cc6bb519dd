//! Scope in which objects may be missing, derived from the inventory's findings.

use virtfleet_wire::finding::Severity;

use super::{
    tests::{apply, small},
    *,
};
use crate::{facts::Fact, store::tests::cluster};

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
    // A gap without a valid cluster name affects all clusters.
    index.set_inventory_findings(vec![broken("cluster", "Not A Name")]);
    assert!(index.snapshot().partial);
}
