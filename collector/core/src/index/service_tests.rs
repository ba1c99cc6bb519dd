//! The infra cluster's service networks change the dial rules as soon as they are known.

use super::{tests::apply, *};
use crate::{
    facts::Fact,
    store::tests::{key, vmi},
};

#[test]
fn known_service_networks_replace_the_default() {
    let mut index = FleetIndex::new(DialRules::default());
    for (name, address) in [("pod", "10.100.0.5"), ("service", "10.96.0.1")] {
        let mut vmi = vmi("ns", name);
        vmi.interfaces[0].addresses = vec![address.parse().unwrap()];
        apply(&mut index, [Fact::Vmi(Box::new(vmi))]);
    }
    let dialled = |index: &FleetIndex, name: &str| {
        let target = index
            .dial(&key("ns", name))
            .map(|target| target.address.to_string());
        target.map_err(|failure| failure.message().to_owned())
    };
    let refused = dialled(&index, "pod").unwrap_err();
    assert!(
        refused.contains("by the default of scrape.serviceCIDRs (10.96.0.0/12)"),
        "{refused}"
    );
    let known = InventoryEvent::ServiceNetworks(vec!["10.96.0.0/16".parse().unwrap()]);
    let (before, touched) = (index.revision(), index.apply(known.clone()));
    assert_eq!(
        touched,
        [key("ns", "pod"), key("ns", "service")],
        "the scraper gets the change"
    );
    assert!(index.revision() > before);
    assert_eq!(dialled(&index, "pod").unwrap(), "10.100.0.5:10911");
    let refused = dialled(&index, "service").unwrap_err();
    assert!(
        refused.contains("by the infra cluster's ServiceCIDRs (10.96.0.0/16)"),
        "{refused}"
    );
    let after = index.revision();
    assert!(
        index.apply(known).is_empty() && index.revision() == after,
        "equal networks are no change"
    );
}

#[test]
fn a_relay_is_used_for_the_vms_of_its_user_cluster_only() {
    use crate::{
        store::tests::{cluster, labels},
        way::AgentWay,
    };
    let mut index = FleetIndex::new(DialRules::default());
    for name in ["a", "b"] {
        let mut vmi = vmi("shared", name);
        vmi.labels = labels(&[("id", name)]);
        apply(&mut index, [Fact::Vmi(Box::new(vmi))]);
        apply(
            &mut index,
            [Fact::UserCluster(cluster(name, "shared", &[("id", name)]))],
        );
    }
    let way = |index: &FleetIndex, name: &str| index.dial(&key("shared", name)).unwrap().way;
    let shown = |index: &FleetIndex, name: &str| index.detail(&key("shared", name)).unwrap().vm.agent.way;
    assert_eq!(way(&index, "a"), AgentWay::Direct);
    let mut behind = cluster("a", "shared", &[("id", "a")]);
    behind.relay = Some("relay.a.svc:10915".parse().unwrap());
    let touched = index.apply(InventoryEvent::Apply(Fact::UserCluster(behind.clone())));
    assert_eq!(touched, [key("shared", "a")], "the scraper gets the change");
    assert_eq!(
        way(&index, "a").to_string(),
        "relay of UserCluster a (relay.a.svc:10915)"
    );
    assert_eq!(shown(&index, "a"), Some(way(&index, "a")));
    assert_eq!(way(&index, "b"), AgentWay::Direct);
    // No cluster is certain any more, so no relay is.
    let mut wide = cluster("c", "shared", &[("id", "a")]);
    wide.relay.clone_from(&behind.relay);
    apply(&mut index, [Fact::UserCluster(wide)]);
    assert_eq!(way(&index, "a"), AgentWay::Direct);
}
