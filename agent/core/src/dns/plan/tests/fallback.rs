//! `ClusterFirst` while the cluster's DNS is down.

use super::*;

const CLUSTER: &str = "10.96.0.10 10.96.0.11";
const PLATFORM: &str = "10.0.0.1";

fn down(cluster: &str, platform: &[(&str, Health)]) -> Vec<Judged> {
    let mut all: Vec<Judged> = ips(cluster)
        .iter()
        .map(|one| judged(&one.to_string(), Health::Dead))
        .collect();
    all.extend(platform.iter().map(|(one, health)| judged(one, *health)));
    all
}

fn is_fallback(plan: &Plan) -> bool {
    plan.is_fallback() && plan.refusals.is_empty()
}

/// Guests of each kind with the cluster's DNS, configured while it answered.
fn adopted(platform: &str) -> Vec<Seen> {
    let guests = [
        resolved(platform, "cluster.local"),
        plain(platform, "cluster.local"),
        network_manager(platform, "cluster.local"),
    ];
    let adopt = |seen: &Seen| {
        let plan = plan(&cluster_first(), seen, &healthy(&format!("{CLUSTER} {platform}")));
        let mut done = after(seen, &plan);
        assert_eq!(effective(&done).nameservers, ips(CLUSTER));
        done.last_good = plan.choice.map(|choice| choice.conf().clone());
        done
    };
    guests.iter().map(adopt).collect()
}

#[test]
fn platform_nameservers_are_used_until_the_cluster_answers() {
    for seen in adopted(PLATFORM) {
        let asked = cluster_first();
        let dead = down(CLUSTER, &[(PLATFORM, Health::Healthy)]);
        assert_eq!(fallback_candidates(&asked, &seen, &dead[..2]), ips(PLATFORM));
        assert!(fallback_candidates(&asked, &seen, &healthy(CLUSTER)).is_empty());
        let fallback = plan(&asked, &seen, &dead);
        assert!(is_fallback(&fallback), "{:?}", fallback.refusals);
        let conf = fallback.choice.as_ref().unwrap().conf();
        assert_eq!(conf.nameservers, ips(PLATFORM));
        // Names keep their meaning.
        assert_eq!(conf.searches, fallback.asked.searches);
        let fallen = after(&seen, &fallback);
        assert_eq!(effective(&fallen).nameservers, ips(PLATFORM));
        let again = plan(&asked, &fallen, &dead);
        assert!(
            again.steps.is_empty() && is_fallback(&again),
            "{:?}",
            short(&again)
        );
        let back = plan(&asked, &fallen, &healthy(&format!("{CLUSTER} {PLATFORM}")));
        assert!(!back.is_fallback());
        assert_eq!(effective(&after(&fallen, &back)), effective(&seen));
    }
}

#[test]
fn one_answering_nameserver_prevents_the_fallback() {
    for seen in adopted(PLATFORM) {
        let mut answers = down("10.96.0.10", &[(PLATFORM, Health::Healthy)]);
        answers.extend(healthy("10.96.0.11"));
        assert!(!plan(&cluster_first(), &seen, &answers).is_fallback());
        let asked = Asked {
            nameservers: ips("192.0.2.7"),
            ..cluster_first()
        };
        let mut answers = down(CLUSTER, &[(PLATFORM, Health::Healthy)]);
        answers.extend(healthy("192.0.2.7"));
        let plan = plan(&asked, &seen, &answers);
        assert!(!plan.is_fallback());
        assert_eq!(plan.choice.unwrap().conf().nameservers[0], ip("192.0.2.7"));
    }
}

#[test]
fn unusable_platform_nameservers_are_no_fallback() {
    for health in [Health::Dead, Health::Lying, Health::Looping, Health::Failing] {
        for seen in adopted(PLATFORM) {
            let plan = plan(&cluster_first(), &seen, &down(CLUSTER, &[(PLATFORM, health)]));
            assert!(!plan.is_fallback() && plan.steps.is_empty(), "{health:?}");
            assert_eq!(plan.refusals[0].kind, RefusalKind::NothingVerified);
        }
    }
    // 169.254.20.10 is the address of the user cluster's cache.
    for seen in adopted("169.254.20.10") {
        let dead = down(CLUSTER, &[("169.254.20.10", Health::Healthy)]);
        assert!(fallback_candidates(&cluster_first(), &seen, &dead[..2]).is_empty());
        let alone = plan(&cluster_first(), &seen, &dead);
        assert!(!alone.is_fallback() && alone.steps.is_empty());
    }
    for seen in adopted("169.254.20.10 10.0.0.1") {
        let dead = down(
            CLUSTER,
            &[("169.254.20.10", Health::Healthy), (PLATFORM, Health::Healthy)],
        );
        let plan = plan(&cluster_first(), &seen, &dead);
        assert_eq!(plan.choice.unwrap().conf().nameservers, ips(PLATFORM));
    }
}

/// With `None` all nameservers are in the settings, and `Default` uses the platform's anyway.
#[test]
fn other_policies_have_no_fallback() {
    for policy in [
        virtfleet_wire::settings::DnsPolicy::None,
        virtfleet_wire::settings::DnsPolicy::Default,
    ] {
        for seen in adopted(PLATFORM) {
            let asked = Asked {
                policy,
                nameservers: ips("10.96.0.10"),
                ..asked()
            };
            let dead = down("10.96.0.10", &[(PLATFORM, Health::Healthy)]);
            assert!(!plan(&asked, &seen, &dead).is_fallback());
            assert!(fallback_candidates(&asked, &seen, &dead[..1]).is_empty());
        }
    }
}
