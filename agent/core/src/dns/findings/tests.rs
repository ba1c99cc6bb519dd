//! Findings for guests with each kind of resolver: ids, severities, subjects and remedies.

use std::collections::BTreeSet;

use super::*;
use crate::dns::{
    answers::{Answer, QueryOutcome, Question, Transport},
    effective::effective,
    fixtures::{asked, cluster_first, conf, healthy, ip, ips, judged, local, plain, resolved, strings},
    plan::plan,
    seen::{Kubelet, Seen},
    state::standing,
};

/// State that a reconcile run without an error records.
fn state(asked: &Asked, seen: &Seen, plan: &Plan) -> DnsState {
    DnsState {
        manage: asked.manage,
        standing: standing(asked, seen, plan),
        owner: seen.owner,
        owner_because: seen.owner_because.clone(),
        effective: effective(seen),
        asked: plan.asked.clone(),
        ours: crate::dns::ours::paths(seen),
        ..DnsState::default()
    }
}

fn findings_of(asked: &Asked, seen: &Seen, judged: &[Judged]) -> Vec<Finding> {
    let plan = plan(asked, seen, judged);
    findings(&state(asked, seen, &plan), asked, &plan)
}

/// Id, severity and subject of each finding.
fn summaries(all: &[Finding]) -> Vec<String> {
    all.iter()
        .map(|one| format!("{} {:?} {}", one.id, one.severity, one.subject.name))
        .collect()
}

#[test]
fn healthy_dns_has_no_findings() {
    let mut seen = resolved("10.0.0.1", "");
    seen.kubelet = Some(Kubelet {
        resolv_conf: Some("/run/systemd/resolve/resolv.conf".to_owned()),
        ..Kubelet::default()
    });
    assert_eq!(findings_of(&asked(), &seen, &healthy("10.0.0.1")), []);
}

#[test]
fn predicted_collision_is_a_warning_with_remedy() {
    let mut report_only = asked();
    report_only.manage = DnsManage::ReportOnly;
    let seen = resolved("169.254.20.10 10.0.0.1", "");
    let answers = healthy("169.254.20.10 10.0.0.1");
    let found = findings_of(&report_only, &seen, &answers);
    assert_eq!(
        summaries(&found),
        ["dns-collision-predicted Warning 169.254.20.10"]
    );
    assert_eq!(
        found[0].remedy,
        "sudo virtfleet-agent apply dns, or set dns.manage: auto"
    );
    assert_eq!(found[0].evidence["with"], "dns.userCluster.nodeLocal");
    assert_eq!(
        found[0].evidence["givenBy"],
        "the DHCP lease of eth0 (/run/systemd/netif/leases/2)"
    );
    // The nameserver is no longer in use: the severity falls.
    let mut applied = seen.clone();
    applied.upstreams = Some("nameserver 10.0.0.1\n".to_owned());
    assert_eq!(
        summaries(&findings_of(&asked(), &applied, &answers)),
        ["dns-collision-predicted Info 169.254.20.10"]
    );
    // It is the only nameserver: the findings are critical, and their remedies name the setting.
    let found = findings_of(&asked(), &resolved("169.254.20.10", ""), &answers);
    assert_eq!(
        summaries(&found),
        [
            "dns-nothing-verified Critical resolver",
            "dns-collision-predicted Critical 169.254.20.10"
        ]
    );
    assert!(
        found
            .iter()
            .all(|one| one.remedy.contains("dns.config.nameservers"))
    );
}

#[test]
fn present_collision_and_loop_are_critical() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    seen.locals.push(local("169.254.20.10", "nodelocaldns"));
    let mut answers = healthy("10.0.0.1");
    answers.push(judged("169.254.20.10", Health::Looping));
    let found = findings_of(&asked(), &seen, &answers);
    assert_eq!(
        summaries(&found),
        [
            "dns-collision Critical 169.254.20.10",
            "dns-loop Critical 169.254.20.10"
        ]
    );
}

