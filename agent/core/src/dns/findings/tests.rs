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

fn of(asked: &Asked, seen: &Seen, judged: &[Judged]) -> Vec<Finding> {
    let plan = plan(asked, seen, judged);
    findings(&state(asked, seen, &plan), asked, &plan)
}

/// Id, severity and subject of each finding.
fn short(all: &[Finding]) -> Vec<String> {
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
    assert_eq!(of(&asked(), &seen, &healthy("10.0.0.1")), []);
}

#[test]
fn predicted_collision_is_a_warning_with_remedy() {
    let mut by_hand = asked();
    by_hand.manage = DnsManage::ReportOnly;
    let seen = resolved("169.254.20.10 10.0.0.1", "");
    let answers = healthy("169.254.20.10 10.0.0.1");
    let found = of(&by_hand, &seen, &answers);
    assert_eq!(short(&found), ["dns-collision-predicted Warning 169.254.20.10"]);
    assert_eq!(
        found[0].remedy,
        "sudo virtfleet-agent apply dns, or set dns.manage: auto"
    );
    assert_eq!(found[0].evidence["with"], "dns.userCluster.nodeLocal");
    assert_eq!(
        found[0].evidence["givenBy"],
        "the DHCP lease of eth0 (/run/systemd/netif/leases/2)"
    );
    // It is left out, so it is informational.
    let mut done = seen.clone();
    done.upstreams = Some("nameserver 10.0.0.1\n".to_owned());
    assert_eq!(
        short(&of(&asked(), &done, &answers)),
        ["dns-collision-predicted Info 169.254.20.10"]
    );
    // The only nameserver: critical, with the setting in the remedy.
    let found = of(&asked(), &resolved("169.254.20.10", ""), &answers);
    assert_eq!(
        short(&found),
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
    let found = of(&asked(), &seen, &answers);
    assert_eq!(
        short(&found),
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
            let found = of(
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
    // The last good nameserver, neither in use nor requested, is not reported.
    assert_eq!(
        of(
            &asked(),
            &resolved("10.0.0.2", ""),
            &[judged("10.0.0.1", Dead), judged("10.0.0.2", Healthy)]
        ),
        []
    );
}

#[test]
fn no_answering_nameserver_is_critical() {
    let found = of(
        &asked(),
        &resolved("10.0.0.1", ""),
        &[judged("10.0.0.1", Health::Dead)],
    );
    assert_eq!(
        short(&found),
        [
            "dns-nothing-verified Critical resolver",
            "dns-nameserver-dead Critical 10.0.0.1",
            "dns-broken Critical resolver"
        ]
    );
}

#[test]
fn unknown_cluster_has_its_own_finding() {
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
        short(&of(&asked, &seen, &[incomplete])),
        ["dns-cluster-unknown Warning 10.96.0.10"]
    );
}

#[test]
fn difference_is_info_in_report_only_else_warning() {
    let mut asked = asked();
    asked.nameservers = ips("10.0.0.2");
    let answers = healthy("10.0.0.1 10.0.0.2");
    let seen = resolved("10.0.0.1", "");
    let found = of(&asked, &seen, &answers);
    assert_eq!(short(&found), ["dns-differs Warning resolver"]);
    assert_eq!(
        found[0].evidence["asked"],
        "nameserver 10.0.0.1; nameserver 10.0.0.2"
    );
    asked.manage = DnsManage::ReportOnly;
    assert_eq!(short(&of(&asked, &seen, &answers)), ["dns-differs Info resolver"]);
    asked.manage = DnsManage::Off;
    assert_eq!(of(&asked, &seen, &answers), []);
}

#[test]
fn errors_of_the_run_are_reported() {
    let seen = resolved("10.0.0.1", "");
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let state = DnsState {
        standing: DnsStatus::RolledBack,
        error: Some("10.0.0.2 did not answer".to_owned()),
        ..state(&asked(), &seen, &plan)
    };
    let found = findings(&state, &asked(), &plan);
    assert_eq!(short(&found), ["dns-rolled-back Critical resolver"]);
    assert_eq!(found[0].evidence["error"], "10.0.0.2 did not answer");
}

#[test]
fn limits_warnings_and_advice() {
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
    let found = of(&asked, &seen, &healthy("127.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3"));
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
    let found = of(&asked, &seen, &healthy("10.0.0.1 10.96.0.10 10.96.0.11"));
    assert_eq!(
        short(&found),
        [
            "dns-differs Warning resolver",
            "dns-local-domain Info resolver",
            "dns-options Info resolver"
        ]
    );
    let mut seen = resolved("10.0.0.1", "");
    seen.last_good = Some(conf("10.0.0.9", "", ""));
    let found = of(&asked, &seen, &healthy("10.0.0.9"));
    assert!(short(&found).contains(&"dns-last-good Warning resolver".to_owned()));
}

#[test]
fn averted_collisions_are_reported() {
    use virtfleet_wire::settings::DnsPolicy;
    let mut none = asked();
    (none.policy, none.nameservers) = (DnsPolicy::None, ips("10.0.0.1"));
    let mut first = cluster_first();
    first.cluster_nameservers = ips("10.0.0.1");
    for asked in [none, first] {
        let mut seen = resolved("169.254.20.10", "");
        seen.upstreams = Some(
            conf(
                "10.0.0.1",
                "tenant.svc.cluster.local svc.cluster.local cluster.local",
                "",
            )
            .text(""),
        );
        let found = of(&asked, &seen, &healthy("10.0.0.1"));
        assert_eq!(short(&found), ["dns-collision-predicted Info 169.254.20.10"]);
        assert_eq!(found[0].reason, "Averted");
        // It is no longer probed.
        assert!(!crate::dns::plan::candidates(&asked, &seen).contains(&ip("169.254.20.10")));
        seen.locals.push(local("169.254.20.10", "nodelocaldns"));
        assert_eq!(
            short(&of(&asked, &seen, &healthy("10.0.0.1"))),
            ["dns-collision Info 169.254.20.10"]
        );
    }
}

#[test]
fn unmaintained_files_are_reported() {
    let mut by_hand = asked();
    by_hand.manage = DnsManage::ReportOnly;
    let mut seen = resolved("10.0.0.1", "");
    let path = crate::dns::ours::RESOLVED;
    seen.files
        .insert(path.to_owned(), format!("{}\n", crate::dns::ours::MARK));
    let found = of(&by_hand, &seen, &healthy("10.0.0.1"));
    assert_eq!(short(&found), ["dns-unmaintained Info resolver"]);
    assert_eq!(found[0].evidence["files"], path);
    // Their content is no longer the requested one.
    seen.upstreams = Some("nameserver 10.0.0.2\n".to_owned());
    let found = of(&by_hand, &seen, &healthy("10.0.0.1 10.0.0.2"));
    assert!(short(&found).contains(&"dns-unmaintained Warning resolver".to_owned()));
    by_hand.manage = DnsManage::Auto;
    let found = of(&by_hand, &seen, &healthy("10.0.0.1 10.0.0.2"));
    assert!(!found.iter().any(|one| one.id == "dns-unmaintained"));
}
