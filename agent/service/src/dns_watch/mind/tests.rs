use virtfleet_agent_core::dns::{
    answers::{Health, Judged},
    resolv::ResolvConf,
};
use virtfleet_wire::settings::DnsSettings;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mind() -> Mind {
    Mind::new(&virtfleet_agent_core::dns::asked::check(&DnsSettings::default(), None).unwrap())
}

fn state(nameservers: &[&str], health: Health) -> DnsState {
    let nameservers: Vec<IpAddr> = nameservers.iter().map(|one| ip(one)).collect();
    DnsState {
        standing: Standing::Verified,
        judged: nameservers
            .iter()
            .map(|one| Judged {
                nameserver: *one,
                health,
                because: String::new(),
                micros: None,
                answers: Vec::new(),
            })
            .collect(),
        effective: ResolvConf {
            nameservers,
            ..ResolvConf::default()
        },
        ..DnsState::default()
    }
}

/// Numbers that differ, the same in each run.
fn numbers() -> impl FnMut() -> u64 {
    let mut last = 7u64;
    move || {
        last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        last >> 16
    }
}

fn address(text: &str, gone: bool) -> DnsChange {
    DnsChange::Address {
        address: ip(text),
        interface: "dummy0".into(),
        gone,
    }
}

#[test]
fn each_is_asked_at_most_once_a_minute_and_not_all_at_the_same_moment() {
    let (mut mind, mut random) = (mind(), numbers());
    let state = state(&["192.0.2.1", "192.0.2.2"], Health::Healthy);
    let mut asked: BTreeMap<IpAddr, Vec<Duration>> = BTreeMap::new();
    let (mut now, mut wakes) = (Duration::ZERO, 0);
    while now < MINUTE * 60 {
        mind.follow(Some(&state), now, &mut random);
        for one in mind.due(now, &mut random) {
            asked.entry(one).or_default().push(now);
        }
        assert_eq!(mind.wish(now), None);
        now += mind.rest(now).max(Duration::from_millis(1));
        wakes += 1;
    }
    assert_eq!(asked.len(), 2);
    for times in asked.values() {
        assert!(times[0] < MINUTE, "{times:?}");
        assert!(times.windows(2).all(|two| two[1] >= two[0] + MINUTE));
        assert!((45..=60).contains(&times.len()), "{}", times.len());
    }
    let firsts: Vec<Duration> = asked.values().map(|times| times[0]).collect();
    assert_ne!(firsts[0], firsts[1]);
    // Asleep otherwise.
    assert!(wakes < 200, "{wakes}");
}

#[test]
fn nobody_in_use_is_nobody_asked() {
    let (mut mind, mut random) = (mind(), numbers());
    mind.follow(None, Duration::ZERO, &mut random);
    assert_eq!(mind.due(MINUTE, &mut random), Vec::<IpAddr>::new());
    assert_eq!(mind.rest(MINUTE), MINUTE);
    let state = state(&["192.0.2.1"], Health::Healthy);
    mind.follow(Some(&state), MINUTE, &mut random);
    assert_eq!(mind.nameservers(), [ip("192.0.2.1")]);
    mind.follow(None, MINUTE, &mut random);
    assert!(mind.nameservers().is_empty());
}

#[test]
fn a_change_for_good_asks_root_once_and_one_bad_answer_does_not() {
    let (mut mind, mut random) = (mind(), numbers());
    let one = ip("192.0.2.1");
    let state = state(&["192.0.2.1"], Health::Healthy);
    mind.follow(Some(&state), Duration::ZERO, &mut random);
    for good in [false, false, true, false, false] {
        mind.heard(one, good);
        assert_eq!(mind.wish(Duration::ZERO), None);
    }
    mind.heard(one, false);
    assert!(mind.wish(Duration::ZERO).unwrap().contains("no longer answers"));
    for _ in 0..5 {
        mind.heard(one, false);
    }
    assert_eq!(mind.wish(MINUTE), None);
    for _ in 0..3 {
        mind.heard(one, true);
    }
    assert!(mind.wish(MINUTE).unwrap().contains("answers again"));
    mind.heard(ip("192.0.2.9"), true);
}

