use std::time::{Duration, Instant};

use virtfleet_agent_core::dns::answers::{Purpose, QueryOutcome, Question, Transport};

use super::{
    message::malformed_answer,
    responder::{Behavior, Responder, closed_port},
    *,
};

/// Timeout for nameservers that do not answer.
const TIMEOUT_UNANSWERED: Duration = Duration::from_secs(3);
/// Timeout for nameservers that answer; generous for a busy machine.
const TIMEOUT_ANSWERED: Duration = Duration::from_secs(20);

fn question(nameserver: &str, transport: Transport) -> Question {
    Question {
        nameserver: nameserver.parse().unwrap(),
        zone: None,
        transport,
        purpose: Purpose::Random,
        name: "cluster.local".to_owned(),
    }
}

fn ask_at(port: u16, questions: &[Question], timeout: Duration) -> Vec<Answer> {
    ask(
        questions,
        Ask {
            timeout,
            port,
            random: &mut random_bytes,
        },
    )
}

/// One query over each transport to a nameserver of that behavior.
fn both(behavior: Behavior) -> [Answer; 2] {
    let server = Responder::start(("127.0.0.1", 0), Some(behavior), Some(behavior));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let unanswered = matches!(
        behavior,
        Behavior::Silent | Behavior::Garbage | Behavior::WrongId | Behavior::Echo
    );
    let answers = ask_at(
        server.port,
        &questions,
        if unanswered {
            TIMEOUT_UNANSWERED
        } else {
            TIMEOUT_ANSWERED
        },
    );
    assert_eq!(server.asked(), 2, "each query is sent once");
    answers.try_into().unwrap()
}

fn outcomes(behavior: Behavior) -> [QueryOutcome; 2] {
    both(behavior).map(|answer| answer.outcome)
}

#[test]
fn each_behavior_of_a_nameserver_has_its_outcome() {
    let code = |code: &str| QueryOutcome::Code {
        code: code.to_owned(),
    };
    for (behavior, outcome) in [
        (Behavior::Addresses(2), QueryOutcome::Addresses { count: 2 }),
        (Behavior::Addresses(0), QueryOutcome::Addresses { count: 0 }),
        (Behavior::Code(3), QueryOutcome::NoSuchName),
        (Behavior::Code(2), code("SERVFAIL")),
        (Behavior::Code(5), code("REFUSED")),
        (Behavior::Silent, QueryOutcome::Timeout),
    ] {
        assert_eq!(outcomes(behavior), [outcome.clone(), outcome], "{behavior:?}");
    }
    for (behavior, reason) in [
        (Behavior::Garbage, "the id of another query"),
        (Behavior::WrongId, "the id of another query"),
        (Behavior::Echo, "the question itself came back"),
    ] {
        assert_eq!(
            outcomes(behavior),
            [malformed_answer(reason), malformed_answer(reason)],
            "{behavior:?}"
        );
    }
}

#[test]
fn truncation_is_reported_over_udp_and_malformed_over_tcp() {
    let wrong = malformed_answer("a truncated answer over TCP");
    assert_eq!(outcomes(Behavior::Cut), [QueryOutcome::Truncated, wrong]);
}

#[test]
fn an_unrelated_message_does_not_prevent_the_answer() {
    let server = Responder::start(("127.0.0.1", 0), Some(Behavior::WrongThenRight), None);
    let answers = ask_at(
        server.port,
        &[question("127.0.0.1", Transport::Udp)],
        TIMEOUT_ANSWERED,
    );
    assert_eq!(answers[0].outcome, QueryOutcome::Addresses { count: 1 });
    drop(server);
    let server = Responder::start(("127.0.0.1", 0), Some(Behavior::WrongSource), None);
    let answers = ask_at(
        server.port,
        &[question("127.0.0.1", Transport::Udp)],
        TIMEOUT_UNANSWERED,
    );
    assert_eq!(
        answers[0].outcome,
        QueryOutcome::Timeout,
        "the kernel drops the message"
    );
}

#[test]
fn a_slow_answer_is_timed_and_a_missing_one_times_out() {
    let server = Responder::start(("127.0.0.1", 0), Some(Behavior::Slow(100)), Some(Behavior::Drip));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let answers = ask_at(server.port, &questions, TIMEOUT_ANSWERED);
    assert_eq!(answers[0].outcome, QueryOutcome::Addresses { count: 1 });
    assert!(answers[0].micros >= 100_000, "{answers:?}");
    assert_eq!(
        answers[1].outcome,
        QueryOutcome::Addresses { count: 1 },
        "byte by byte"
    );
    let before = Instant::now();
    let [unanswered, _] = both(Behavior::Silent);
    assert!(
        (3_000_000..20_000_000).contains(&unanswered.micros),
        "{unanswered:?}"
    );
    assert!(before.elapsed() < TIMEOUT_ANSWERED);
}

