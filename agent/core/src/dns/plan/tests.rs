//! Plans for guests of each kind. `world` models the effect of steps, `properties` checks
//! properties of all plans.

mod fallback;
mod live;
mod owners;
mod properties;
mod world;

use super::*;
use crate::dns::{
    answers::Health,
    fixtures::{
        asked, cluster_first, conf, healthy, ip, ips, judged, link, local, network_manager, plain, resolved,
    },
    seen::Manager,
};
use world::after;

/// Short text of each step.
fn short(plan: &Plan) -> Vec<String> {
    plan.steps
        .iter()
        .map(|step| match step {
            DnsStep::WriteFile { path, .. } => format!("write {path}"),
            DnsStep::RemoveFile { path } => format!("remove {path}"),
            DnsStep::ReplaceResolvConf { .. } => "take over".to_owned(),
            DnsStep::RestoreResolvConf { original } => format!("restore {:?}", original.link),
            DnsStep::Reload { service } => format!("reload {service:?}"),
            DnsStep::Revert { link } => format!("revert {link}"),
            DnsStep::SuppressLink { link } => format!("quiet {link}"),
            DnsStep::RestoreLink {
                link, nameservers, ..
            } => format!("speak {link} {}", nameservers.join(" ")),
            DnsStep::Flush => "flush".to_owned(),
        })
        .collect()
}

const NETWORKD: &str = "/etc/systemd/network/10-eth0.network.d/zz-virtfleet.conf";