#[test]
fn an_event_asks_root_at_once_and_flapping_once_a_minute() {
    let (mut mind, mut random) = (mind(), numbers());
    let state = state(&["192.0.2.1"], Health::Healthy);
    mind.follow(Some(&state), Duration::ZERO, &mut random);
    let change = DnsChange::ResolvConf {
        path: "/etc/resolv.conf".into(),
    };
    let mut wishes = Vec::new();
    for second in 0..=245 {
        let now = Duration::from_secs(second);
        if second < 130 {
            mind.changed(&change, Some(&state));
        }
        wishes.extend(mind.wish(now).map(|_| second));
        if second == 150 {
            assert_eq!(mind.rest(now), Duration::from_secs(30).min(mind.rest(now)));
        }
    }
    // The last of them is not lost.
    assert_eq!(wishes, [0, 2, 4, 6, 8, 10, 60, 120, 180]);
}

#[test]
fn the_addresses_that_matter_are_the_nameservers_and_the_user_clusters() {
    let mut random = numbers();
    let state = state(&["192.0.2.1"], Health::Healthy);
    for (text, gone, asks) in [
        ("169.254.20.10", false, true),
        ("169.254.20.10", true, true),
        ("192.0.2.1", false, true),
        ("10.240.16.77", false, false),
    ] {
        let mut mind = mind();
        mind.follow(Some(&state), Duration::ZERO, &mut random);
        mind.changed(&address(text, gone), Some(&state));
        assert_eq!(mind.wish(Duration::ZERO).is_some(), asks, "{text}");
    }
    // Without a nameserver that answers, any address may be the network.
    let mut mind = mind();
    mind.follow(None, Duration::ZERO, &mut random);
    mind.changed(&address("10.0.0.2", true), None);
    assert_eq!(mind.wish(Duration::ZERO), None);
    mind.changed(&address("10.0.0.2", false), None);
    assert!(mind.wish(Duration::ZERO).is_some());
    let lease = DnsChange::Lease { path: "x".into() };
    mind.changed(&lease, None);
    assert_eq!(mind.wish(Duration::ZERO), None);
    assert_eq!(mind.rest(Duration::ZERO), GAP);
    assert!(mind.wish(GAP).is_some());
}

#[test]
fn one_that_is_asked_for_is_followed_until_it_answers() {
    use virtfleet_agent_core::dns::collision::{Collision, CollisionKind};
    let (mut mind, mut random) = (mind(), numbers());
    let mut now = state(&["192.0.2.1", "192.0.2.2"], Health::Healthy);
    now.standing = Standing::Differs;
    now.judged[1].health = Health::Dead;
    now.effective.nameservers.truncate(1);
    now.asked.nameservers = vec![ip("192.0.2.2"), ip("169.254.20.10")];
    now.collisions.push(Collision {
        nameserver: ip("169.254.20.10"),
        kind: CollisionKind::NodeLocal,
        now: false,
        with: String::new(),
        given_by: String::new(),
    });
    mind.follow(Some(&now), Duration::ZERO, &mut random);
    assert_eq!(mind.nameservers(), [ip("192.0.2.1"), ip("192.0.2.2")]);
    assert_eq!(mind.wish(Duration::ZERO), None);
    mind.heard(ip("192.0.2.2"), true);
    assert_eq!(mind.wish(Duration::ZERO).unwrap(), "192.0.2.2 answers again");
    now.standing = Standing::Verified;
    mind.follow(Some(&now), MINUTE, &mut random);
    assert_eq!(mind.nameservers(), [ip("192.0.2.1")]);
}

/// A day without an event, without any jitter, and a pass every 15 minutes.
#[test]
fn the_timers_passes_are_part_of_one_question_a_minute() {
    for questions in [1, 4, 11] {
        let mut mind = mind();
        let mut random = || 0;
        let mut now_state = state(&["192.0.2.1"], Health::Healthy);
        now_state.questions = BTreeMap::from([(ip("192.0.2.1"), questions)]);
        let (mut now, mut asked, mut pass) = (Duration::ZERO, 0u32, Duration::ZERO);
        while now < MINUTE * 60 * 24 {
            let mut ago = Duration::ZERO;
            if now >= pass {
                // The watch hears of it a little later.
                ago = Duration::from_millis(300).min(now);
                now_state.at_boottime_ns += 1;
                asked += questions;
                pass += MINUTE * 15;
            }
            mind.follow(Some(&now_state), now, &mut random);
            mind.count(&now_state, ago, now);
            asked += u32::try_from(mind.due(now, &mut random).len()).unwrap();
            let minutes = u32::try_from(now.as_secs() / 60).unwrap();
            assert!(asked <= minutes + 1 + questions, "{asked} in {minutes} minutes");
            now = (now + mind.rest(now).max(Duration::from_millis(1))).min(pass);
        }
        assert!((1430..=1440 + questions).contains(&asked), "{asked}");
    }
}

