//! `ClusterFirst`: the cluster DNS was adopted, fails, and recovers.

use super::*;

const CLUSTER: &str = "10.96.0.10";
const PLATFORM: &str = "192.0.2.53";
const SETTINGS: &str =
    "dns: {manage: auto, policy: ClusterFirst, cluster: {nameservers: [10.96.0.10], namespace: ns}}\n";

fn platform_alone(who: &str, _: &str) -> bool {
    who == PLATFORM
}

fn no_nameserver(_: &str, _: &str) -> bool {
    false
}

fn uses(guest: &Guest) -> Vec<String> {
    let text = guest.resolv_conf();
    let words = text.lines().filter_map(|line| line.strip_prefix("nameserver "));
    words.map(str::to_owned).collect()
}

fn critical(state: &DnsState) -> Vec<&str> {
    let all = state.findings.iter();
    all.filter(|one| one.severity == Severity::Critical)
        .map(|one| one.id.as_str())
        .collect()
}

#[test]
fn the_node_falls_back_to_the_platforms_nameserver_and_returns() {
    let guest = Guest::new(SETTINGS);
    guest.write("root/etc/resolv.conf", &format!("nameserver {PLATFORM}\n"));
    let adopted = guest.pass(all, by_stage());
    assert_eq!(adopted.state.standing, DnsStatus::Verified);
    assert_eq!(uses(&guest), [CLUSTER]);
    // While the cluster answers, the platform's nameserver is not probed.
    let platform: IpAddr = PLATFORM.parse().unwrap();
    let quiet = guest.pass(all, by_stage());
    assert!(!quiet.state.questions.contains_key(&platform));

    let fallen = guest.pass(platform_alone, by_stage());
    assert_eq!(uses(&guest), [PLATFORM]);
    assert!(fallen.changed && fallen.state.fallback);
    assert_eq!(critical(&fallen.state), ["dns-platform-fallback"]);
    assert_eq!(fallen.state.standing, DnsStatus::Differs);
    let message = &fallen
        .state
        .findings
        .iter()
        .find(|one| one.id == "dns-platform-fallback")
        .unwrap()
        .message;
    assert!(
        message.contains(CLUSTER) && message.contains(PLATFORM),
        "{message}"
    );
    // The outage lasts, and nothing is written again. The last verified nameserver is still the
    // cluster's.
    let lasts = guest.pass(platform_alone, by_stage());
    assert!(!lasts.changed && lasts.state.fallback);
    assert_eq!(critical(&lasts.state), ["dns-platform-fallback"]);
    let good = virtfleet_agent_host::dns::last_good(&guest.roots)
        .unwrap()
        .unwrap();
    assert_eq!(good.nameservers, [CLUSTER.parse::<IpAddr>().unwrap()]);
    // No nameserver answers: the one in use stays.
    let silent = guest.pass(no_nameserver, by_stage());
    assert!(!silent.changed);
    assert_eq!(uses(&guest), [PLATFORM]);

    let back = guest.pass(all, by_stage());
    assert_eq!(uses(&guest), [CLUSTER]);
    assert!(back.changed && !back.state.fallback);
    assert_eq!(back.state.standing, DnsStatus::Verified);
    assert_eq!(critical(&back.state), Vec::<&str>::new());
}

#[test]
fn a_platform_nameserver_in_the_cluster_cache_is_no_fallback() {
    let guest = Guest::new(SETTINGS);
    assert_eq!(guest.pass(all, by_stage()).state.standing, DnsStatus::Verified);
    let broken = guest.pass(|who, _| who == CACHE, by_stage());
    assert_eq!(uses(&guest), [CLUSTER]);
    assert!(!broken.state.fallback);
    assert!(critical(&broken.state).contains(&"dns-nothing-verified"));
}

#[test]
fn report_only_reports_and_changes_nothing() {
    let guest = Guest::new(SETTINGS);
    guest.write("root/etc/resolv.conf", &format!("nameserver {PLATFORM}\n"));
    guest.pass(all, by_stage());
    guest.settings(&SETTINGS.replace("auto", "report-only"));
    let passed = guest.pass(platform_alone, by_stage());
    assert_eq!(uses(&guest), [CLUSTER]);
    assert!(!passed.changed);
    let critical = critical(&passed.state);
    assert!(
        critical.contains(&"dns-platform-fallback") && critical.contains(&"dns-broken"),
        "{critical:?}"
    );
}
