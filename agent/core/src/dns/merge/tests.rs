use proptest::prelude::*;

use super::*;
use crate::dns::fixtures::{asked, conf, ips, option, strings};

/// Configuration of the platform in the tables.
fn platform() -> ResolvConf {
    conf(
        "192.0.2.1 192.0.2.2",
        "corp.example cluster.local",
        "timeout:1 ndots:2",
    )
}

fn merged(policy: DnsPolicy, host_network: bool, cluster: &str, config: &ResolvConf) -> Merged {
    let asked = Asked {
        policy,
        host_network,
        cluster_nameservers: ips(cluster),
        namespace: Some("tenant".to_owned()),
        nameservers: config.nameservers.clone(),
        searches: config.searches.clone(),
        options: config.options.clone(),
        ..asked()
    };
    merge(&asked, &platform())
}

#[test]
fn all_policies_with_and_without_config() {
    use DnsPolicy::{ClusterFirst, ClusterFirstWithHostNet, Default, None};
    let cluster = "10.96.0.10";
    let in_cluster = "tenant.svc.cluster.local svc.cluster.local cluster.local corp.example";
    let none = conf("", "", "");
    let some = conf(
        "192.0.2.2 198.51.100.1",
        "extra.example corp.example",
        "ndots:3 edns0 timeout",
    );
    let by_default = platform();
    let by_cluster = conf(cluster, in_cluster, "ndots:5");
    let by_default_and_some = conf(
        "192.0.2.1 192.0.2.2 198.51.100.1",
        "corp.example cluster.local extra.example",
        "timeout ndots:3 edns0",
    );
    let by_cluster_and_some = conf(
        "10.96.0.10 192.0.2.2 198.51.100.1",
        &format!("{in_cluster} extra.example"),
        "ndots:3 edns0 timeout",
    );
    // Policy, host network, the cluster's nameservers, config; the result; whether it warns about
    // missing nameservers of the cluster.
    let table = [
        (None, false, cluster, &none, &none, false),
        (None, false, cluster, &some, &some, false),
        (None, true, cluster, &some, &some, false),
        (None, false, "", &some, &some, false),
        (Default, false, cluster, &none, &by_default, false),
        (Default, true, cluster, &none, &by_default, false),
        (Default, false, "", &some, &by_default_and_some, false),
        (Default, true, cluster, &some, &by_default_and_some, false),
        (ClusterFirst, false, cluster, &none, &by_cluster, false),
        (ClusterFirst, false, cluster, &some, &by_cluster_and_some, false),
        (ClusterFirst, true, cluster, &none, &by_default, false),
        (ClusterFirst, true, cluster, &some, &by_default_and_some, false),
        (ClusterFirst, true, "", &none, &by_default, false),
        (ClusterFirst, false, "", &none, &by_default, true),
        (ClusterFirst, false, "", &some, &by_default_and_some, true),
        (ClusterFirstWithHostNet, false, cluster, &none, &by_cluster, false),
        (ClusterFirstWithHostNet, true, cluster, &none, &by_cluster, false),
        (
            ClusterFirstWithHostNet,
            true,
            cluster,
            &some,
            &by_cluster_and_some,
            false,
        ),
        (ClusterFirstWithHostNet, true, "", &none, &by_default, true),
        (
            ClusterFirstWithHostNet,
            false,
            "",
            &some,
            &by_default_and_some,
            true,
        ),
    ];
    for (policy, host_network, cluster, config, expected, warns) in table {
        let case = format!("{policy:?}, host network {host_network}, cluster {cluster:?}, config {config:?}");
        let merged = merged(policy, host_network, cluster, config);
        assert_eq!(merged.conf, *expected, "{case}");
        assert_eq!(merged.warnings.contains(&Warning::NoClusterDns), warns, "{case}");
        assert!(merged.trimmed.is_empty(), "{case}");
    }
}

#[test]
fn search_domains_without_namespace_or_domain() {
    let mut asked = crate::dns::fixtures::cluster_first();
    asked.namespace = None;
    let merged = merge(&asked, &platform());
    assert_eq!(
        merged.conf.searches,
        strings("svc.cluster.local cluster.local corp.example")
    );
    asked.cluster_domain.clear();
    asked.namespace = Some("tenant".to_owned());
    let merged = merge(&asked, &platform());
    assert_eq!(merged.conf.searches, platform().searches);
}

#[test]
fn an_empty_platform_stays_empty() {
    let nothing = ResolvConf::default();
    assert_eq!(merge(&asked(), &nothing), Merged::default());
    let merged = merge(&crate::dns::fixtures::cluster_first(), &nothing);
    assert_eq!(merged.conf.nameservers, ips("10.96.0.10 10.96.0.11"));
    assert_eq!(merged.conf.searches.len(), 3);
}

#[test]
fn trailing_dots_are_removed_except_for_the_root() {
    let mut asked = asked();
    asked.searches = strings("corp.example. other.example. . other.example");
    let merged = merge(&asked, &platform());
    assert_eq!(
        merged.conf.searches,
        strings("corp.example cluster.local other.example .")
    );
}

#[test]
fn options_are_replaced_by_name() {
    let mut asked = asked();
    asked.options = vec![
        option("ndots"),
        option("rotate"),
        option("attempts:1"),
        option("attempts:9"),
    ];
    asked.options[1].value = Some(String::new());
    let merged = merge(&asked, &platform());
    assert_eq!(
        merged.conf.option_words(),
        ["timeout:1", "ndots", "rotate", "attempts:9"]
    );
}

