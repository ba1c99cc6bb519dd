use virtfleet_wire::ids::NodeName;

use super::{
    tests::{apply, on},
    *,
};
use crate::{
    facts::{Fact, FactKey},
    store::tests::{cluster, infra_node, user_node, vmi},
};

#[test]
fn ten_thousand_vms_are_joined() {
    const VMS: usize = 10_000;
    let mut index = FleetIndex::new(DialRules::default());
    index.apply(InventoryEvent::Init);
    for i in 0..VMS {
        let (namespace, name) = (format!("ns-{}", i % 100), format!("w-{i}"));
        let mut vmi = vmi(&namespace, &name);
        vmi.interfaces[0].addresses =
            vec![std::net::Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(i).unwrap()).into()];
        apply(
            &mut index,
            [
                on(vmi, &format!("n-{}", i % 250)),
                Fact::UserNode(user_node(
                    &format!("c-{}", i % 100),
                    &name,
                    Some(&format!("kubevirt://{name}")),
                )),
            ],
        );
    }
    for i in 0..250 {
        apply(
            &mut index,
            [Fact::InfraNode(infra_node(
                &format!("n-{i}"),
                &format!("z-{}", i % 3),
            ))],
        );
    }
    for i in 0..100 {
        apply(
            &mut index,
            [Fact::UserCluster(cluster(
                &format!("c-{i}"),
                &format!("ns-{i}"),
                &[],
            ))],
        );
    }
    index.apply(InventoryEvent::Synced);
    let snapshot = index.snapshot();
    assert_eq!(
        (snapshot.vms.len(), snapshot.hosts.len(), snapshot.clusters.len()),
        (VMS, 250, 100)
    );
    assert!(snapshot.vms.values().all(|vm| {
        let name = vm.user_node.as_ref().map(NodeName::as_str);
        vm.zone.is_some() && name == Some(vm.name.as_str()) && vm.findings == 0
    }));
    assert!(snapshot.hosts.iter().all(|host| host.vms == VMS / 250));
    assert!(
        snapshot
            .clusters
            .iter()
            .all(|cluster| cluster.vms == VMS / 100 && cluster.nodes_without_vm == 0)
    );
    assert_eq!(snapshot.findings, []);
    assert_eq!(index.targets().len(), VMS);
}

/// KKP's namespaced mode and Gardener: hundreds of user clusters share a namespace. The cost of an
/// event is counted in selector evaluations: one per VM of the namespace for a user cluster, and a
/// few for a VM.
#[test]
fn five_hundred_clusters_in_one_namespace_are_keyed_in_one_walk() {
    const VMS: usize = 10_000;
    const CLUSTERS: usize = 500;
    let mut index = FleetIndex::new(DialRules::default());
    // Every selector also requires the role that all VMs have.
    let selector = |n: usize| [("a-role", "worker".to_owned()), ("id", format!("c-{n}"))];
    let of = |n: usize, name: &str| {
        let pairs = selector(n);
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (*key, value.as_str())).collect();
        Fact::UserCluster(cluster(name, "shared", &pairs))
    };
    for n in 0..CLUSTERS {
        apply(&mut index, [of(n, &format!("c-{n}"))]);
    }
    let count = |index: &FleetIndex| {
        index
            .store
            .selections
            .swap(0, std::sync::atomic::Ordering::Relaxed)
    };
    for i in 0..VMS {
        let mut vmi = vmi("shared", &format!("w-{i}"));
        vmi.labels = selector(i % CLUSTERS)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        apply(&mut index, [on(vmi, "n-1")]);
    }
    index.apply(InventoryEvent::Synced);
    assert!(count(&index) <= 4 * VMS, "loading all VMs");

    // A user cluster that is relabelled, deleted, created again, and one that selects another's
    // VMs.
    let mut relabelled = cluster("c-7", "shared", &[("a-role", "worker"), ("id", "c-7")]);
    relabelled.suspend = true;
    let events = [
        (
            InventoryEvent::Apply(Fact::UserCluster(relabelled)),
            VMS / CLUSTERS,
        ),
        (
            InventoryEvent::Delete(FactKey::UserCluster("c-7".parse().unwrap())),
            VMS / CLUSTERS,
        ),
        (InventoryEvent::Apply(of(7, "c-7")), VMS / CLUSTERS),
        (InventoryEvent::Apply(of(9, "c-7")), 2 * VMS / CLUSTERS),
    ];
    for (event, affected) in events {
        let touched = index.apply(event);
        let cost = count(&index);
        assert_eq!(touched.len(), affected);
        assert!(cost <= 2 * VMS + 8 * affected, "{cost} selector evaluations");
    }
    let snapshot = index.snapshot();
    let unassigned = snapshot.vms.values().filter(|vm| vm.cluster.is_none());
    assert_eq!(
        unassigned.count(),
        2 * VMS / CLUSTERS,
        "those of c-7, and those that two select"
    );
}
