use super::*;
use crate::dns::{
    answers::{Health, Judged},
    fixtures::{asked, conf, healthy, ips, judged, plain, resolved},
    plan::plan,
};

fn stands(asked: &Asked, seen: &Seen, judged: &[Judged]) -> DnsStatus {
    standing(asked, seen, &plan(asked, seen, judged))
}

#[test]
fn every_state() {
    let good = healthy("10.0.0.1 169.254.20.10");
    let dead = [judged("10.0.0.1", Health::Dead)];
    assert_eq!(
        stands(&asked(), &resolved("10.0.0.1", ""), &good),
        DnsStatus::Verified
    );
    assert_eq!(
        stands(&asked(), &resolved("10.0.0.1", ""), &dead),
        DnsStatus::Broken
    );
    assert_eq!(
        stands(&asked(), &resolved("10.0.0.1", ""), &[]),
        DnsStatus::Unknown
    );
    assert_eq!(stands(&asked(), &Seen::default(), &[]), DnsStatus::Broken);
    // It works now, but will break.
    assert_eq!(
        stands(&asked(), &resolved("169.254.20.10", ""), &good),
        DnsStatus::Colliding
    );
    let looping = [judged("169.254.20.10", Health::Looping)];
    assert_eq!(
        stands(&asked(), &resolved("169.254.20.10", ""), &looping),
        DnsStatus::Broken
    );
    let mut other = asked();
    other.nameservers = ips("10.0.0.2");
    let both = healthy("10.0.0.1 10.0.0.2");
    assert_eq!(
        stands(&other, &resolved("10.0.0.1", ""), &both),
        DnsStatus::Differs
    );
    other.manage = DnsManage::Off;
    assert_eq!(stands(&other, &resolved("10.0.0.1", ""), &both), DnsStatus::Off);
}

#[test]
fn nameserver_order_matters_only_in_a_plain_file() {
    let two = conf("10.0.0.2 10.0.0.1", "", "");
    assert!(is_in_use(&resolved("10.0.0.1 10.0.0.2", ""), &two));
    assert!(!is_in_use(&plain("10.0.0.1 10.0.0.2", ""), &two));
    // Options matter if the resolver supports them.
    let options = conf("10.0.0.1", "", "ndots:5");
    assert!(is_in_use(&resolved("10.0.0.1", ""), &options));
    assert!(!is_in_use(&plain("10.0.0.1", ""), &options));
}

#[test]
fn state_file_round_trips_and_older_ones_parse() {
    let seen = resolved("169.254.20.10 10.0.0.1", "cluster.local");
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let state = DnsState {
        v: FORMAT,
        standing: DnsStatus::Colliding,
        links: seen.links,
        judged: plan.judged,
        collisions: plan.collisions,
        ..DnsState::default()
    };
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<DnsState>(&text).unwrap(), state);
    assert_eq!(
        serde_json::from_str::<DnsState>("{\"later\":1}").unwrap(),
        DnsState::default()
    );
}