#[test]
fn each_health_has_its_own_finding_id() {
    use Health::{Dead, Failing, Healthy, Incomplete, Looping, Lying, NoTcp, Slow, TcpOnly};
    let seen = resolved("10.0.0.1 10.0.0.2", "");
    let ids: BTreeSet<String> = [Slow, NoTcp, TcpOnly, Lying, Incomplete, Failing, Looping, Dead]
        .into_iter()
        .map(|health| {
            let found = findings_of(
                &asked(),
                &seen,
                &[judged("10.0.0.1", health), judged("10.0.0.2", Healthy)],
            );
            let own: Vec<&Finding> = found
                .iter()
                .filter(|one| one.subject.name == "10.0.0.1")
                .collect();
            assert_eq!(own.len(), 1, "{health:?}");
            own[0].id.clone()
        })
        .collect();
    let expected = "dns-loop dns-nameserver-dead dns-nameserver-failing dns-nameserver-incomplete dns-nameserver-lying dns-nameserver-slow dns-no-tcp dns-tcp-only";
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), strings(expected));
    // A dead nameserver that is neither in use nor requested is not reported.
    assert_eq!(
        findings_of(
            &asked(),
            &resolved("10.0.0.2", ""),
            &[judged("10.0.0.1", Dead), judged("10.0.0.2", Healthy)]
        ),
        []
    );
}

#[test]
fn no_answering_nameserver_is_critical() {
    let found = findings_of(
        &asked(),
        &resolved("10.0.0.1", ""),
        &[judged("10.0.0.1", Health::Dead)],
    );
    assert_eq!(
        summaries(&found),
        [
            "dns-nothing-verified Critical resolver",
            "dns-nameserver-dead Critical 10.0.0.1",
            "dns-broken Critical resolver"
        ]
    );
}

#[test]
fn nameserver_that_does_not_know_the_cluster_has_its_own_finding_id() {
    let mut asked = cluster_first();
    asked.cluster_nameservers = ips("10.96.0.10");
    let mut incomplete = judged("10.96.0.10", Health::Incomplete);
    let name = "kubernetes.default.svc.cluster.local";
    incomplete.because = format!("answers, but for {name}: NXDOMAIN");
    incomplete.answers.push(Answer {
        question: Question {
            nameserver: ip("10.96.0.10"),
            zone: None,
            transport: Transport::Udp,
            purpose: Purpose::Cluster,
            name: name.to_owned(),
        },
        outcome: QueryOutcome::NoSuchName,
        micros: 1,
    });
    let seen = resolved(
        "10.96.0.10",
        "tenant.svc.cluster.local svc.cluster.local cluster.local",
    );
    assert_eq!(
        summaries(&findings_of(&asked, &seen, &[incomplete])),
        ["dns-cluster-unknown Warning 10.96.0.10"]
    );
}

#[test]
fn difference_is_info_in_report_only_else_warning() {
    let mut asked = asked();
    asked.nameservers = ips("10.0.0.2");
    let answers = healthy("10.0.0.1 10.0.0.2");
    let seen = resolved("10.0.0.1", "");
    let found = findings_of(&asked, &seen, &answers);
    assert_eq!(summaries(&found), ["dns-differs Warning resolver"]);
    assert_eq!(
        found[0].evidence["asked"],
        "nameserver 10.0.0.1; nameserver 10.0.0.2"
    );
    asked.manage = DnsManage::ReportOnly;
    assert_eq!(
        summaries(&findings_of(&asked, &seen, &answers)),
        ["dns-differs Info resolver"]
    );
    asked.manage = DnsManage::Off;
    assert_eq!(findings_of(&asked, &seen, &answers), []);
}

#[test]
fn the_error_of_the_run_is_in_the_evidence() {
    let seen = resolved("10.0.0.1", "");
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let state = DnsState {
        standing: DnsStatus::RolledBack,
        error: Some("10.0.0.2 did not answer".to_owned()),
        ..state(&asked(), &seen, &plan)
    };
    let found = findings(&state, &asked(), &plan);
    assert_eq!(summaries(&found), ["dns-rolled-back Critical resolver"]);
    assert_eq!(found[0].evidence["error"], "10.0.0.2 did not answer");
}

