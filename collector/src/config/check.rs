//! Validation of settings beyond their types: values out of range and combinations.

use std::net::SocketAddr;

use virtfleet_wire::{
    ids::{Namespace, VmName},
    layered::{Origin, Origins, Problem},
    settings::Span,
};

use super::{
    CollectorConfig, ServerSettings, check_access, check_enrolment, check_ingest, check_mla, check_prometheus,
};

/// All problems, with the file and line of the value.
pub(super) fn check(config: &CollectorConfig, origins: &Origins) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut report = |path: &str, message: String| found.push(Problem::at(&origins.of(path), path, message));

    if config.inventory.folder.is_empty() {
        report(
            "inventory.folder",
            "empty; set the path of the folder with manifests".to_owned(),
        );
    }
    live(config, origins, &mut report);
    writes(config, &mut report);
    check_enrolment::check(config, origins, &mut report);
    check_ingest::check(config, &mut report);
    check_mla::check(config, &mut report);
    check_prometheus::check(config, &mut report);

    let server = &config.server;
    let tls = &server.tls;
    check_access::check(config, &mut report);
    probes(server, &mut report);
    pair(
        &mut report,
        "server.tls",
        tls.certificate.as_ref(),
        tls.key.as_ref(),
    );
    if tls.client_ca.is_some() && tls.certificate.is_none() {
        report(
            "server.tls.clientCA",
            "has no effect without server.tls.certificate and server.tls.key".to_owned(),
        );
    }

    let scrape = &config.scrape;
    if scrape.interval.0.is_zero() {
        report("scrape.interval", "must be longer than 0s".to_owned());
    }
    if scrape.timeout.0.is_zero() || scrape.timeout > scrape.interval {
        let message = format!(
            "{} must be longer than 0s and at most scrape.interval, {}",
            scrape.timeout, scrape.interval
        );
        report("scrape.timeout", message);
    }
    if scrape.concurrency == 0 {
        report("scrape.concurrency", "must be at least 1".to_owned());
    }
    if scrape.port == 0 {
        report("scrape.port", "must be 1 to 65535".to_owned());
    }
    let max = virtfleet_wire::report::MAX_REPORT_BYTES as u64;
    if !(1..=max).contains(&scrape.max_report_bytes) {
        report("scrape.maxReportBytes", format!("must be 1 to {max}"));
    }
    if scrape.max_metrics_bytes == 0 {
        report("scrape.maxMetricsBytes", "must be at least 1".to_owned());
    }
    if scrape.max_samples == 0 {
        report("scrape.maxSamples", "must be at least 1".to_owned());
    }
    if scrape.allow_cidrs.is_empty() {
        report(
            "scrape.allowCIDRs",
            "empty: no VM could be dialled; omit it to allow the private networks".to_owned(),
        );
    }
    let tls = &scrape.tls;
    pair(
        &mut report,
        "scrape.tls",
        tls.certificate.as_ref(),
        tls.key.as_ref(),
    );
    let needed = [
        // If all keys are absent, only enrolled agents are pulled.
        ("ca", &tls.ca),
        ("certificate", &tls.certificate),
        ("trustDomain", &tls.trust_domain),
    ];
    for (name, _) in needed
        .iter()
        .filter(|(_, value)| tls.is_set() && value.as_ref().is_none_or(String::is_empty))
    {
        report(
            &format!("scrape.tls.{name}"),
            "required together with the other keys of scrape.tls; omit all of them to pull enrolled agents only"
                .to_owned(),
        );
    }
    found
}

fn probes(server: &ServerSettings, report: &mut impl FnMut(&str, String)) {
    if let Some(probes) = &server.probe_address {
        if probes.parse::<SocketAddr>().is_err() {
            let message =
                format!("{probes:?} is not an address and port such as 0.0.0.0:10914 or [::]:10914");
            report("server.probeAddress", message);
        } else if *probes == server.address {
            let message = format!("{probes} is also server.address; use another port for the probes");
            report("server.probeAddress", message);
        }
    }
}

