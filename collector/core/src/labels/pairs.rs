//! Topology labels and their beta names, which change together or not at all: cloud-node-controller
//! treats the beta label as the source and overwrites the other one from it whenever the Node
//! changes.

use super::decide::LabelOutcome;
use crate::facts::Labels;

/// Pairs of the current label and its beta name.
pub const PAIRS: [(&str, &str); 2] = [
    (
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    ),
    (
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ),
];

/// The key under which a key is planned: the current name of a beta key, else the key itself.
pub(super) fn group_key(key: &str) -> &str {
    let pair = PAIRS.iter().find(|(_, beta)| *beta == key);
    pair.map_or(key, |(ga, _)| ga)
}

/// The beta name of a topology label.
pub(super) fn beta(group: &str) -> Option<&'static str> {
    PAIRS.iter().find(|(ga, _)| *ga == group).map(|(_, beta)| *beta)
}

/// The infra node's value for `target` under the key `source`. A topology label that is copied to
/// itself falls back to the beta name on the infra node, as everywhere in the fleet view.
pub(super) fn value<'a>(host: &'a Labels, source: &str, target: &str) -> Option<&'a str> {
    let fallback = beta(source).filter(|_| source == target);
    host.get(source).or_else(|| host.get(fallback?))
}

/// Drops both changes if one member does not reach its desired state: cloud-node-controller would
/// overwrite one member of a half-changed pair from the other.
pub(super) fn hold_both(ga: &mut LabelOutcome, beta: &mut LabelOutcome) {
    match (ga.reached, beta.reached) {
        (true, false) => ga.hold_with(beta),
        (false, true) => beta.hold_with(ga),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::guard::protected;

    #[test]
    fn both_members_of_a_pair_may_be_written() {
        for key in PAIRS.into_iter().flat_map(|(ga, beta)| [ga, beta]) {
            assert_eq!(protected(key), None, "{key}");
        }
    }
}
