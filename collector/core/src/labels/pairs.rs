//! Topology labels and their beta names, which change together or not at all: cloud-node-controller takes the beta label for
//! the source of truth and writes the other one from it whenever the Node changes.

use super::decide::LabelOutcome;
use crate::facts::Labels;

/// The label that is used today, and its beta name.
const PAIRS: [(&str, &str); 2] = [
    (
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    ),
    (
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ),
];

/// The key under which a key is planned: the present name of a beta key, else itself.
pub(super) fn group_key(key: &str) -> &str {
    let pair = PAIRS.iter().find(|(_, beta)| *beta == key);
    pair.map_or(key, |(ga, _)| ga)
}

/// The beta name of a topology label.
pub(super) fn beta(unit: &str) -> Option<&'static str> {
    PAIRS.iter().find(|(ga, _)| *ga == unit).map(|(_, beta)| *beta)
}

/// What the infra node has for a target under a source key. Where a topology label goes to itself, an infra node that has only
/// the beta name is read by that, as everywhere in the fleet view.
pub(super) fn value<'a>(host: &'a Labels, source: &str, target: &str) -> Option<&'a str> {
    let fallback = beta(source).filter(|_| source == target);
    host.get(source).or_else(|| host.get(fallback?))
}

/// When one member does not end as wanted, the other one does not change either: half a pair would be turned back, or turned to
/// what nobody asked for, by cloud-node-controller.
pub(super) fn hold_both(ga: &mut LabelOutcome, beta: &mut LabelOutcome) {
    match (ga.reached, beta.reached) {
        (true, false) => ga.hold_with(beta),
        (false, true) => beta.hold_with(ga),
        _ => {}
    }
}