#[test]
fn a_closed_port_is_reported_at_once() {
    let (address, _held) = closed_port();
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| Question {
        nameserver: address.ip(),
        zone: None,
        ..question("127.0.0.1", transport)
    });
    for answer in ask_at(address.port(), &questions, TIMEOUT_ANSWERED) {
        assert!(
            matches!(&answer.outcome, QueryOutcome::Unreachable { error } if error.contains("refused")),
            "{answer:?}"
        );
        assert!(answer.micros < 5_000_000, "{answer:?}");
    }
    // No route, or no host behind the route.
    let answers = ask_at(53, &[question("ff05::1234", Transport::Tcp)], TIMEOUT_ANSWERED);
    assert!(
        matches!(answers[0].outcome, QueryOutcome::Unreachable { .. }),
        "{answers:?}"
    );
}

#[test]
fn tcp_only_and_an_early_close() {
    let server = Responder::start(("127.0.0.1", 0), None, Some(Behavior::Code(3)));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let answers = ask_at(server.port, &questions, TIMEOUT_ANSWERED);
    let found: Vec<_> = answers.iter().map(|answer| &answer.outcome).collect();
    assert_eq!(found[1], &QueryOutcome::NoSuchName);
    assert!(matches!(found[0], QueryOutcome::Unreachable { .. }), "{found:?}");
    drop(server);
    let server = Responder::start(("127.0.0.1", 0), None, Some(Behavior::Half));
    let answers = ask_at(
        server.port,
        &[question("127.0.0.1", Transport::Tcp)],
        TIMEOUT_ANSWERED,
    );
    assert_eq!(
        answers[0].outcome,
        malformed_answer("the connection was closed before the answer was complete")
    );
}

#[test]
fn all_nameservers_are_queried_concurrently() {
    let first = Responder::start(("127.0.0.11", 0), Some(Behavior::Slow(500)), None);
    let others: Vec<_> = (12..20)
        .map(|last| {
            Responder::start(
                (&format!("127.0.0.{last}"), first.port),
                Some(Behavior::Slow(500)),
                None,
            )
        })
        .collect();
    let mut questions: Vec<_> = (11..20)
        .map(|last| question(&format!("127.0.0.{last}"), Transport::Udp))
        .collect();
    questions.push(question("::1", Transport::Udp));
    let before = Instant::now();
    let answers = ask_at(first.port, &questions, TIMEOUT_ANSWERED);
    assert!(
        before.elapsed() < Duration::from_millis(9 * 500),
        "{:?}",
        before.elapsed()
    );
    assert!(
        answers.iter().map(|answer| &answer.question).eq(&questions),
        "in the order of the questions"
    );
    for answer in &answers[..9] {
        assert_eq!(answer.outcome, QueryOutcome::Addresses { count: 1 }, "{answer:?}");
    }
    drop(others);
}

#[test]
fn the_query_asks_for_the_nameservers_family_and_needs_a_valid_name() {
    let server = Responder::start(("::1", 0), Some(Behavior::Addresses(3)), None);
    let answers = ask_at(server.port, &[question("::1", Transport::Udp)], TIMEOUT_ANSWERED);
    assert_eq!(answers[0].outcome, QueryOutcome::Addresses { count: 3 });
    let nameless = Question {
        name: "a..b".to_owned(),
        ..question("::1", Transport::Udp)
    };
    let answers = ask_at(server.port, &[nameless], TIMEOUT_ANSWERED);
    assert!(
        matches!(&answers[0].outcome, QueryOutcome::Garbled { reason } if reason.contains("not queried"))
    );
    assert_eq!(server.asked(), 1);
    assert_eq!(ask_at(53, &[], TIMEOUT_ANSWERED), []);
}

#[test]
fn ids_ports_and_labels_differ_between_queries() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let questions = vec![question("127.0.0.1", Transport::Udp); 20];
    ask(
        &questions,
        Ask {
            timeout: Duration::from_secs(1),
            port,
            random: &mut random_bytes,
        },
    );
    let (mut ids, mut ports, mut names) = (vec![], vec![], vec![]);
    let mut buffer = [0; 512];
    server.set_nonblocking(true).unwrap();
    while let Ok((length, from)) = server.recv_from(&mut buffer) {
        ids.push(buffer[..2].to_vec());
        names.push(buffer[12..length].to_vec());
        ports.push(from.port());
    }
    assert_eq!(ids.len(), 20);
    ids.sort();
    ids.dedup();
    names.sort();
    names.dedup();
    ports.sort_unstable();
    ports.dedup();
    assert!(
        ids.len() >= 19 && names.len() == 20 && ports.len() >= 15,
        "{ids:?} {ports:?}"
    );
}

#[test]
fn an_interface_is_part_of_the_address() {
    let asked = |zone: &str| {
        let question = Question {
            zone: Some(zone.to_owned()),
            ..question("fe80::1", Transport::Udp)
        };
        match ask_at(53, &[question], TIMEOUT_UNANSWERED).remove(0).outcome {
            QueryOutcome::Unreachable { error } => error,
            QueryOutcome::Timeout => "closed_port".to_owned(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(asked("nosuch0"), "no such interface: nosuch0");
    // The loopback has no link-local address: the connection fails, but the zone is accepted.
    for zone in ["lo", "1"] {
        assert!(
            !asked(zone).contains("Invalid argument"),
            "{zone}: {}",
            asked(zone)
        );
    }
}
