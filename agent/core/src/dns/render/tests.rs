use super::*;
use crate::dns::{
    choice::choose,
    fixtures::{asked, cluster_first, conf, healthy, network_manager, plain, resolved},
    merge::Merged,
    seen::{Given, Kubelet, Source},
};

fn choice(conf: ResolvConf) -> Choice {
    let names = conf.shown_nameservers();
    let judged: Vec<_> = conf
        .nameservers
        .iter()
        .flat_map(|one| healthy(&one.to_string()))
        .collect();
    let merged = Merged {
        conf,
        ..Merged::default()
    };
    choose(&merged, &[], &judged).unwrap_or_else(|| panic!("no choice of {names:?}"))
}

fn files(rendered: &Rendered) -> String {
    let mut all = String::new();
    for file in &rendered.files {
        write!(all, "== {} {:o}\n{}", file.path, file.mode, file.text).ok();
    }
    if let Some(text) = &rendered.resolv_conf {
        write!(all, "== /etc/resolv.conf\n{text}").ok();
    }
    all.replace(&header(), "#\n")
}

#[test]
fn header_begins_with_the_marker() {
    assert_eq!(
        header(),
        "# Written by virtfleet-agent from the settings `dns`. Changes are undone; `dns.manage: off` takes it away.\n"
    );
    assert!(ours::is_ours(&header()));
}

#[test]
fn systemd_resolved_with_networkd() {
    let seen = resolved("169.254.20.10", "");
    let conf = conf(
        "10.96.0.10 10.96.0.11",
        "tenant.svc.cluster.local svc.cluster.local cluster.local corp.example",
        "ndots:5",
    );
    let rendered = render(&cluster_first(), &seen, &choice(conf));
    assert_eq!(
        files(&rendered),
        "== /etc/systemd/resolved.conf.d/zz-virtfleet.conf 644\n#\n\
         [Resolve]\nDNS=\nDNS=10.96.0.10 10.96.0.11\nFallbackDNS=\nDomains=\n\
         Domains=tenant.svc.cluster.local svc.cluster.local cluster.local corp.example ~.\n\
         == /etc/systemd/network/10-eth0.network.d/zz-virtfleet.conf 644\n#\n\
         [DHCPv4]\nUseDNS=no\nUseDomains=no\nRequestOptions=119\n\n[DHCPv6]\nUseDNS=no\nUseDomains=no\n\n[IPv6AcceptRA]\nUseDNS=no\nUseDomains=no\n"
    );
    let options = vec!["ndots:5".to_owned()];
    assert_eq!(rendered.advice, [Advice::OptionsNotHonoured { options }]);
}

#[test]
fn local_cluster_domain_is_routed_unless_covered() {
    let seen = resolved("10.0.0.1", "");
    let domains = |asked: &Asked, searches: &str| {
        let text = resolved_text(asked, &seen, &conf("10.0.0.1", searches, ""));
        text.lines().last().unwrap().to_owned()
    };
    let mut asked = asked();
    assert_eq!(
        domains(&asked, "a.example ."),
        "Domains=a.example ~cluster.local ~."
    );
    assert_eq!(domains(&asked, "cluster.local"), "Domains=cluster.local ~.");
    assert_eq!(domains(&asked, "local"), "Domains=local ~.");
    assert_eq!(
        domains(&asked, "svc.cluster.local"),
        "Domains=svc.cluster.local ~cluster.local ~."
    );
    asked.cluster_domain = "k8s.example".to_owned();
    assert_eq!(domains(&asked, ""), "Domains=~.");
    asked.cluster_domain.clear();
    assert_eq!(domains(&asked, "a"), "Domains=a ~.");
}

fn resolved_text(asked: &Asked, seen: &Seen, conf: &ResolvConf) -> String {
    super::resolved(asked, seen, conf)
}

#[test]
fn unexplained_values_and_zones_are_written() {
    let mut seen = resolved("1.1.1.1 1.0.0.1", "x.example");
    seen.links.clear();
    let mut conf = conf("fe80::1", "", "");
    conf.zones.insert("fe80::1".parse().unwrap(), "eth0".to_owned());
    assert_eq!(
        files(&render(&asked(), &seen, &choice(conf.clone()))),
        "== /etc/systemd/resolved.conf.d/zz-virtfleet.conf 644\n#\n# Platform: 1.1.1.1 1.0.0.1; x.example\n\
         [Resolve]\nDNS=\nDNS=fe80::1%eth0\nFallbackDNS=\nDomains=\nDomains=~cluster.local ~.\n"
    );
    let rendered = render(&asked(), &plain("10.0.0.1", ""), &choice(conf));
    assert_eq!(rendered.resolv_conf, Some(header() + "nameserver fe80::1%eth0\n"));
}

