use proptest::prelude::*;

use super::*;
use crate::dns::{
    collision::CollisionKind,
    fixtures::{conf, healthy, ip, ips, judged, strings},
    merge::Merged,
};

fn merged(nameservers: &str) -> Merged {
    Merged {
        conf: conf(nameservers, "a.example", "ndots:5"),
        ..Merged::default()
    }
}

fn collision(nameserver: &str) -> Collision {
    Collision {
        nameserver: ip(nameserver),
        kind: CollisionKind::NodeLocal,
        now: false,
        with: String::new(),
        given_by: String::new(),
    }
}

#[test]
fn answering_nameservers_come_first() {
    let judged = [
        judged("10.0.0.1", Health::Dead),
        judged("10.0.0.2", Health::Slow),
        judged("10.0.0.3", Health::Healthy),
    ];
    let choice = choose(&merged("10.0.0.1 10.0.0.2 10.0.0.3"), &[], &judged).unwrap();
    assert_eq!(
        *choice.conf(),
        conf("10.0.0.2 10.0.0.3 10.0.0.1", "a.example", "ndots:5")
    );
}

#[test]
fn lying_looping_and_colliding_nameservers_are_never_chosen() {
    let mut all = healthy("10.0.0.3 10.0.0.4");
    all.extend([
        judged("10.0.0.1", Health::Lying),
        judged("10.0.0.2", Health::Looping),
    ]);
    let merged = merged("10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4");
    let choice = choose(&merged, &[collision("10.0.0.3")], &all).unwrap();
    assert_eq!(choice.conf().nameservers, ips("10.0.0.4"));
    assert_eq!(
        choose(&merged, &[collision("10.0.0.3"), collision("10.0.0.4")], &all),
        None
    );
}

#[test]
fn trimmed_nameserver_replaces_an_excluded_one() {
    let mut merged = merged("169.254.20.10 10.0.0.2 10.0.0.3");
    let values = strings("10.0.0.4 10.0.0.5");
    merged.trimmed = vec![Trimmed::Nameservers { values }];
    let all = healthy("169.254.20.10 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5");
    let choice = choose(&merged, &[collision("169.254.20.10")], &all).unwrap();
    assert_eq!(choice.conf().nameservers, ips("10.0.0.2 10.0.0.3 10.0.0.4"));
}

#[test]
fn no_answer_means_no_choice() {
    assert_eq!(choose(&merged("10.0.0.1"), &[], &[]), None);
    assert_eq!(
        choose(&merged("10.0.0.1"), &[], &[judged("10.0.0.1", Health::Failing)]),
        None
    );
    assert_eq!(choose(&merged(""), &[], &healthy("10.0.0.1")), None);
}

fn health() -> impl Strategy<Value = Health> {
    use Health::{Dead, Failing, Healthy, Incomplete, Looping, Lying, NoTcp, Slow, TcpOnly};
    prop::sample::select(vec![
        Healthy, Slow, NoTcp, TcpOnly, Lying, Incomplete, Failing, Looping, Dead,
    ])
}

proptest! {
    #[test]
    fn choice_is_never_empty_and_starts_with_an_answering_one(
        asked in proptest::collection::vec(0u8..8, 0..6),
        bad in proptest::collection::vec(0u8..8, 0..4),
        healths in proptest::collection::vec((0u8..8, health()), 0..10),
    ) {
        let name = |n: &u8| format!("10.0.0.{n}");
        let names: Vec<String> = asked.iter().map(name).collect();
        let (kept, rest) = names.split_at(names.len().min(3));
        let mut merged = merged(&kept.join(" "));
        merged.trimmed = vec![Trimmed::Nameservers { values: rest.to_vec() }];
        let collisions: Vec<Collision> = bad.iter().map(|n| collision(&name(n))).collect();
        let judged: Vec<Judged> = healths.iter().map(|(n, health)| judged(&name(n), *health)).collect();
        let of = |one: &std::net::IpAddr| judged.iter().find(|other| other.nameserver == *one).map(|other| other.health);
        let good = |one: &std::net::IpAddr| !collisions.iter().any(|other| other.nameserver == *one) && of(one).is_some_and(Health::is_usable);
        match choose(&merged, &collisions, &judged) {
            Some(choice) => {
                let chosen = &choice.conf().nameservers;
                prop_assert!((1..=3).contains(&chosen.len()));
                prop_assert!(good(&chosen[0]));
                for one in chosen {
                    prop_assert!(!collisions.iter().any(|other| other.nameserver == *one));
                    prop_assert!(!matches!(of(one), Some(Health::Lying | Health::Looping)));
                    prop_assert!(names.contains(&one.to_string()));
                    prop_assert_eq!(chosen.iter().filter(|other| *other == one).count(), 1);
                }
            }
            None => prop_assert!(!names.iter().any(|one| good(&ip(one)))),
        }
    }
}
