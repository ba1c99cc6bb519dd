//! Advice that does not depend on the plan.

use super::advice::Advice;
use super::{
    asked::Asked,
    effective::effective,
    inherited::inherited,
    kubelet, names, ours,
    resolv::ResolvConf,
    seen::{Owner, Seen},
    split::{self, split_links},
};
use std::collections::BTreeSet;

/// Advice that does not depend on the plan's steps.
pub(super) fn standing_advice(asked: &Asked, seen: &Seen, chosen: &ResolvConf) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(kubelet::advice(seen, chosen));
    all.extend(local_domain(asked, seen));
    all.extend(split_links(seen).map(|link| {
        Advice::SplitLink {
            link: link.name.clone(),
            domains: link.routes.clone(),
            nameservers: split::nameservers(link)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        }
    }));
    all
}

/// Advice about a `.local` domain. Only if names of the cluster should be resolved: the policy says
/// so, or the platform assigned a search domain of the cluster.
pub(super) fn local_domain(asked: &Asked, seen: &Seen) -> Option<Advice> {
    let domain = asked.cluster_domain.as_str();
    let written = seen
        .files
        .get(ours::RESOLVED)
        .is_some_and(|text| ours::is_ours(text));
    let concerned = seen.owner == Owner::Resolved && !written && names::below(domain, "local");
    let meant = asked.cluster_first()
        || inherited(seen)
            .0
            .searches
            .iter()
            .any(|search| names::below(search, domain));
    let covered = effective(seen)
        .searches
        .iter()
        .any(|search| names::below(domain, search));
    (concerned && meant && !covered).then(|| Advice::LocalDomain {
        domain: domain.to_owned(),
    })
}