#[test]
fn netplan_file_gets_a_complete_drop_in() {
    let mut seen = resolved("10.0.0.1", "");
    let netplans = |id: &str| Link {
        profile: Some(format!("/run/systemd/network/10-netplan-{id}.network")),
        ..seen.links[0].clone()
    };
    seen.links = vec![netplans("eth1"), netplans("bond0")];
    let text = files(&render(&asked(), &seen, &choice(conf("10.0.0.2", "", ""))));
    let (_, text) = text.split_once("== /etc/systemd/network").unwrap();
    let silent = "[DHCPv4]\nUseDNS=no\nUseDomains=no\nRequestOptions=119\n\n[DHCPv6]\nUseDNS=no\nUseDomains=no\n\n\
        [IPv6AcceptRA]\nUseDNS=no\nUseDomains=no\n";
    assert_eq!(
        text,
        format!(
            "/10-netplan-eth1.network.d/zz-virtfleet.conf 644\n#\n{silent}\
             == /etc/systemd/network/10-netplan-bond0.network.d/zz-virtfleet.conf 644\n#\n{silent}"
        )
    );
}

#[test]
fn servers_of_network_files_are_reset_permanently() {
    let mut seen = resolved("10.0.0.1", "");
    seen.links[0].given.push(Given {
        source: Source::Static,
        conf: conf("10.0.0.9", "", ""),
        ..Given::default()
    });
    let drop_in = |seen: &Seen| render(&asked(), seen, &choice(conf("10.0.0.1", "", ""))).files[1].clone();
    let file = drop_in(&seen);
    assert!(
        file.text.contains("\n[Network]\nDNS=\nDomains=\n\n[DHCPv4]\n"),
        "{}",
        file.text
    );
    seen.links[0].given.pop();
    assert!(!drop_in(&seen).text.contains("[Network]"));
    seen.files.insert(file.path.clone(), file.text.clone());
    assert_eq!(drop_in(&seen), file);
}

#[test]
fn links_with_one_profile_share_a_drop_in() {
    let mut seen = resolved("10.0.0.1", "");
    let mut second = seen.links[0].clone();
    second.name = "eth1".to_owned();
    let mut odd = second.clone();
    odd.profile = Some("/etc/systemd/network/a b\n.network".to_owned());
    let unmanaged = Link {
        profile: None,
        ..second.clone()
    };
    seen.links.extend([second, odd, unmanaged]);
    assert_eq!(
        render(&asked(), &seen, &choice(conf("10.0.0.1", "", "")))
            .files
            .len(),
        2
    );
}

#[test]
fn network_manager_global_configuration_has_options() {
    let seen = network_manager("10.0.0.1", "");
    let rendered = render(
        &asked(),
        &seen,
        &choice(conf("10.0.0.2 fd00::a", "a.example . b.example", "ndots:5 edns0")),
    );
    assert_eq!(
        files(&rendered),
        "== /etc/NetworkManager/conf.d/zz-virtfleet.conf 644\n#\n[global-dns]\nsearches=a.example,b.example\noptions=ndots:5,edns0\n\n\
         [global-dns-domain-*]\nservers=10.0.0.2,fd00::a\n"
    );
    assert!(rendered.advice.is_empty());
    let least = render(&asked(), &seen, &choice(conf("10.0.0.2", "", "")));
    assert_eq!(
        least.files[0].text,
        header() + "[global-dns]\n\n[global-dns-domain-*]\nservers=10.0.0.2\n"
    );
}

#[test]
fn network_manager_does_not_configure_resolved() {
    let mut seen = resolved("10.0.0.1", "");
    seen.links[0].manager = Manager::NetworkManager;
    assert!(
        render(&asked(), &seen, &choice(conf("10.0.0.2", "", "")))
            .advice
            .is_empty()
    );
    seen.missing_tools.push("resolvectl".to_owned());
    let rendered = render(&asked(), &seen, &choice(conf("10.0.0.2", "", "")));
    assert_eq!(rendered.files[1].path, ours::NETWORK_MANAGER);
    assert_eq!(
        rendered.files[1].text,
        header() + "[main]\ndns=none\nsystemd-resolved=false\n"
    );
    assert_eq!(
        rendered.advice,
        [Advice::NetworkManagerLinks {
            links: vec!["eth0".to_owned()]
        }]
    );
}

