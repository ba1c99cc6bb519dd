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

fn scheduler() -> ProbeScheduler {
    ProbeScheduler::new(&virtfleet_agent_core::dns::asked::check(&DnsSettings::default(), None).unwrap())
}

fn state(nameservers: &[&str], health: Health) -> DnsState {
    let nameservers: Vec<IpAddr> = nameservers.iter().map(|one| ip(one)).collect();
    DnsState {
        standing: DnsStatus::Verified,
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
fn each_nameserver_is_probed_at_most_once_a_minute_and_at_its_own_time() {
    let (mut scheduler, mut random) = (scheduler(), numbers());
    let state = state(&["192.0.2.1", "192.0.2.2"], Health::Healthy);
    let mut asked: BTreeMap<IpAddr, Vec<Duration>> = BTreeMap::new();
    let (mut now, mut wakes) = (Duration::ZERO, 0);
    while now < MINUTE * 60 {
        scheduler.update_targets(Some(&state), now, &mut random);
        for one in scheduler.take_due(now, &mut random) {
            asked.entry(one).or_default().push(now);
        }
        assert_eq!(scheduler.take_request(now), None);
        now += scheduler.time_to_next(now).max(Duration::from_millis(1));
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
    // It sleeps otherwise.
    assert!(wakes < 200, "{wakes}");
}

#[test]
fn without_a_nameserver_in_use_nothing_is_probed() {
    let (mut scheduler, mut random) = (scheduler(), numbers());
    scheduler.update_targets(None, Duration::ZERO, &mut random);
    assert_eq!(scheduler.take_due(MINUTE, &mut random), Vec::<IpAddr>::new());
    assert_eq!(scheduler.time_to_next(MINUTE), MINUTE);
    let state = state(&["192.0.2.1"], Health::Healthy);
    scheduler.update_targets(Some(&state), MINUTE, &mut random);
    assert_eq!(scheduler.nameservers(), [ip("192.0.2.1")]);
    scheduler.update_targets(None, MINUTE, &mut random);
    assert!(scheduler.nameservers().is_empty());
}

#[test]
fn three_equal_results_request_one_run_and_one_bad_result_requests_none() {
    let (mut scheduler, mut random) = (scheduler(), numbers());
    let one = ip("192.0.2.1");
    let state = state(&["192.0.2.1"], Health::Healthy);
    scheduler.update_targets(Some(&state), Duration::ZERO, &mut random);
    for good in [false, false, true, false, false] {
        scheduler.record_result(one, good);
        assert_eq!(scheduler.take_request(Duration::ZERO), None);
    }
    scheduler.record_result(one, false);
    assert!(
        scheduler
            .take_request(Duration::ZERO)
            .unwrap()
            .contains("no longer answers")
    );
    for _ in 0..5 {
        scheduler.record_result(one, false);
    }
    assert_eq!(scheduler.take_request(MINUTE), None);
    for _ in 0..3 {
        scheduler.record_result(one, true);
    }
    assert!(scheduler.take_request(MINUTE).unwrap().contains("answers again"));
    scheduler.record_result(ip("192.0.2.9"), true);
}

#[test]
fn an_event_requests_a_run_at_once_and_flapping_once_a_minute() {
    let (mut scheduler, mut random) = (scheduler(), numbers());
    let state = state(&["192.0.2.1"], Health::Healthy);
    scheduler.update_targets(Some(&state), Duration::ZERO, &mut random);
    let change = DnsChange::ResolvConf {
        path: "/etc/resolv.conf".into(),
    };
    let mut requests = Vec::new();
    for second in 0..=245 {
        let now = Duration::from_secs(second);
        if second < 130 {
            scheduler.record_change(&change, Some(&state));
        }
        requests.extend(scheduler.take_request(now).map(|_| second));
        if second == 150 {
            assert_eq!(
                scheduler.time_to_next(now),
                Duration::from_secs(30).min(scheduler.time_to_next(now))
            );
        }
    }
    // The last event is not lost.
    assert_eq!(requests, [0, 2, 4, 6, 8, 10, 60, 120, 180]);
}

#[test]
fn only_addresses_of_nameservers_and_of_the_user_cluster_request_a_run() {
    let mut random = numbers();
    let state = state(&["192.0.2.1"], Health::Healthy);
    for (text, gone, requests) in [
        ("169.254.20.10", false, true),
        ("169.254.20.10", true, true),
        ("192.0.2.1", false, true),
        ("10.240.16.77", false, false),
    ] {
        let mut scheduler = scheduler();
        scheduler.update_targets(Some(&state), Duration::ZERO, &mut random);
        scheduler.record_change(&address(text, gone), Some(&state));
        assert_eq!(
            scheduler.take_request(Duration::ZERO).is_some(),
            requests,
            "{text}"
        );
    }
    // Without a working nameserver, any new address may be the network.
    let mut scheduler = scheduler();
    scheduler.update_targets(None, Duration::ZERO, &mut random);
    scheduler.record_change(&address("10.0.0.2", true), None);
    assert_eq!(scheduler.take_request(Duration::ZERO), None);
    scheduler.record_change(&address("10.0.0.2", false), None);
    assert!(scheduler.take_request(Duration::ZERO).is_some());
    let lease = DnsChange::Lease { path: "x".into() };
    scheduler.record_change(&lease, None);
    assert_eq!(scheduler.take_request(Duration::ZERO), None);
    assert_eq!(scheduler.time_to_next(Duration::ZERO), COALESCE_WINDOW);
    assert!(scheduler.take_request(COALESCE_WINDOW).is_some());
}

#[test]
fn a_requested_nameserver_is_probed_until_it_answers() {
    use virtfleet_agent_core::dns::collision::{Collision, CollisionKind};
    let (mut scheduler, mut random) = (scheduler(), numbers());
    let mut now = state(&["192.0.2.1", "192.0.2.2"], Health::Healthy);
    now.standing = DnsStatus::Differs;
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
    scheduler.update_targets(Some(&now), Duration::ZERO, &mut random);
    assert_eq!(scheduler.nameservers(), [ip("192.0.2.1"), ip("192.0.2.2")]);
    assert_eq!(scheduler.take_request(Duration::ZERO), None);
    scheduler.record_result(ip("192.0.2.2"), true);
    assert_eq!(
        scheduler.take_request(Duration::ZERO).unwrap(),
        "192.0.2.2 answers again"
    );
    now.standing = DnsStatus::Verified;
    scheduler.update_targets(Some(&now), MINUTE, &mut random);
    assert_eq!(scheduler.nameservers(), [ip("192.0.2.1")]);
}

/// A day without events or jitter, with a reconcile run every 15 minutes.
#[test]
fn the_probes_of_the_timers_runs_count_towards_one_a_minute() {
    for questions in [1, 4, 11] {
        let mut scheduler = scheduler();
        let mut random = || 0;
        let mut now_state = state(&["192.0.2.1"], Health::Healthy);
        now_state.questions = BTreeMap::from([(ip("192.0.2.1"), questions)]);
        let (mut now, mut asked, mut pass) = (Duration::ZERO, 0u32, Duration::ZERO);
        while now < MINUTE * 60 * 24 {
            let mut ago = Duration::ZERO;
            if now >= pass {
                // The watch reads the state a little later.
                ago = Duration::from_millis(300).min(now);
                now_state.at_boottime_ns += 1;
                asked += questions;
                pass += MINUTE * 15;
            }
            scheduler.update_targets(Some(&now_state), now, &mut random);
            scheduler.record_run(&now_state, ago, now);
            asked += u32::try_from(scheduler.take_due(now, &mut random).len()).unwrap();
            let minutes = u32::try_from(now.as_secs() / 60).unwrap();
            assert!(asked <= minutes + 1 + questions, "{asked} in {minutes} minutes");
            now = (now + scheduler.time_to_next(now).max(Duration::from_millis(1))).min(pass);
        }
        assert!((1430..=1440 + questions).contains(&asked), "{asked}");
    }
}

#[test]
fn events_do_not_silence_the_watch() {
    let (mut scheduler, mut random) = (scheduler(), || 0);
    let mut now_state = state(&["192.0.2.1"], Health::Healthy);
    now_state.questions = BTreeMap::from([(ip("192.0.2.1"), 4)]);
    for minute in 0..60 {
        now_state.at_boottime_ns += 1;
        scheduler.update_targets(Some(&now_state), MINUTE * minute, &mut random);
        scheduler.record_run(&now_state, Duration::ZERO, MINUTE * minute);
    }
    assert_eq!(scheduler.take_due(MINUTE * 73, &mut random).len(), 0);
    assert_eq!(scheduler.take_due(MINUTE * 74, &mut random).len(), 1);
}

/// The run at boot waited half a minute and probed without an answer.
#[test]
fn a_nameserver_that_was_silent_at_boot_is_noticed_within_a_minute() {
    let (mut scheduler, mut random) = (scheduler(), numbers());
    let mut broken = state(&["192.0.2.1"], Health::Dead);
    broken.standing = DnsStatus::Broken;
    broken.questions = BTreeMap::from([(ip("192.0.2.1"), 18)]);
    broken.at_boottime_ns = 1;
    scheduler.update_targets(Some(&broken), Duration::ZERO, &mut random);
    scheduler.record_run(&broken, Duration::ZERO, Duration::ZERO);
    assert_eq!(scheduler.take_due(MINUTE, &mut random), [ip("192.0.2.1")]);
    scheduler.record_result(ip("192.0.2.1"), true);
    assert_eq!(scheduler.take_request(MINUTE).unwrap(), "192.0.2.1 answers again");
}

/// A run found the second of two nameservers dead, and the watch did not see it fail: the finding
/// must not stay until the timer's next run.
#[test]
fn the_return_of_a_nameserver_that_only_the_run_saw_dead_is_noticed_after_three_answers() {
    for seed in 0..50 {
        let (mut scheduler, mut random) = (scheduler(), numbers());
        for _ in 0..seed {
            random();
        }
        let mut now_state = state(&["192.0.2.1", "192.0.2.2"], Health::Healthy);
        scheduler.update_targets(Some(&now_state), Duration::ZERO, &mut random);
        let dead_at = MINUTE * 30;
        now_state.judged[1].health = Health::Dead;
        now_state.at_boottime_ns = 1;
        now_state.questions = BTreeMap::from([(ip("192.0.2.1"), 4), (ip("192.0.2.2"), 8)]);
        scheduler.take_due(dead_at, &mut random);
        let (mut now, mut request) = (dead_at, None);
        while request.is_none() && now < dead_at + MINUTE * 15 {
            scheduler.update_targets(Some(&now_state), now, &mut random);
            scheduler.record_run(&now_state, Duration::ZERO, now);
            for one in scheduler.take_due(now, &mut random) {
                scheduler.record_result(one, true);
            }
            request = scheduler.take_request(now);
            now += Duration::from_secs(1);
        }
        assert_eq!(request.unwrap(), "192.0.2.2 answers again");
        let took = now.checked_sub(dead_at).unwrap();
        assert!((MINUTE * 3..=MINUTE * 4).contains(&took), "{took:?}");
    }
}

/// The guest resolves names meanwhile, so one answer of a flapping cluster DNS must not change the
/// resolver.
#[test]
fn during_fallback_the_cluster_dns_must_answer_three_times() {
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
        let mut scheduler = scheduler();
        scheduler.update_targets(Some(&state), Duration::ZERO, &mut numbers());
        assert!(scheduler.nameservers().contains(&cluster));
        scheduler
    };
    let mut scheduler = fallen(DnsStatus::Differs);
    for good in [true, true, false, true, true] {
        scheduler.record_result(cluster, good);
        assert_eq!(scheduler.take_request(MINUTE), None);
    }
    scheduler.record_result(cluster, true);
    assert_eq!(
        scheduler.take_request(MINUTE).unwrap(),
        "10.96.0.10 answers again"
    );
    // No nameserver answers: the first answer is enough.
    let mut scheduler = fallen(DnsStatus::Broken);
    scheduler.record_result(cluster, true);
    assert_eq!(
        scheduler.take_request(MINUTE).unwrap(),
        "10.96.0.10 answers again"
    );
}

#[test]
fn a_run_is_requested_at_the_start_unless_all_was_in_order() {
    let second = Duration::from_secs;
    // Second of the request; the last run was at second `run`, the process began at second `began`.
    let requested = |standing, run: u64, began: u64| {
        let mut scheduler = scheduler();
        let mut state = state(&["192.0.2.1"], Health::Dead);
        state.standing = standing;
        state.at_boottime_ns = run * 1_000_000_000;
        scheduler.request_at_start(Some(&state), second(began));
        (0..200).find(|now| scheduler.take_request(second(*now)).is_some())
    };
    for standing in [DnsStatus::Broken, DnsStatus::Unknown, DnsStatus::Differs] {
        assert_eq!(requested(standing, 40, 50), Some(0));
        assert_eq!(requested(standing, 40, 42), Some(8));
        assert_eq!(requested(standing, 86_400, 86_402), Some(58));
    }
    assert_eq!(requested(DnsStatus::Verified, 40, 50), None);
    assert_eq!(requested(DnsStatus::Off, 40, 50), None);
    let mut scheduler = scheduler();
    scheduler.request_at_start(None, second(3));
    assert!(scheduler.take_request(Duration::ZERO).is_some());
}