#[test]
fn predicted_collision_is_excluded() {
    let seen = resolved("169.254.20.10 10.0.0.1", "cluster.local");
    let answers = healthy("169.254.20.10 10.0.0.1");
    let plan = plan(&asked(), &seen, &answers);
    assert_eq!(plan.choice.as_ref().unwrap().conf().nameservers, ips("10.0.0.1"));
    assert_eq!(
        short(&plan),
        [
            format!("write {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            format!("write {NETWORKD}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            "flush".to_owned(),
        ]
    );
    assert!(plan.refusals.is_empty());
    let done = after(&seen, &plan);
    assert_eq!(effective(&done).nameservers, ips("10.0.0.1"));
    assert!(super::plan(&asked(), &done, &answers).steps.is_empty());
}

#[test]
fn only_nameserver_stays_despite_collision() {
    let mut seen = resolved("169.254.20.10", "");
    let plan = plan(&asked(), &seen, &healthy("169.254.20.10"));
    assert!(plan.steps.is_empty() && plan.choice.is_none());
    assert_eq!(plan.refusals[0].kind, RefusalKind::NothingVerified);
    assert!(plan.refusals[0].remedy.contains("dns.config.nameservers"));
    assert!(plan.refusals[0].message.contains("collides"));
    // A last good nameserver is known, too.
    seen.last_good = Some(conf("10.0.0.7", "", ""));
    let plan = super::plan(&asked(), &seen, &healthy("169.254.20.10 10.0.0.7"));
    assert_eq!(plan.choice.as_ref().unwrap().conf().nameservers, ips("10.0.0.7"));
    assert!(matches!(
        plan.advice[..],
        [.., Advice::LastGood { .. }] | [Advice::LastGood { .. }, ..]
    ));
    // It is sufficient: no steps while it works.
    let done = after(&seen, &plan);
    let again = super::plan(&asked(), &done, &healthy("169.254.20.10 10.0.0.7"));
    assert!(again.steps.is_empty());
    assert_eq!(again.refusals[0].kind, RefusalKind::NothingVerified);
}

#[test]
fn requested_configuration_needs_no_steps() {
    for seen in [
        resolved("10.0.0.1", "a"),
        plain("10.0.0.1", "a"),
        network_manager("10.0.0.1", "a"),
    ] {
        let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
        assert!(
            plan.steps.is_empty() && plan.refusals.is_empty(),
            "{:?}",
            short(&plan)
        );
        assert!(plan.choice.is_some());
    }
    // networkd received search domains and does not use them.
    let mut seen = resolved("10.0.0.1", "cluster.local");
    seen.upstreams = Some("nameserver 10.0.0.1\nsearch .\n".to_owned());
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    assert!(!plan.steps.is_empty());
    assert!(plan.advice.contains(&Advice::LocalDomain {
        domain: "cluster.local".to_owned()
    }));
}

#[test]
fn no_answering_nameserver_changes_nothing() {
    let seen = resolved("10.0.0.1", "");
    let mut asked = asked();
    asked.nameservers = ips("10.0.0.2");
    let plan = plan(
        &asked,
        &seen,
        &[
            judged("10.0.0.1", Health::Dead),
            judged("10.0.0.2", Health::Lying),
        ],
    );
    assert!(plan.steps.is_empty());
    assert_eq!(plan.refusals[0].kind, RefusalKind::NothingVerified);
    assert_eq!(
        plan.refusals[0].facts[0],
        ("10.0.0.1".to_owned(), "of a test".to_owned())
    );
    let nothing = super::plan(&asked_none(), &Seen::default(), &[]);
    assert!(nothing.refusals[0].message.contains("no nameserver is known"));
}

fn asked_none() -> Asked {
    asked()
}

#[test]
fn last_good_is_used_only_if_nothing_in_use_works() {
    let mut seen = resolved("10.0.0.1", "");
    seen.last_good = Some(conf("10.0.0.9", "", ""));
    let mut asked = cluster_first();
    asked.cluster_nameservers = ips("10.96.0.10");
    let dead = judged("10.96.0.10", Health::Dead);
    let mut answers = healthy("10.0.0.1 10.0.0.9");
    answers.push(dead.clone());
    assert!(plan(&asked, &seen, &answers).steps.is_empty());
    let mut answers = healthy("10.0.0.9");
    answers.extend([dead, judged("10.0.0.1", Health::Dead)]);
    let plan = plan(&asked, &seen, &answers);
    assert_eq!(plan.choice.unwrap().conf().nameservers, ips("10.0.0.9"));
}

#[test]
fn plain_file_is_replaced_and_restored() {
    let seen = plain("169.254.20.10 10.0.0.1", "a.example");
    let answers = healthy("169.254.20.10 10.0.0.1");
    let plan = plan(&asked(), &seen, &answers);
    assert_eq!(
        short(&plan),
        [
            format!("write {}", ours::FOR_KUBELET),
            format!("write {}", ours::DHCLIENT),
            "take over".to_owned()
        ]
    );
    let done = after(&seen, &plan);
    assert!(ours::taken_over(&done.resolv_conf));
    assert!(super::plan(&asked(), &done, &answers).steps.is_empty());
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    let back = super::plan(&off, &done, &[]);
    assert_eq!(
        short(&back),
        [
            "restore None".to_owned(),
            format!("remove {}", ours::DHCLIENT),
            format!("remove {}", ours::FOR_KUBELET)
        ]
    );
    let undone = after(&done, &back);
    assert_eq!((&undone.resolv_conf, undone.files.len()), (&seen.resolv_conf, 0));
    assert!(super::plan(&off, &undone, &[]).steps.is_empty());
}

#[test]
fn off_restores_links_before_resolved() {
    let seen = resolved("169.254.20.10 10.0.0.1", "");
    let done = after(&seen, &plan(&asked(), &seen, &healthy("10.0.0.1")));
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    let back = plan(&off, &done, &[]);
    assert_eq!(
        short(&back),
        [
            format!("remove {NETWORKD}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            format!("remove {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            "flush".to_owned(),
        ]
    );
    assert_eq!(effective(&after(&done, &back)), effective(&seen));
}

#[test]
fn new_owner_gets_files_before_old_ones_are_removed() {
    let before = plain("169.254.20.10 10.0.0.1", "");
    let mut done = after(&before, &plan(&asked(), &before, &healthy("10.0.0.1")));
    let now = resolved("169.254.20.10 10.0.0.1", "");
    (done.owner, done.resolved, done.upstreams) = (now.owner, now.resolved, now.upstreams);
    done.links = now.links;
    let plan = plan(&asked(), &done, &healthy("10.0.0.1"));
    assert_eq!(
        short(&plan),
        [
            format!("write {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            format!("write {NETWORKD}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            "restore None".to_owned(),
            format!("remove {}", ours::DHCLIENT),
            format!("remove {}", ours::FOR_KUBELET),
            "flush".to_owned(),
        ]
    );
    // From there to NetworkManager.
    let mut done = after(&done, &plan);
    done.owner = Owner::NetworkManager;
    done.links[0].manager = Manager::NetworkManager;
    let plan = super::plan(&asked(), &done, &healthy("10.0.0.1"));
    assert_eq!(
        short(&plan)[..2],
        [
            format!("write {}", ours::NETWORK_MANAGER),
            "reload NetworkManager".to_owned()
        ]
    );
    assert!(short(&plan).contains(&format!("remove {}", ours::RESOLVED)));
}

#[test]
fn renamed_network_file_moves_the_drop_in_with_one_reload() {
    let seen = resolved("169.254.20.10 10.0.0.1", "");
    let mut done = after(&seen, &plan(&asked(), &seen, &healthy("10.0.0.1")));
    done.links[0].profile = Some("/run/systemd/network/zz-new.network".to_owned());
    assert_eq!(
        short(&plan(&asked(), &done, &healthy("10.0.0.1"))),
        [
            "write /etc/systemd/network/zz-new.network.d/zz-virtfleet.conf".to_owned(),
            format!("remove {NETWORKD}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            "flush".to_owned(),
        ]
    );
}

/// NetworkManager stops setting nameservers, but does not remove old ones.
#[test]
fn servers_set_by_network_manager_are_reverted() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    seen.links[0].manager = Manager::NetworkManager;
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    assert_eq!(
        short(&plan)[2..],
        [
            format!("write {}", ours::NETWORK_MANAGER),
            "reload NetworkManager".to_owned(),
            "revert eth0".to_owned(),
            "flush".to_owned(),
        ]
    );
    let done = after(&seen, &plan);
    assert_eq!(effective(&done).nameservers, ips("10.0.0.1"));
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    let undone = after(&done, &super::plan(&off, &done, &[]));
    assert_eq!(effective(&undone), effective(&seen));
}

#[test]
fn absent_link_keeps_its_drop_in() {
    let mut networkd = resolved("169.254.20.10 10.0.0.1", "");
    networkd.profiles.insert("10-eth0.network".to_owned());
    let mut netplan = networkd.clone();
    netplan.links[0].profile = Some(owners::NETPLANS.to_owned());
    netplan.profiles = ["10-netplan-eth0.network".to_owned()].into();
    let mut manager = resolved("169.254.20.10 10.0.0.1", "");
    manager.links[0].manager = Manager::NetworkManager;
    for mut seen in [networkd, netplan, manager] {
        let mut asked = asked();
        (asked.policy, asked.nameservers) = (virtfleet_wire::settings::DnsPolicy::None, ips("10.0.0.1"));
        let done = after(&seen, &plan(&asked, &seen, &healthy("10.0.0.1")));
        let mut now = done.clone();
        now.links.clear();
        assert_eq!(short(&plan(&asked, &now, &healthy("10.0.0.1"))), [""; 0]);
        // The `.network` file is removed.
        now.profiles.clear();
        now.missing_tools.push("nmcli".to_owned());
        let again = short(&plan(&asked, &now, &healthy("10.0.0.1")));
        let refused = plan(&asked, &now, &healthy("10.0.0.1")).refusals;
        assert!(
            again.iter().any(|step| step.starts_with("remove")) || !refused.is_empty(),
            "{again:?}"
        );
        seen.links.clear();
        assert!(
            !short(&plan(&asked, &seen, &healthy("10.0.0.1")))
                .iter()
                .any(|step| step.contains("network"))
        );
    }
}

/// Nameservers from DHCPv6 and router advertisements only, which no file has while the agent's
/// exists.
#[test]
fn dead_kept_nameservers_are_dropped_to_find_new_ones() {
    let mut seen = resolved("fd00::a", "");
    seen.links[0].given.clear();
    let mut asked = asked();
    asked.searches = vec!["a.example".to_owned()];
    let done = after(&seen, &plan(&asked, &seen, &healthy("fd00::a")));
    assert!(done.files.contains_key(ours::RESOLVED));
    assert!(plan(&asked, &done, &healthy("fd00::a")).steps.is_empty());
    let dead = [judged("fd00::a", Health::Dead)];
    let back = plan(&asked, &done, &dead);
    assert_eq!(
        short(&back),
        [
            format!("remove {NETWORKD}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            format!("remove {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            "flush".to_owned(),
        ]
    );
    assert_eq!(back.refusals[0].kind, RefusalKind::NothingVerified);
    let mut undone = after(&done, &back);
    assert!(plan(&asked, &undone, &dead).steps.is_empty());
    // The new nameserver.
    undone.upstreams = Some("nameserver fd00::b\n".to_owned());
    undone.told = conf("fd00::b", "", "");
    let again = plan(&asked, &undone, &healthy("fd00::b"));
    assert_eq!(again.choice.unwrap().conf().nameservers, ips("fd00::b"));
    // If a lease names a nameserver, nothing is hidden, and it may be the one that collides.
    let mut leased = done.clone();
    leased.links = vec![link("169.254.20.10", "")];
    assert!(plan(&asked, &leased, &dead).steps.is_empty());
}

#[test]
fn obstacles_refuse_all_steps() {
    let kinds = |seen: &Seen| {
        let plan = plan(&asked(), seen, &healthy("10.0.0.1"));
        assert!(plan.steps.is_empty());
        plan.refusals.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    seen.files
        .insert(ours::RESOLVED.to_owned(), "[Resolve]\n".to_owned());
    assert_eq!(kinds(&seen), [RefusalKind::NotOurs]);
    let mut seen = plain("169.254.20.10 10.0.0.1", "");
    seen.resolv_conf.fixed = true;
    assert_eq!(kinds(&seen), [RefusalKind::NotOurs]);
    let remedy = "sudo umount /etc/resolv.conf";
    seen.resolv_conf.obstacle = Some(crate::dns::seen::Obstacle {
        because: "/etc/resolv.conf is a mount point".to_owned(),
        remedy: remedy.to_owned(),
    });
    let refused = plan(&asked(), &seen, &healthy("10.0.0.1")).refusals;
    assert!(refused[0].remedy.starts_with(remedy), "{refused:?}");
    let mut seen = network_manager("169.254.20.10 10.0.0.1", "");
    seen.missing_tools.push("nmcli".to_owned());
    assert_eq!(kinds(&seen), [RefusalKind::NoTool]);
    let mut seen = network_manager("169.254.20.10 10.0.0.1", "");
    seen.nmcli = Some((1, 18));
    assert_eq!(kinds(&seen), [RefusalKind::NoTool]);
}

#[test]
fn kubelet_advice_names_a_usable_file() {
    let mut seen = resolved("10.0.0.1", "");
    seen.kubelet = Some(crate::dns::seen::Kubelet {
        path: "/var/lib/kubelet/config.yaml".to_owned(),
        ..Default::default()
    });
    let reads = |seen: &Seen, file: Option<&str>| {
        let mut seen = seen.clone();
        seen.kubelet.as_mut().unwrap().resolv_conf = file.map(str::to_owned);
        let plan = plan(&asked(), &seen, &healthy("10.0.0.1 127.0.0.1"));
        plan.advice.into_iter().find_map(|advice| match advice {
            Advice::KubeletResolvConf { instead, .. } => Some(instead),
            _ => None,
        })
    };
    let upstreams = Some("/run/systemd/resolve/resolv.conf".to_owned());
    assert_eq!(reads(&seen, None), upstreams);
    assert_eq!(
        reads(&seen, Some("/run/systemd/resolve/stub-resolv.conf")),
        upstreams
    );
    assert_eq!(reads(&seen, Some("/run/systemd/resolve/resolv.conf")), None);
    assert_eq!(reads(&seen, Some("")), None);
    let mut file = plain("127.0.0.1", "");
    file.kubelet.clone_from(&seen.kubelet);
    file.links.clear();
    assert_eq!(
        reads(&file, None).as_deref(),
        Some("a file with nameservers that pods reach")
    );
    let gone = "/run/systemd/resolve/resolv.conf";
    assert_eq!(reads(&file, Some(gone)), reads(&file, None));
    file.links = vec![link("10.0.0.1", "")];
    assert_eq!(reads(&file, None).as_deref(), Some(ours::FOR_KUBELET));
    file.resolv_conf.text = Some("nameserver 10.0.0.1\n".to_owned());
    assert_eq!(reads(&file, None), None);
    assert_eq!(reads(&file, Some(gone)).as_deref(), Some("/etc/resolv.conf"));
}

#[test]
fn off_leaves_the_file_that_kubelet_reads() {
    let mut seen = plain("169.254.20.10 10.0.0.1", "");
    seen.kubelet = Some(crate::dns::seen::Kubelet {
        resolv_conf: Some(ours::FOR_KUBELET.to_owned()),
        ..Default::default()
    });
    let done = after(&seen, &plan(&asked(), &seen, &healthy("10.0.0.1")));
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    let undone = after(&done, &plan(&off, &done, &[]));
    assert_eq!(undone.files.keys().collect::<Vec<_>>(), [ours::FOR_KUBELET]);
}

#[test]
fn every_relevant_nameserver_is_probed_once() {
    let mut seen = resolved("10.0.0.1 169.254.20.10", "");
    seen.upstreams = Some("nameserver 10.0.0.8\nnameserver 10.0.0.1\n".to_owned());
    // The agent's file exists, so the nameserver in use is not the platform's.
    seen.files
        .insert(ours::RESOLVED.to_owned(), format!("{}\n", ours::MARK));
    seen.last_good = Some(conf("10.0.0.9 10.0.0.8", "", ""));
    seen.locals.push(local("10.0.0.9", "eth1"));
    let mut asked = asked();
    asked.nameservers = ips("10.0.0.2 10.0.0.3");
    let origins = origins(&asked, &seen);
    assert_eq!(
        origins.iter().map(|one| one.0).collect::<Vec<_>>(),
        ips("10.0.0.1 169.254.20.10 10.0.0.2 10.0.0.3 10.0.0.8 10.0.0.9")
    );
    assert_eq!(origins[2].1, "dns.config.nameservers");
    assert_eq!(origins[4].1, "the current configuration of systemd-resolved");
    assert_eq!(candidates(&asked, &seen).len(), 6);
    let plan = plan(&asked, &seen, &[]);
    assert_eq!(
        plan.collisions
            .iter()
            .map(|one| one.nameserver)
            .collect::<Vec<_>>(),
        [ip("169.254.20.10"), ip("10.0.0.9")]
    );
    let first = cluster_first();
    assert_eq!(super::origins(&first, &seen)[0].1, "dns.cluster.nameservers");
}
