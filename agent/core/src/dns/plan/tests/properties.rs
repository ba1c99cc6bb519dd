//! Properties of every plan, for arbitrary settings and guests.

use proptest::prelude::*;
use virtfleet_wire::settings::DnsPolicy;

use super::{world, *};
use crate::dns::{
    fixtures::{option, strings},
    seen::{File, Kubelet, Link, Source},
};

fn address() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.96.0.10",
        "169.254.20.10",
        "127.0.0.1",
        "127.0.0.53",
        "fd00::a",
        "fe80::1",
    ])
    .prop_map(str::to_owned)
}

fn addresses(most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(address(), 0..=most).prop_map(|all| all.join(" "))
}

fn searches() -> impl Strategy<Value = String> {
    let one = prop::sample::select(vec![
        "a.example",
        "b.example",
        "cluster.local",
        "svc.cluster.local",
        ".",
    ]);
    proptest::collection::vec(one, 0..4).prop_map(|all| all.join(" "))
}

fn any_asked() -> impl Strategy<Value = Asked> {
    use DnsPolicy::{ClusterFirst, ClusterFirstWithHostNet, Default, None};
    (
        prop::sample::select(vec![None, Default, ClusterFirst, ClusterFirstWithHostNet]),
        addresses(4),
        searches(),
        addresses(2),
        prop::option::of(0u8..6),
        any::<bool>(),
    )
        .prop_map(|(policy, own, searches, cluster, ndots, local)| {
            let mut asked = asked();
            asked.policy = policy;
            asked.nameservers = ips(&own);
            asked.searches = strings(&searches);
            asked.cluster_nameservers = ips(&cluster);
            asked.options = ndots.map(|n| option(&format!("ndots:{n}"))).into_iter().collect();
            if !local {
                asked.cluster_domain = "k8s.example".to_owned();
            }
            asked
        })
}