#[test]
fn plain_file_has_dhclient_hook_and_kubelet_file() {
    let rendered = render(
        &asked(),
        &plain("10.0.0.1", ""),
        &choice(conf("127.0.0.1 10.0.0.2", "a.example", "ndots:5 rotate")),
    );
    assert_eq!(
        files(&rendered),
        "== /var/lib/virtfleet/resolv.conf 644\n#\nnameserver 10.0.0.2\nsearch a.example\noptions ndots:5 rotate\n\
         == /etc/dhcp/dhclient-enter-hooks.d/virtfleet 644\n#\n\
         if grep -qs '^# Written by virtfleet-agent' /etc/resolv.conf /etc/systemd/resolved.conf.d/zz-virtfleet.conf; then\n\
         \tmake_resolv_conf() { :; }\nfi\n\
         == /etc/resolv.conf\n#\nnameserver 127.0.0.1\nnameserver 10.0.0.2\nsearch a.example\noptions ndots:5 rotate\n"
    );
    let mut seen = plain("10.0.0.1", "");
    seen.links[0].given[0].path = "/run/dhcpcd/hook-state/resolv.conf/eth0.dhcp".to_owned();
    let rendered = render(&asked(), &seen, &choice(conf("127.0.0.1", "", "")));
    assert!(rendered.files.is_empty());
    assert_eq!(
        rendered.advice,
        [Advice::Dhcpcd {
            link: "eth0".to_owned()
        }]
    );
    seen.owner = Owner::Resolvconf;
    let rendered = render(&asked(), &seen, &choice(conf("10.0.0.2", "", "")));
    assert_eq!((rendered.files.len(), rendered.advice.len()), (1, 0));
}

#[test]
fn kubelet_file_is_rendered_for_every_owner() {
    let mut seen = network_manager("10.0.0.1", "");
    seen.kubelet = Some(Kubelet {
        resolv_conf: Some(ours::FOR_KUBELET.to_owned()),
        ..Kubelet::default()
    });
    let rendered = render(&asked(), &seen, &choice(conf("10.0.0.2", "", "")));
    assert_eq!(rendered.files[1].path, ours::FOR_KUBELET);
}

#[test]
fn kubelet_file_without_choice_uses_last_good_or_current() {
    use crate::dns::{
        collision,
        fixtures::{healthy, resolved},
        kubelet::for_kubelet,
        plan::{DnsStep, plan},
    };
    use virtfleet_wire::settings::DnsManage;
    let mut seen = resolved("169.254.20.10 127.0.0.1 10.0.0.1", "");
    let text = |seen: &Seen| {
        let named = [(crate::dns::fixtures::ip("169.254.20.10"), String::new())];
        let collisions = collision::find(&asked(), seen, &named);
        for_kubelet(seen, None, &collisions, &[]).map(|file| file.text)
    };
    assert_eq!(text(&seen), None);
    seen.kubelet = Some(Kubelet {
        resolv_conf: Some(ours::FOR_KUBELET.to_owned()),
        ..Kubelet::default()
    });
    assert!(text(&seen).unwrap().contains("\nnameserver 10.0.0.1\n"));
    assert_eq!(text(&seen).unwrap().matches("nameserver").count(), 1);
    seen.last_good = Some(conf("10.0.0.9", "", ""));
    assert!(text(&seen).unwrap().contains("\nnameserver 10.0.0.9\n"));
    // Nothing else is known.
    let mut alone = resolved("169.254.20.10", "");
    alone.kubelet.clone_from(&seen.kubelet);
    assert!(text(&alone).unwrap().contains("\nnameserver 169.254.20.10\n"));
    // In every mode, and only once.
    for manage in [DnsManage::Off, DnsManage::ReportOnly, DnsManage::Auto] {
        let asked = Asked { manage, ..asked() };
        let plan = plan(&asked, &alone, &healthy(""));
        assert!(plan.steps.is_empty(), "{manage:?}");
        assert!(
            matches!(plan.kubelet, Some(DnsStep::WriteFile { .. })),
            "{manage:?}"
        );
    }
    seen.files.insert(
        ours::FOR_KUBELET.to_owned(),
        format!("{} x\nnameserver 10.0.0.7\n", ours::MARK),
    );
    assert!(text(&seen).unwrap().contains("\nnameserver 10.0.0.9\n"));
    // A choice that pods cannot reach removes nothing.
    let kept = render(&asked(), &seen, &choice(conf("127.0.0.1", "", "")));
    assert!(files(&kept).contains("nameserver 10.0.0.7"));
}