fn live(config: &CollectorConfig, origins: &Origins, report: &mut impl FnMut(&str, String)) {
    if let Some(cluster) = &config.inventory.cluster {
        let mut leaves = origins.leaves.iter();
        if leaves.any(|leaf| leaf.path == "inventory.folder" && leaf.origin != Origin::Default) {
            report(
                "inventory.folder",
                "inventory.cluster is set, too; remove one of them".to_owned(),
            );
        }
        if cluster.context.is_some() && cluster.kubeconfig.is_none() {
            report(
                "inventory.cluster.context",
                "set without a kubeconfig; set inventory.cluster.kubeconfig".to_owned(),
            );
        }
        let user_clusters = &cluster.user_clusters;
        if user_clusters.allow_cidrs.is_empty() {
            report(
                "inventory.cluster.userClusters.allowCIDRs",
                "empty: no user cluster could be reached; omit it to allow every network".to_owned(),
            );
        }
        if !(1..=100_000).contains(&user_clusters.max_nodes) {
            report(
                "inventory.cluster.userClusters.maxNodes",
                "must be 1 to 100000".to_owned(),
            );
        }
        for (at, name) in cluster.namespaces.iter().enumerate() {
            if let Err(error) = name.parse::<Namespace>() {
                report(&format!("inventory.cluster.namespaces[{at}]"), error.to_string());
            } else if cluster.namespaces[..at].contains(name) {
                report(
                    &format!("inventory.cluster.namespaces[{at}]"),
                    format!("{name} is listed twice"),
                );
            }
        }
    }
}

fn writes(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let labels = &config.labels;
    if !(1..=1000).contains(&labels.requests_per_second) {
        report("labels.requestsPerSecond", "must be 1 to 1000".to_owned());
    }
    if !(1..=64).contains(&labels.parallel) {
        report("labels.parallel", "must be 1 to 64".to_owned());
    }
    if labels.recheck < Span::seconds(1) {
        report("labels.recheck", "must be at least 1s".to_owned());
    }
    if labels.confirm_removal > Span::seconds(3600) {
        report("labels.confirmRemoval", "must be at most 1h".to_owned());
    }
    if labels.confirm_change > Span::seconds(3600) {
        report("labels.confirmChange", "must be at most 1h".to_owned());
    }
    let leader = &config.leader_election;
    if !(2..=3600).contains(&leader.lease_seconds) {
        report("leaderElection.leaseSeconds", "must be 2 to 3600".to_owned());
    }
    if leader.renew_seconds >= leader.lease_seconds || leader.renew_seconds == 0 {
        report(
            "leaderElection.renewSeconds",
            "must be at least 1 and less than leaderElection.leaseSeconds: a leader must stop before its Lease ends".to_owned(),
        );
    }
    if leader.retry_seconds >= leader.renew_seconds || leader.retry_seconds == 0 {
        report(
            "leaderElection.retrySeconds",
            "must be at least 1 and less than leaderElection.renewSeconds".to_owned(),
        );
    }
    // An object's name has the same syntax as a VM's: a DNS subdomain.
    if leader.name.parse::<VmName>().is_err() {
        report(
            "leaderElection.name",
            format!("{:?} is not a valid name of a Lease", leader.name),
        );
    }
    if let Some(Err(error)) = leader.namespace.as_ref().map(|name| name.parse::<Namespace>()) {
        report("leaderElection.namespace", error.to_string());
    }
    if let Some(service) = &leader.service {
        // RFC 1035: a label that begins with a letter.
        let is_name = service.parse::<Namespace>().is_ok()
            && !service.starts_with(|first: char| first.is_ascii_digit());
        if !is_name {
            report(
                "leaderElection.service",
                format!("{service:?} is not a valid name of a Service"),
            );
        }
        if !leader.enabled {
            report(
                "leaderElection.service",
                "requires leaderElection.enabled: without an election there is no leader to find".to_owned(),
            );
        }
    }
}

fn pair(
    report: &mut impl FnMut(&str, String),
    path: &str,
    certificate: Option<&String>,
    key: Option<&String>,
) {
    match (certificate, key) {
        (Some(_), None) => report(
            &format!("{path}.key"),
            format!("required, because {path}.certificate is set"),
        ),
        (None, Some(_)) => report(
            &format!("{path}.certificate"),
            format!("required, because {path}.key is set"),
        ),
        _ => {}
    }
}
