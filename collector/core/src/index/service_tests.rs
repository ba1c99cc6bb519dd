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