#[test]
fn fourth_nameserver_is_trimmed_after_deduplication() {
    let mut asked = asked();
    asked.nameservers = ips("192.0.2.2 192.0.2.1 192.0.2.3 192.0.2.4 192.0.2.5");
    let merged = merge(&asked, &platform());
    assert_eq!(merged.conf.nameservers, ips("192.0.2.1 192.0.2.2 192.0.2.3"));
    let values = strings("192.0.2.4 192.0.2.5");
    assert_eq!(merged.trimmed, [Trimmed::Nameservers { values }]);
}

#[test]
fn search_domains_are_trimmed_by_count_length_and_total() {
    let mut asked = asked();
    let long = format!("{}.example", "a".repeat(250));
    asked.searches = (0..32).map(|n| format!("s{n:02}.example")).collect();
    asked.searches.insert(0, long.clone());
    let merged = merge(&asked, &ResolvConf::default());
    // The long one counts towards the 32, as in kubelet.
    assert_eq!(merged.conf.searches.len(), 31);
    assert_eq!(
        merged.trimmed,
        [
            Trimmed::LongSearch {
                value: long[..64].to_owned()
            },
            Trimmed::Searches {
                values: vec!["s31.example".to_owned()]
            },
        ]
    );

    // 8 of 255 characters with spaces are 2,047 characters: another one does not fit.
    let of = |n: usize, length: usize| format!("{n}{}", ".a".repeat((length - 1) / 2));
    asked.searches = (1..=8).map(|n| of(n, 253)).collect();
    assert_eq!(joined(&asked.searches), 2031);
    asked.searches.push(of(9, 15));
    let all = merge(&asked, &ResolvConf::default());
    assert_eq!(joined(&all.conf.searches), 2047);
    assert!(all.trimmed.is_empty());
    asked.searches[8] = format!("{}bb", of(9, 15));
    let cut = merge(&asked, &ResolvConf::default());
    assert_eq!(cut.conf.searches, asked.searches[..8]);
    assert_eq!(cut.trimmed.len(), 1);
}

#[test]
fn kubevirt_limits_cause_warnings() {
    let warns = |searches: Vec<String>| {
        let asked = Asked { searches, ..asked() };
        merge(&asked, &ResolvConf::default()).warnings
    };
    let six = strings("a b c d e f");
    assert_eq!(warns(six.clone()), []);
    assert_eq!(
        warns([six, strings("g")].concat()),
        [Warning::BeyondKubevirtAdmission]
    );
    // 84 * 3 with two spaces are 254 characters, and 258 bytes in option 119: a length byte per
    // label and a zero per name.
    let label = "a".repeat(41);
    let name = |last: &str| format!("{label}.{}{last}", "b".repeat(41));
    let three = vec![name("1"), name("2"), name("3")];
    assert_eq!((joined(&three), option_119_bytes(&three)), (254, 258));
    assert_eq!(warns(three), [Warning::BeyondOption119]);
    let below = vec![name("1"), name("2"), name("")];
    assert_eq!(option_119_bytes(&below), 257);
    let exact = strings(&format!("{} {}", "a.".repeat(62) + "b", "c.".repeat(63) + "d"));
    assert_eq!(option_119_bytes(&exact), 127 + 129 - 2 + 2);
    assert_eq!(option_119_bytes(&strings(". example.com.")), 1 + 13);
}

proptest! {
    #[test]
    fn limits_hold_and_trimmed_values_are_reported(
        given in proptest::collection::vec("[a-d]{1,3}(\\.[a-z]{1,60}){0,6}", 0..50),
        own in proptest::collection::vec("[a-d]{1,3}(\\.[a-z]{1,60}){0,6}", 0..20),
        servers in proptest::collection::vec(0u32..6, 0..8),
        cluster in any::<bool>(),
    ) {
        let mut asked = if cluster { crate::dns::fixtures::cluster_first() } else { asked() };
        asked.searches.clone_from(&own);
        asked.nameservers = servers.iter().map(|n| std::net::Ipv4Addr::from_bits(0xC000_0200 + n).into()).collect();
        let mut platform = platform();
        platform.searches.clone_from(&given);
        let merged = merge(&asked, &platform);
        prop_assert!(merged.conf.nameservers.len() <= limits::NAMESERVERS);
        prop_assert!(merged.conf.searches.len() <= limits::SEARCHES);
        prop_assert!(joined(&merged.conf.searches) <= limits::SEARCH_CHARACTERS);
        let kept = &merged.conf.searches;
        let mut all: Vec<String> = Vec::new();
        for one in kept.iter().cloned().chain(merged.trimmed.iter().flat_map(|trimmed| match trimmed {
            Trimmed::Searches { values } => values.clone(),
            Trimmed::LongSearch { value } => vec![value.clone()],
            Trimmed::Nameservers { .. } => Vec::new(),
        })) {
            prop_assert!(!all.contains(&one), "{} twice", one);
            all.push(one);
        }
        for one in given.iter().chain(&own) {
            prop_assert!(all.iter().any(|other| one.starts_with(other.as_str())), "{} is lost", one);
        }
        prop_assert_eq!(merge(&asked, &platform), merged);
    }
}