fn any_link(index: u32) -> impl Strategy<Value = Link> {
    let manager = prop::sample::select(vec![Manager::Networkd, Manager::NetworkManager, Manager::Other]);
    let source = prop::sample::select(vec![Source::Dhcp, Source::Advertised, Source::Static]);
    let program = prop::sample::select(vec![
        "/var/lib/dhcp/dhclient.leases",
        "/run/dhcpcd/x",
        "/run/systemd/netif/leases/2",
    ]);
    (
        manager,
        source,
        program,
        addresses(3),
        searches(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            move |(manager, source, program, servers, searches, route, managed)| {
                let mut link = link(&servers, &searches);
                link.name = format!("eth{index}");
                link.index = index;
                link.manager = manager;
                link.default_route = route;
                link.profile = managed.then(|| format!("/run/systemd/network/10-netplan-eth{index}.network"));
                link.given[0].source = source;
                link.given[0].path = program.to_owned();
                link
            },
        )
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let owner = prop::sample::select(vec![
        Owner::Resolved,
        Owner::NetworkManager,
        Owner::Resolvconf,
        Owner::File,
    ]);
    let kubelet = prop::option::of(prop::sample::select(vec![
        "",
        ours::FOR_KUBELET,
        ours::RESOLV_CONF,
    ]));
    let old = proptest::collection::btree_set(
        prop::sample::select(vec![
            ours::RESOLVED,
            ours::NETWORK_MANAGER,
            ours::DHCLIENT,
            ours::FOR_KUBELET,
            "/etc/systemd/network/old.network.d/zz-virtfleet.conf",
        ]),
        0..4,
    );
    (
        owner,
        (any_link(2), any_link(3), 0usize..3),
        (addresses(3), searches()),
        old,
        kubelet,
        prop::option::of(addresses(2)),
        (prop::option::of(addresses(2)), any::<bool>()),
    )
        .prop_map(
            |(owner, (one, two, links), (servers, searches), old, kubelet, last, (taken, live))| {
                let mut seen = match owner {
                    Owner::Resolved => resolved(&servers, &searches),
                    Owner::NetworkManager => network_manager(&servers, &searches),
                    Owner::File | Owner::Resolvconf => plain(&servers, &searches),
                };
                seen.owner = owner;
                seen.links = [one, two].into_iter().take(links).collect();
                for path in old {
                    seen.files
                        .insert(path.to_owned(), format!("{} in an earlier version\n", ours::MARK));
                }
                seen.kubelet = kubelet.map(|file| Kubelet {
                    resolv_conf: Some(file.to_owned()),
                    others: Some(file.to_owned()),
                    config_dir: live.then(|| "/etc/kubernetes/kubelet.conf.d".to_owned()),
                    started_ns: live.then_some(1),
                    ..Kubelet::default()
                });
                seen.last_good = last.map(|servers| conf(&servers, "", ""));
                seen.live = live.then(|| "kubelet runs".to_owned());
                world::read(&mut seen);
                if let Some(servers) = taken {
                    let text = conf(&servers, "", "").text(ours::MARK);
                    let before = std::mem::replace(
                        &mut seen.resolv_conf,
                        File {
                            text: Some(text),
                            ..File::default()
                        },
                    );
                    seen.original = Some(before);
                }
                seen
            },
        )
}

fn any_answers() -> impl Strategy<Value = Vec<Judged>> {
    use Health::{Dead, Failing, Healthy, Incomplete, Looping, Lying, NoTcp, Slow, TcpOnly};
    let health = prop::sample::select(vec![
        Healthy, Healthy, Healthy, Healthy, Slow, NoTcp, TcpOnly, Lying, Incomplete, Failing, Looping, Dead,
    ]);
    proptest::collection::vec((address(), health), 0..12)
        .prop_map(|all| all.iter().map(|(one, health)| judged(one, *health)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn plan_is_empty_after_it_was_applied(asked in any_asked(), seen in any_seen(), answers in any_answers()) {
        let first = plan(&asked, &seen, &answers);
        let mut done = after(&seen, &first);
        if seen.owner == Owner::NetworkManager && seen.kubelet.is_some() {
            // kubelet is configured after NetworkManager has loaded the agent's configuration.
            done = after(&done, &plan(&asked, &done, &answers));
        }
        let again = plan(&asked, &done, &answers);
        prop_assert!(again.steps.is_empty(), "{:?}\nthen {:?}", short(&first), short(&again));
        if let Some(choice) = &first.choice {
            // The last good configuration is kept without being chosen again.
            let by_last_good = first.advice.iter().any(|one| matches!(one, Advice::LastGood { .. }));
            prop_assert!(by_last_good || again.choice.as_ref() == Some(choice));
        }
    }

    #[test]
    fn written_files_come_from_a_valid_choice(asked in any_asked(), seen in any_seen(), answers in any_answers()) {
        let plan = plan(&asked, &seen, &answers);
        prop_assert!(plan.choice.is_some() || plan.steps.is_empty());
        if let Some(choice) = &plan.choice {
            let chosen = &choice.conf().nameservers;
            prop_assert!(!chosen.is_empty());
            for one in chosen {
                prop_assert!(!plan.collisions.iter().any(|other| other.nameserver == *one));
                let health = answers.iter().find(|other| other.nameserver == *one).map(|other| other.health);
                prop_assert!(!matches!(health, Some(Health::Lying | Health::Looping)));
            }
        }
        for step in &plan.steps {
            match step {
                DnsStep::WriteFile { path, text, .. } => {
                    prop_assert!(ours::is_ours(text));
                    prop_assert!(seen.files.get(path).is_none_or(|before| ours::is_ours(before)));
                }
                DnsStep::RemoveFile { path } => prop_assert!(ours::is_ours(&seen.files[path])),
                DnsStep::ReplaceResolvConf { text } => prop_assert!(text.contains("\nnameserver ")),
                _ => {}
            }
        }
        prop_assert_eq!(super::plan(&asked, &seen, &answers), plan);
    }

    #[test]
    fn nameservers_are_configured_after_each_step(asked in any_asked(), seen in any_seen(), answers in any_answers()) {
        let plan = plan(&asked, &seen, &answers);
        let mut now = seen.clone();
        let given_back_nothing = seen.original.as_ref().is_some_and(|file| effective(&Seen { resolv_conf: file.clone(), ..seen.clone() }).nameservers.is_empty());
        for step in &plan.steps {
            let before = effective(&now).nameservers.is_empty();
            world::one(&mut now, step);
            prop_assert!(before || given_back_nothing || !effective(&now).nameservers.is_empty(), "{step:?}");
        }
    }

    #[test]
    fn off_removes_own_files_and_report_only_plans_the_same(asked in any_asked(), seen in any_seen(), answers in any_answers()) {
        let first = plan(&asked, &seen, &answers);
        let by_hand = Asked { manage: DnsManage::ReportOnly, ..asked.clone() };
        prop_assert_eq!(&plan(&by_hand, &seen, &answers), &first);
        let done = after(&seen, &first);
        let off = Asked { manage: DnsManage::Off, ..asked };
        let undone = after(&done, &plan(&off, &done, &[]));
        let left: Vec<&str> = ours::files(&undone).map(|one| one.0).filter(|path| *path != ours::FOR_KUBELET).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        prop_assert!(!ours::taken_over(&undone.resolv_conf));
        prop_assert!(plan(&off, &undone, &[]).steps.is_empty());
        if !ours::taken_over(&seen.resolv_conf) && seen.owner != Owner::NetworkManager {
            prop_assert_eq!(&undone.resolv_conf, &seen.resolv_conf);
        }
    }
}