#[test]
fn limits_warnings_and_advice_are_reported_without_duplicates() {
    let mut asked = asked();
    asked.policy = virtfleet_wire::settings::DnsPolicy::ClusterFirst;
    asked.nameservers = ips("10.0.0.2 10.0.0.3 10.0.0.4");
    asked.searches = (0..40).map(|n| format!("search-domain-{n:02}.example")).collect();
    asked.searches.push("a".repeat(300));
    asked.searches.swap(0, 40);
    let mut seen = plain("10.0.0.1", "");
    seen.resolv_conf.text = Some("nameserver 127.0.0.1\n".to_owned());
    seen.links[0].given[0].path = "/run/dhcpcd/x".to_owned();
    seen.kubelet = Some(Kubelet::default());
    let found = findings_of(&asked, &seen, &healthy("127.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3"));
    let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "dns-differs",
            "dns-trimmed",
            "dns-trimmed",
            "dns-trimmed",
            "dns-no-cluster-dns",
            "dns-kubevirt-admission",
            "dns-option-119",
            "dns-kubelet-resolvconf",
            "dns-dhcpcd",
        ]
    );
    assert!(
        found
            .iter()
            .all(|one| !one.remedy.is_empty() && !one.message.is_empty())
    );
    let keys: BTreeSet<_> = found.iter().map(|one| (&one.id, &one.subject)).collect();
    assert_eq!(keys.len(), found.len());
}

#[test]
fn resolved_options_and_local_domain_are_reported() {
    let mut asked = cluster_first();
    asked.options = vec![crate::dns::fixtures::option("ndots:2")];
    let seen = resolved("10.0.0.1", "");
    let found = findings_of(&asked, &seen, &healthy("10.0.0.1 10.96.0.10 10.96.0.11"));
    assert_eq!(
        summaries(&found),
        [
            "dns-differs Warning resolver",
            "dns-local-domain Info resolver",
            "dns-options Info resolver"
        ]
    );
    let mut seen = resolved("10.0.0.1", "");
    seen.last_good = Some(conf("10.0.0.9", "", ""));
    let found = findings_of(&asked, &seen, &healthy("10.0.0.9"));
    assert!(summaries(&found).contains(&"dns-last-good Warning resolver".to_owned()));
}

#[test]
fn averted_collisions_are_informational() {
    use virtfleet_wire::settings::DnsPolicy;
    let mut policy_none = asked();
    (policy_none.policy, policy_none.nameservers) = (DnsPolicy::None, ips("10.0.0.1"));
    let mut policy_cluster_first = cluster_first();
    policy_cluster_first.cluster_nameservers = ips("10.0.0.1");
    for asked in [policy_none, policy_cluster_first] {
        let mut seen = resolved("169.254.20.10", "");
        seen.upstreams = Some(
            conf(
                "10.0.0.1",
                "tenant.svc.cluster.local svc.cluster.local cluster.local",
                "",
            )
            .text(""),
        );
        let found = findings_of(&asked, &seen, &healthy("10.0.0.1"));
        assert_eq!(summaries(&found), ["dns-collision-predicted Info 169.254.20.10"]);
        assert_eq!(found[0].reason, "Averted");
        // The agent does not probe the nameserver that would collide.
        assert!(!crate::dns::plan::candidates(&asked, &seen).contains(&ip("169.254.20.10")));
        seen.locals.push(local("169.254.20.10", "nodelocaldns"));
        assert_eq!(
            summaries(&findings_of(&asked, &seen, &healthy("10.0.0.1"))),
            ["dns-collision Info 169.254.20.10"]
        );
    }
}

#[test]
fn files_that_are_not_updated_are_reported() {
    let mut report_only = asked();
    report_only.manage = DnsManage::ReportOnly;
    let mut seen = resolved("10.0.0.1", "");
    let path = crate::dns::ours::RESOLVED;
    seen.files
        .insert(path.to_owned(), format!("{}\n", crate::dns::ours::MARK));
    let found = findings_of(&report_only, &seen, &healthy("10.0.0.1"));
    assert_eq!(summaries(&found), ["dns-unmaintained Info resolver"]);
    assert_eq!(found[0].evidence["files"], path);
    // The configuration in use is no longer the requested one: the severity rises.
    seen.upstreams = Some("nameserver 10.0.0.2\n".to_owned());
    let found = findings_of(&report_only, &seen, &healthy("10.0.0.1 10.0.0.2"));
    assert!(summaries(&found).contains(&"dns-unmaintained Warning resolver".to_owned()));
    report_only.manage = DnsManage::Auto;
    let found = findings_of(&report_only, &seen, &healthy("10.0.0.1 10.0.0.2"));
    assert!(!found.iter().any(|one| one.id == "dns-unmaintained"));
}
