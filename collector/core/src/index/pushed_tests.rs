//! Tests of agents that connect to the collector.

use std::net::{IpAddr, SocketAddr};

use virtfleet_wire::{
    enrolment::EnrolmentEvidence,
    ids::{MacAddr, Uuid},
};

use super::{FleetIndex, NoVmAtAddress};
use crate::{
    dial::DialRules,
    enrolment::VmProof,
    facts::{Fact, FactKey, InventoryEvent, LauncherPod, Phase, Selector, UserCluster},
    index::tests::answer,
    pull_result::FailureClass,
    store::tests::{key, launcher, machine, vmi},
    way::AgentWay,
};

fn apply(index: &mut FleetIndex, fact: Fact) {
    index.apply(InventoryEvent::Apply(fact));
}

/// Running VMIs with a pod each, of a live cluster, whose addresses may not be dialled.
fn index(vms: &[(&str, &str)]) -> FleetIndex {
    let rules = DialRules::new(vec!["192.0.2.0/24".parse().unwrap()], Vec::new(), 10911);
    let mut index = FleetIndex::new(rules.pods_only());
    for (name, address) in vms {
        apply(&mut index, Fact::Vmi(Box::new(vmi("ns", name))));
        apply(&mut index, Fact::LauncherPod(launcher("ns", name, &[address])));
    }
    index
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn peer() -> SocketAddr {
    "10.0.0.1:40000".parse().unwrap()
}

#[test]
fn an_address_names_the_vm_of_exactly_one_running_pod() {
    let mut index = index(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    assert_eq!(index.vm_at(ip("10.0.0.1")), Ok(key("ns", "a")));
    assert_eq!(index.vm_at(ip("::ffff:10.0.0.1")), Ok(key("ns", "a")));
    assert_eq!(index.vm_at(ip("10.0.0.3")), Err(NoVmAtAddress::Unknown));
    // Another pod of the same VMI, as during a live migration.
    let second = LauncherPod {
        name: "virt-launcher-a-zzzzz".to_owned(),
        ..launcher("ns", "a", &["10.0.0.1"])
    };
    apply(&mut index, Fact::LauncherPod(second));
    assert_eq!(index.vm_at(ip("10.0.0.1")), Ok(key("ns", "a")));
    // The pod of another VM with the same address.
    let shared = LauncherPod {
        name: "virt-launcher-b-zzzzz".to_owned(),
        ..launcher("ns", "b", &["10.0.0.1"])
    };
    apply(&mut index, Fact::LauncherPod(shared.clone()));
    assert_eq!(index.vm_at(ip("10.0.0.1")), Err(NoVmAtAddress::Shared));
    let ended = LauncherPod {
        running: false,
        ..shared
    };
    apply(&mut index, Fact::LauncherPod(ended));
    assert_eq!(index.vm_at(ip("10.0.0.1")), Ok(key("ns", "a")), "it has ended");
}

#[test]
fn a_pod_that_is_gone_or_of_an_earlier_vmi_names_no_vm() {
    let mut index = index(&[("a", "10.0.0.1")]);
    let older = LauncherPod {
        vmi_uid: Some("uid-older".parse().unwrap()),
        ..launcher("ns", "a", &["10.0.0.9"])
    };
    let name = FactKey::LauncherPod(older.namespace.clone(), older.name.clone());
    apply(&mut index, Fact::LauncherPod(older));
    assert_eq!(index.vm_at(ip("10.0.0.9")), Err(NoVmAtAddress::Unknown));
    assert_eq!(index.vm_at(ip("10.0.0.1")), Err(NoVmAtAddress::Unknown));
    apply(&mut index, Fact::LauncherPod(launcher("ns", "a", &["10.0.0.9"])));
    assert_eq!(index.vm_at(ip("10.0.0.9")), Ok(key("ns", "a")));
    index.apply(InventoryEvent::Delete(name));
    assert_eq!(index.vm_at(ip("10.0.0.9")), Err(NoVmAtAddress::Unknown));
}

#[test]
fn a_vm_that_cannot_be_dialled_has_a_target_while_it_runs() {
    let mut index = index(&[("a", "10.0.0.1")]);
    let vm = key("ns", "a");
    assert_eq!(index.dial(&vm).unwrap_err().class, FailureClass::NotAllowed);
    let target = index.pushed_target(&vm, peer()).unwrap();
    assert_eq!(target.way, AgentWay::Push { peer: peer() });
    assert!(target.accepts(&"uid-a".parse().unwrap()) && !target.accepts(&"uid-b".parse().unwrap()));
    let mut ended = vmi("ns", "a");
    ended.phase = Phase::Succeeded;
    apply(&mut index, Fact::Vmi(Box::new(ended)));
    let failure = index.pushed_target(&vm, peer()).unwrap_err();
    assert_eq!(failure.class, FailureClass::NoAddress);
    index.pushed_target(&key("ns", "z"), peer()).unwrap_err();
}

#[test]
fn enrolment_by_address_ends_when_the_address_is_shared_or_moves() {
    let mut index = index(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let target = index.pushed_target(&key("ns", "a"), peer()).unwrap();
    let subject = |index: &FleetIndex, proof| index.enrolment_subject(&target, proof);
    assert!(subject(&index, VmProof::Address).unwrap().sharers.is_empty());
    apply(&mut index, Fact::LauncherPod(launcher("ns", "b", &["10.0.0.1"])));
    assert_eq!(
        subject(&index, VmProof::Address).unwrap().sharers,
        [key("ns", "b")]
    );
    assert!(subject(&index, VmProof::Shown).unwrap().sharers.is_empty());
    apply(&mut index, Fact::LauncherPod(launcher("ns", "a", &["10.0.0.7"])));
    assert_eq!(subject(&index, VmProof::Address), None);
    assert!(subject(&index, VmProof::Shown).is_some());
}

#[test]
fn a_pull_over_a_pushed_connection_shows_the_way_and_verifies_no_address() {
    let mut index = FleetIndex::new(DialRules::default());
    let vm = key("ns", "a");
    apply(&mut index, Fact::Vmi(Box::new(vmi("ns", "a"))));
    let mut pull = answer(&vm, |_| {});
    (pull.address, pull.pushed) = (Some(peer()), true);
    assert!(index.record_pull(pull.clone()));
    let agent = index.snapshot().vms[&vm].agent.clone();
    assert_eq!(agent.way, Some(AgentWay::Push { peer: peer() }));
    assert_eq!(agent.address, Some(peer()));
    assert!(agent.verified_ms.is_some());
    // The next pull dials.
    (pull.address, pull.pushed) = (Some("10.0.0.1:10911".parse().unwrap()), false);
    pull.outcome = Err(crate::pull_result::Failure::new(FailureClass::Connect, "refused"));
    assert!(index.record_pull(pull));
    let agent = index.snapshot().vms[&vm].agent.clone();
    assert_eq!(agent.way, Some(AgentWay::Direct));
    assert_eq!(agent.verified_ms, None, "the dialled address was never verified");
}

#[test]
fn a_firmware_uuid_names_one_vm_of_a_cluster() {
    const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
    let mut index = index(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let cluster = |name: &str, namespace: &str| {
        Fact::UserCluster(UserCluster {
            name: name.parse().unwrap(),
            namespace: namespace.parse().unwrap(),
            selector: Selector::default(),
            labels: crate::facts::Labels::new(),
            suspend: false,
            relay: None,
            node_authorities: None,
            node_conditions: std::collections::BTreeSet::new(),
        })
    };
    apply(&mut index, cluster("blue", "ns"));
    apply(&mut index, cluster("green", "other"));
    let with_uuid = |namespace: &str, name: &str| {
        let mut vmi = vmi(namespace, name);
        vmi.firmware_uuid = Some(UUID.parse().unwrap());
        Fact::Vmi(Box::new(vmi))
    };
    let find = |index: &FleetIndex, cluster: &str| {
        index.vm_with_uuid(&cluster.parse().unwrap(), UUID.parse().unwrap())
    };
    assert_eq!(find(&index, "blue"), None);
    apply(&mut index, with_uuid("ns", "a"));
    assert_eq!(find(&index, "blue"), Some(key("ns", "a")));
    assert_eq!(find(&index, "green"), None, "the VM of another cluster");
    // KubeVirt derives it from the VM's name, so a VM of another tenant may have it.
    apply(&mut index, with_uuid("other", "a"));
    assert_eq!(find(&index, "blue"), Some(key("ns", "a")));
    assert_eq!(find(&index, "green"), Some(key("other", "a")));
    apply(&mut index, with_uuid("ns", "b"));
    assert_eq!(find(&index, "blue"), None, "two of one cluster");
    assert!(index.is_at(&key("ns", "a"), ip("10.0.0.1")));
    assert!(!index.is_at(&key("ns", "b"), ip("10.0.0.1")));
}

#[test]
fn a_guest_is_compared_with_all_vms_that_it_may_be() {
    let mut index = index(&[]);
    let mac = |number: u8| format!("02:00:00:00:00:{number:02x}").parse::<MacAddr>().unwrap();
    let mut add = |namespace: &str, name: &str, number: u8| {
        let mut vmi = vmi(namespace, name);
        vmi.interfaces[0].mac = Some(mac(number));
        apply(&mut index, Fact::Vmi(Box::new(vmi)));
    };
    add("ns", "a", 1);
    // Of the same name, so it has the same UUID; the same MAC address in another network; another.
    add("twin", "a", 2);
    add("other", "b", 1);
    add("other", "c", 3);
    let like = |uuid: Option<Uuid>, macs: &[u8]| {
        let evidence = EnrolmentEvidence {
            smbios_uuid: uuid,
            macs: macs.iter().map(|number| mac(*number)).collect(),
            ..EnrolmentEvidence::default()
        };
        let others = index.others_like(&evidence, &key("ns", "a"));
        others.into_iter().map(|other| other.hostname).collect::<Vec<_>>()
    };
    let own = Some(machine("a"));
    assert_eq!(like(own, &[1]), ["a"], "its UUID tells it from b");
    assert_eq!(like(None, &[1]), ["b"]);
    assert_eq!(like(None, &[1, 3]), ["b", "c"]);
    assert_eq!(like(None, &[9]), Vec::<String>::new());
    let none = like(Some(machine("c")), &[1]);
    assert_eq!(none, Vec::<String>::new(), "it is not a, and refused");
}