#[test]
fn events_do_not_make_the_watch_deaf() {
    let (mut mind, mut random) = (mind(), || 0);
    let mut now_state = state(&["192.0.2.1"], Health::Healthy);
    now_state.questions = BTreeMap::from([(ip("192.0.2.1"), 4)]);
    for minute in 0..60 {
        now_state.at_boottime_ns += 1;
        mind.follow(Some(&now_state), MINUTE * minute, &mut random);
        mind.count(&now_state, Duration::ZERO, MINUTE * minute);
    }
    assert_eq!(mind.due(MINUTE * 73, &mut random).len(), 0);
    assert_eq!(mind.due(MINUTE * 74, &mut random).len(), 1);
}

/// The boot's pass has waited half a minute, and asked in vain meanwhile.
#[test]
fn one_that_was_asked_in_vain_is_heard_within_a_minute() {
    let (mut mind, mut random) = (mind(), numbers());
    let mut broken = state(&["192.0.2.1"], Health::Dead);
    broken.standing = Standing::Broken;
    broken.questions = BTreeMap::from([(ip("192.0.2.1"), 18)]);
    broken.at_boottime_ns = 1;
    mind.follow(Some(&broken), Duration::ZERO, &mut random);
    mind.count(&broken, Duration::ZERO, Duration::ZERO);
    assert_eq!(mind.due(MINUTE, &mut random), [ip("192.0.2.1")]);
    mind.heard(ip("192.0.2.1"), true);
    assert_eq!(mind.wish(MINUTE).unwrap(), "192.0.2.1 answers again");
}

/// The guest resolves meanwhile: one answer of a cluster DNS that comes and goes is no reason to change the resolver to and fro.
#[test]
fn while_the_platforms_nameservers_stand_in_the_clusters_must_answer_three_times() {
    let cluster = ip("10.96.0.10");
    let fallen = |standing| {
        let mut state = state(&["192.0.2.1"], Health::Healthy);
        state.standing = standing;
        state.fallback = true;
        state.asked.nameservers = vec![cluster];
        state.judged.push(Judged {
            nameserver: cluster,
            health: Health::Dead,
            ..state.judged[0].clone()
        });
        let mut mind = mind();
        mind.follow(Some(&state), Duration::ZERO, &mut numbers());
        assert!(mind.nameservers().contains(&cluster));
        mind
    };
    let mut mind = fallen(Standing::Differs);
    for good in [true, true, false, true, true] {
        mind.heard(cluster, good);
        assert_eq!(mind.wish(MINUTE), None);
    }
    mind.heard(cluster, true);
    assert_eq!(mind.wish(MINUTE).unwrap(), "10.96.0.10 answers again");
    // Nobody answers any more: the first who does is needed.
    let mut mind = fallen(Standing::Broken);
    mind.heard(cluster, true);
    assert_eq!(mind.wish(MINUTE).unwrap(), "10.96.0.10 answers again");
}

#[test]
fn at_the_start_a_pass_is_asked_for_unless_all_was_well() {
    let second = Duration::from_secs;
    // When it is told: the pass was at this second, and the process began at that one.
    let told = |standing, pass: u64, began: u64| {
        let mut mind = mind();
        let mut state = state(&["192.0.2.1"], Health::Dead);
        state.standing = standing;
        state.at_boottime_ns = pass * 1_000_000_000;
        mind.start(Some(&state), second(began));
        (0..200).find(|now| mind.wish(second(*now)).is_some())
    };
    for standing in [Standing::Broken, Standing::Unknown, Standing::Differs] {
        assert_eq!(told(standing, 40, 50), Some(0));
        assert_eq!(told(standing, 40, 42), Some(8));
        assert_eq!(told(standing, 86_400, 86_402), Some(58));
    }
    assert_eq!(told(Standing::Verified, 40, 50), None);
    assert_eq!(told(Standing::Off, 40, 50), None);
    let mut mind = mind();
    mind.start(None, second(3));
    assert!(mind.wish(Duration::ZERO).is_some());
}
