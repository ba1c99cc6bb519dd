//! Validation of `server.access`, and of the combinations of address, TLS and access.

use std::{net::SocketAddr, time::Duration};

use super::{CollectorConfig, ServerSettings};
use crate::access::Grant;

/// Maximum of `server.access.tokenReview.cache`.
const MAX_CACHE: Duration = Duration::from_mins(5);

/// Reports all problems.
pub(super) fn check(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let server = &config.server;
    address(config, report);
    reviews(config, report);
    certificates(server, report);
    let access = &server.access;
    if access.tokens.as_deref() == Some("") {
        report(
            "server.access.tokens",
            "empty; set the path of the file".to_owned(),
        );
    }
    if access.redact_key.is_some() && !access.redact_infra {
        let message = "has no effect without server.access.redactInfra: true";
        report("server.access.redactKey", message.to_owned());
    }
}

fn address(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let server = &config.server;
    let Ok(address) = server.address.parse::<SocketAddr>() else {
        let message = format!(
            "{:?} is not an address and port such as 127.0.0.1:10912 or [::]:10912",
            server.address
        );
        return report("server.address", message);
    };
    let has_certificate = server.tls.certificate.is_some() || config.issues_api_certificate();
    if !server.is_local() && (!has_certificate || server.is_open()) {
        let message = format!(
            "{address} is not loopback, so TLS and an authentication of clients are required: set server.tls.certificate, \
             server.tls.key (not needed with enrolment and inventory.cluster), and one of server.tls.clientCA, \
             server.access.tokenReview and server.access.tokens"
        );
        report("server.address", message);
    }
}

fn reviews(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let Some(review) = &config.server.access.token_review else {
        return;
    };
    if config.inventory.cluster.is_none() {
        let message = "requires inventory.cluster, whose API server reviews tokens; with a folder, set \
                       server.access.tokens";
        report("server.access.tokenReview", message.to_owned());
    }
    if review.cache.0.is_zero() || review.cache.0 > MAX_CACHE {
        let message = "must be longer than 0s and at most 5m";
        report("server.access.tokenReview.cache", message.to_owned());
    }
    if review.audiences.is_empty() && !review.cluster_tokens {
        let message = "empty, and clusterTokens is false, so no token is accepted; add an audience";
        report("server.access.tokenReview.audiences", message.to_owned());
    }
    if review.audiences.iter().any(String::is_empty) {
        let message = "an audience is empty";
        report("server.access.tokenReview.audiences", message.to_owned());
    }
}

fn certificates(server: &ServerSettings, report: &mut impl FnMut(&str, String)) {
    let access = &server.access;
    if !access.certificates.is_empty() && server.tls.client_ca.is_none() {
        let message = "has no effect without server.tls.clientCA";
        report("server.access.certificates", message.to_owned());
    }
    let mut scope = |path: &str, words: &[String]| {
        if let Err(error) = Grant::parse(words.iter().map(String::as_str)) {
            report(path, error.to_string());
        }
    };
    scope("server.access.otherCertificates", &access.other_certificates);
    for (at, one) in access.certificates.iter().enumerate() {
        scope(&format!("server.access.certificates[{at}].scope"), &one.scope);
    }
    for (at, one) in access.certificates.iter().enumerate() {
        let path = format!("server.access.certificates[{at}].name");
        if one.name.is_empty() {
            report(&path, "required: a URI or DNS name in the certificate".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::layered::{Fragment, Loaded};

    use super::*;

    const CLUSTER: &str = "inventory: {cluster: {}}\n";
    const ENROLMENT: &str = "enrolment: {trustDomain: t}\n";

    fn load(server: &str, more: &str) -> Loaded<CollectorConfig> {
        let text =
            format!("apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\n{more}server: {{{server}}}\n");
        let file = "c.yaml".to_owned();
        CollectorConfig::load(&[Fragment { file, text }])
    }

    #[test]
    fn the_collector_of_a_cluster_with_enrolment_needs_no_certificate_of_the_api() {
        let both = format!("{CLUSTER}{ENROLMENT}");
        let with_tokens = |address: &str, tls: &str, more: &str| {
            let server = format!("address: '{address}', tls: {{{tls}}}, access: {{tokenReview: {{}}}}");
            load(&server, more)
        };
        for (address, tls, issues, is_plain) in [
            ("0.0.0.0:1", "", true, false),
            ("0.0.0.0:1", "certificate: c, key: k", false, false),
            // Over HTTP, on this machine.
            ("127.0.0.1:1", "", false, true),
        ] {
            let loaded = with_tokens(address, tls, &both);
            assert_eq!(loaded.problems, [], "{address} {tls}");
            let config = loaded.value;
            let found = (config.issues_api_certificate(), config.server.is_plain());
            assert_eq!(found, (issues, is_plain), "{address} {tls}");
        }
        for more in [CLUSTER, ENROLMENT] {
            let problems = with_tokens("0.0.0.0:1", "", more).problems;
            let found = problems
                .iter()
                .any(|one| one.to_string().contains("server.address: "));
            assert!(found, "{more}: {problems:?}");
        }
        let open = load("address: '0.0.0.0:1'", &both).problems;
        let found = open
            .iter()
            .any(|one| one.to_string().contains("an authentication of clients"));
        assert!(found, "{open:?}");
    }
}
