use virtfleet_wire::finding::Severity;

use super::*;
use crate::dns::{
    Asked, Plan,
    advice::Advice,
    effective::effective,
    findings::findings,
    fixtures::{asked, cluster_first, conf, healthy, ips, network_manager, resolved, strings},
    inherited::inherited,
    plan::{DnsStep, RefusalKind, candidates, plan},
    seen::{Given, Source},
    state::{DnsState, standing},
};

const OURS: &str = "/etc/systemd/network/20-wg0.network.d/zz-virtfleet.conf";

/// Link of a VPN: queries for names below corp.example go to 10.8.0.1.
fn vpn(manager: Manager) -> Link {
    Link {
        name: "wg0".to_owned(),
        index: 7,
        manager,
        profile: (manager == Manager::Networkd).then(|| "/etc/systemd/network/20-wg0.network".to_owned()),
        default_route: false,
        given: vec![Given {
            source: Source::Static,
            path: "/run/systemd/resolve/netif/7".to_owned(),
            conf: conf("10.8.0.1", "", ""),
            routes: strings("corp.example"),
            ..Given::default()
        }],
        told: match manager {
            Manager::Networkd => conf("10.8.0.1", "", ""),
            _ => ResolvConf::default(),
        },
        routes: strings("corp.example"),
    }
}

/// systemd-resolved lists the nameservers of all links.
fn with_vpn(manager: Manager) -> Seen {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "cluster.local");
    let all = conf("169.254.20.10 10.0.0.1 10.8.0.1", "cluster.local", "");
    seen.upstreams = Some(all.text("This is /run/systemd/resolve/resolv.conf"));
    seen.told.add_nameserver(ips("10.8.0.1")[0], None);
    seen.links.push(vpn(manager));
    seen
}

fn written(plan: &Plan, at: &str) -> Option<String> {
    plan.steps.iter().find_map(|step| match step {
        DnsStep::WriteFile { path, text, .. } if path == at => Some(text.clone()),
        _ => None,
    })
}

#[test]
fn split_dns_link_keeps_its_nameservers() {
    for manager in [Manager::Other, Manager::Networkd] {
        let seen = with_vpn(manager);
        assert_eq!(inherited(&seen).0.nameservers, ips("169.254.20.10 10.0.0.1"));
        for asked in [asked(), cluster_first()] {
            assert!(!candidates(&asked, &seen).contains(&ips("10.8.0.1")[0]));
            let plan = plan(&asked, &seen, &healthy("10.0.0.1 10.96.0.10 10.96.0.11"));
            assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
            assert!(!written(&plan, ours::RESOLVED).unwrap().contains("10.8.0.1"));
            assert_eq!(written(&plan, OURS), None);
            for step in &plan.steps {
                if let DnsStep::SuppressLink { link }
                | DnsStep::Revert { link }
                | DnsStep::RestoreLink { link, .. } = step
                {
                    assert_ne!(link, "wg0");
                }
            }
            let advised = |one: &Advice| matches!(one, Advice::SplitLink { link, .. } if link == "wg0");
            assert!(plan.advice.iter().any(advised));
        }
    }
}

#[test]
fn drop_in_of_split_dns_link_is_removed() {
    let mut seen = with_vpn(Manager::Networkd);
    seen.profiles = ["20-wg0.network".to_owned(), "10-eth0.network".to_owned()].into();
    seen.files.insert(OURS.to_owned(), format!("{}\n", ours::MARK));
    let removed = DnsStep::RemoveFile {
        path: OURS.to_owned(),
    };
    assert!(
        plan(&asked(), &seen, &healthy("10.0.0.1"))
            .steps
            .contains(&removed)
    );
    // On a live node its nameservers and its domains are restored at run time.
    seen.live = Some("kubelet runs".to_owned());
    let speak = DnsStep::RestoreLink {
        link: "wg0".to_owned(),
        nameservers: strings("10.8.0.1"),
        searches: strings("~corp.example"),
    };
    assert!(plan(&asked(), &seen, &healthy("10.0.0.1")).steps.contains(&speak));
}

/// NetworkManager passes on nameservers of all its links or of none, and a `.network` file applies
/// to each link that matches it.
#[test]
fn plan_refuses_if_split_dns_would_be_disabled() {
    let by_network_manager = with_vpn(Manager::NetworkManager);
    let mut shared = with_vpn(Manager::Networkd);
    shared.links[1].profile = shared.links[0].profile.clone();
    let mut dnsmasq = network_manager("169.254.20.10 10.0.0.1", "");
    dnsmasq.resolv_conf.text = Some("nameserver 127.0.0.1\n".to_owned());
    dnsmasq.links.push(vpn(Manager::NetworkManager));
    for seen in [by_network_manager, shared, dnsmasq] {
        let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
        assert!(plan.steps.is_empty(), "{:?}", plan.steps);
        let mut refusals = plan.refusals.iter();
        let refusal = refusals.find(|one| one.kind == RefusalKind::SplitDns).unwrap();
        assert!(refusal.message.contains("wg0") && refusal.message.contains("corp.example"));
        assert_eq!(severity(&seen, &asked()), Severity::Critical);
    }
}

#[test]
fn a_link_that_resolves_everything_has_no_split_dns() {
    let mut seen = with_vpn(Manager::Other);
    for routes in ["", ".", "corp.example ."] {
        seen.links[1].routes = strings(routes);
        assert_eq!(split_links(&seen).count(), 0, "{routes:?}");
    }
    seen.links[1].routes = strings("corp.example");
    seen.links[1].default_route = true;
    assert_eq!(split_links(&seen).count(), 0);
    // A nameserver that another link has, too, is kept.
    let mut seen = with_vpn(Manager::Other);
    seen.links[0].given[0].conf = conf("10.8.0.1 10.0.0.1", "", "");
    let all = without_split(&seen, conf("10.8.0.1 10.0.0.1", "", ""));
    assert_eq!(all.nameservers, ips("10.8.0.1 10.0.0.1"));
}

#[test]
fn split_dns_is_critical_before_and_info_after_writing() {
    let report_only = Asked {
        manage: virtfleet_wire::settings::DnsManage::ReportOnly,
        ..asked()
    };
    let mut seen = with_vpn(Manager::Other);
    assert_eq!(severity(&seen, &report_only), Severity::Critical);
    assert_eq!(severity(&seen, &asked()), Severity::Critical);
    for step in plan(&asked(), &seen, &healthy("10.0.0.1")).steps {
        if let DnsStep::WriteFile { path, text, .. } = step {
            seen.files.insert(path, text);
        }
    }
    let upstreams = "nameserver 10.0.0.1\nnameserver 10.8.0.1\nsearch cluster.local\n";
    seen.upstreams = Some(upstreams.to_owned());
    seen.links[0].told = ResolvConf::default();
    assert_eq!(severity(&seen, &asked()), Severity::Info);
}

/// Severity of the one finding about the link.
fn severity(seen: &Seen, asked: &Asked) -> Severity {
    let plan = plan(asked, seen, &healthy("10.0.0.1"));
    let state = DnsState {
        standing: standing(asked, seen, &plan),
        ours: ours::paths(seen),
        effective: effective(seen),
        asked: plan.asked.clone(),
        ..DnsState::default()
    };
    let mut all = findings(&state, asked, &plan);
    all.retain(|one| one.id == "dns-split-link");
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].subject.name, "wg0");
    assert!(!all[0].remedy.is_empty());
    all[0].severity
}
