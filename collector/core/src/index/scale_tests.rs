use virtfleet_wire::ids::NodeName;

use super::{
    tests::{apply, on},
    *,
};
use crate::{
    facts::Fact,
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
