//! Validation of the settings of enrolment.

use virtfleet_wire::{
    ids::VmName,
    layered::{Origin, Origins},
    settings::Span,
};

use super::CollectorConfig;
use crate::ca::is_trust_domain;

/// Shorter lifetimes leave too little time for retries of a renewal.
const MIN_LIFETIME: Span = Span::seconds(600);
/// Longer lifetimes are not needed, because renewal needs no person.
const MAX_LIFETIME: Span = Span::seconds(90 * 86_400);

/// Reports the problems of `enrolment`.
pub(super) fn check(config: &CollectorConfig, origins: &Origins, report: &mut impl FnMut(&str, String)) {
    let Some(enrolment) = &config.enrolment else {
        return;
    };
    let trust_domain = &enrolment.trust_domain;
    if trust_domain.is_empty() {
        report(
            "enrolment.trustDomain",
            "required: a name of the fleet, e.g. virtfleet.example.org; it cannot be changed later"
                .to_owned(),
        );
    } else if !is_trust_domain(trust_domain) {
        let rule = "use 1 to 255 lower-case letters, digits, '.', '-' and '_'";
        report(
            "enrolment.trustDomain",
            format!("{trust_domain:?} is not a trust domain: {rule}"),
        );
    }
    if let Some(other) = &config.scrape.tls.trust_domain
        && other != trust_domain
    {
        report(
            "scrape.tls.trustDomain",
            format!("must be enrolment.trustDomain, {trust_domain}"),
        );
    }
    if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&enrolment.lifetime) {
        report(
            "enrolment.lifetime",
            format!("must be {MIN_LIFETIME} to {MAX_LIFETIME}"),
        );
    }
    places(config, origins, report);
}

/// Where the authority is kept.
fn places(config: &CollectorConfig, origins: &Origins, report: &mut impl FnMut(&str, String)) {
    let Some(enrolment) = &config.enrolment else {
        return;
    };
    let is_cluster = config.inventory.cluster.is_some();
    for (key, for_cluster) in [
        ("folder", false),
        ("secret", true),
        ("agentsSecret", true),
        ("clientsSecret", true),
    ] {
        let path = format!("enrolment.{key}");
        let mut leaves = origins.leaves.iter();
        let is_set = leaves.any(|leaf| leaf.path == path && leaf.origin != Origin::Default);
        if is_set && is_cluster != for_cluster {
            let message = if is_cluster {
                "has no effect with inventory.cluster: the authority is in a Secret, see enrolment.secret"
            } else {
                "has no effect with inventory.folder: the authority is in a folder, see enrolment.folder"
            };
            report(&path, message.to_owned());
        }
    }
    if enrolment.folder.is_empty() {
        report("enrolment.folder", "empty; set the path of a folder".to_owned());
    }
    let secrets = [
        ("secret", Some(&enrolment.secret)),
        ("agentsSecret", enrolment.agents_secret.as_ref()),
        ("clientsSecret", enrolment.clients_secret.as_ref()),
    ];
    let named: Vec<_> = secrets
        .into_iter()
        .filter_map(|(key, name)| Some((key, name?)))
        .collect();
    for (at, (key, name)) in named.iter().enumerate() {
        // An object's name has the same syntax as a VM's: a DNS subdomain.
        if name.parse::<VmName>().is_err() {
            report(
                &format!("enrolment.{key}"),
                format!("{name:?} is not a valid name of a Secret"),
            );
        }
        if let Some((other, _)) = named[..at].iter().find(|(_, earlier)| earlier == name) {
            let message = format!(
                "{name} is also enrolment.{other}; agents and clients need different authorities, and neither may be in \
                 the collector's own Secret"
            );
            report(&format!("enrolment.{key}"), message);
        }
    }
}
