use std::time::{Duration, Instant};

use virtfleet_agent_core::dns::answers::{Outcome, Purpose, Question, Transport};

use super::{
    message::garbled,
    responder::{Manner, Responder, nobody},
    *,
};

/// For those who do not answer.
const SHORT: Duration = Duration::from_millis(600);
/// For those who do: on a busy machine that takes its time.
const LONG: Duration = Duration::from_secs(20);

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

/// One question to one nameserver of that manner, by both transports.
fn both(manner: Manner) -> [Answer; 2] {
    let server = Responder::start(("127.0.0.1", 0), Some(manner), Some(manner));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let silent = matches!(
        manner,
        Manner::Silent | Manner::Garbage | Manner::WrongId | Manner::Echo
    );
    let answers = ask_at(server.port, &questions, if silent { SHORT } else { LONG });
    assert_eq!(server.asked(), 2, "each is asked once");
    answers.try_into().unwrap()
}

fn outcomes(manner: Manner) -> [Outcome; 2] {
    both(manner).map(|answer| answer.outcome)
}

#[test]
fn each_manner_of_a_nameserver_has_its_outcome() {
    let code = |code: &str| Outcome::Code {
        code: code.to_owned(),
    };
    for (manner, outcome) in [
        (Manner::Addresses(2), Outcome::Addresses { count: 2 }),
        (Manner::Addresses(0), Outcome::Addresses { count: 0 }),
        (Manner::Code(3), Outcome::NoSuchName),
        (Manner::Code(2), code("SERVFAIL")),
        (Manner::Code(5), code("REFUSED")),
        (Manner::Silent, Outcome::Timeout),
    ] {
        assert_eq!(outcomes(manner), [outcome.clone(), outcome], "{manner:?}");
    }
    for (manner, reason) in [
        (Manner::Garbage, "the id of another question"),
        (Manner::WrongId, "the id of another question"),
        (Manner::Echo, "the question itself came back"),
    ] {
        assert_eq!(outcomes(manner), [garbled(reason), garbled(reason)], "{manner:?}");
    }
}

#[test]
fn cut_off_by_udp_is_to_be_asked_by_tcp_and_by_tcp_it_is_wrong() {
    let wrong = garbled("an answer by TCP that says it was cut off");
    assert_eq!(outcomes(Manner::Cut), [Outcome::Truncated, wrong]);
}

#[test]
fn a_stranger_does_not_keep_the_answer_away() {
    let server = Responder::start(("127.0.0.1", 0), Some(Manner::WrongThenRight), None);
    let answers = ask_at(server.port, &[question("127.0.0.1", Transport::Udp)], LONG);
    assert_eq!(answers[0].outcome, Outcome::Addresses { count: 1 });
    drop(server);
    let server = Responder::start(("127.0.0.1", 0), Some(Manner::WrongSource), None);
    let answers = ask_at(server.port, &[question("127.0.0.1", Transport::Udp)], SHORT);
    assert_eq!(answers[0].outcome, Outcome::Timeout, "the kernel drops it");
}

#[test]
fn a_slow_answer_is_timed_and_a_silent_one_ends_in_time() {
    let server = Responder::start(("127.0.0.1", 0), Some(Manner::Slow(100)), Some(Manner::Drip));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let answers = ask_at(server.port, &questions, LONG);
    assert_eq!(answers[0].outcome, Outcome::Addresses { count: 1 });
    assert!(answers[0].micros >= 100_000, "{answers:?}");
    assert_eq!(
        answers[1].outcome,
        Outcome::Addresses { count: 1 },
        "by single bytes"
    );
    let before = Instant::now();
    let [silent, _] = both(Manner::Silent);
    assert!((600_000..8_000_000).contains(&silent.micros), "{silent:?}");
    assert!(before.elapsed() < LONG);
}

#[test]
fn nobody_there_is_known_at_once() {
    let (address, _held) = nobody();
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| Question {
        nameserver: address.ip(),
        zone: None,
        ..question("127.0.0.1", transport)
    });
    for answer in ask_at(address.port(), &questions, LONG) {
        assert!(
            matches!(&answer.outcome, Outcome::Unreachable { error } if error.contains("refused")),
            "{answer:?}"
        );
        assert!(answer.micros < 5_000_000, "{answer:?}");
    }
    // There is no route to it, or nobody behind the route.
    let answers = ask_at(53, &[question("ff05::1234", Transport::Tcp)], LONG);
    assert!(
        matches!(answers[0].outcome, Outcome::Unreachable { .. }),
        "{answers:?}"
    );
}

#[test]
fn tcp_only_and_a_connection_that_ends_early() {
    let server = Responder::start(("127.0.0.1", 0), None, Some(Manner::Code(3)));
    let questions = [Transport::Udp, Transport::Tcp].map(|transport| question("127.0.0.1", transport));
    let answers = ask_at(server.port, &questions, LONG);
    let found: Vec<_> = answers.iter().map(|answer| &answer.outcome).collect();
    assert_eq!(found[1], &Outcome::NoSuchName);
    assert!(matches!(found[0], Outcome::Unreachable { .. }), "{found:?}");
    drop(server);
    let server = Responder::start(("127.0.0.1", 0), None, Some(Manner::Half));
    let answers = ask_at(server.port, &[question("127.0.0.1", Transport::Tcp)], LONG);
    assert_eq!(
        answers[0].outcome,
        garbled("the connection was closed before an answer was there")
    );
}

#[test]
fn all_nameservers_are_asked_at_the_same_time() {
    let first = Responder::start(("127.0.0.11", 0), Some(Manner::Slow(500)), None);
    let others: Vec<_> = (12..20)
        .map(|last| {
            Responder::start(
                (&format!("127.0.0.{last}"), first.port),
                Some(Manner::Slow(500)),
                None,
            )
        })
        .collect();
    let mut questions: Vec<_> = (11..20)
        .map(|last| question(&format!("127.0.0.{last}"), Transport::Udp))
        .collect();
    questions.push(question("::1", Transport::Udp));
    let before = Instant::now();
    let answers = ask_at(first.port, &questions, LONG);
    assert!(
        before.elapsed() < Duration::from_millis(9 * 500),
        "{:?}",
        before.elapsed()
    );
    assert!(
        answers.iter().map(|answer| &answer.question).eq(&questions),
        "in their order"
    );
    for answer in &answers[..9] {
        assert_eq!(answer.outcome, Outcome::Addresses { count: 1 }, "{answer:?}");
    }
    drop(others);
}

#[test]
fn addresses_of_its_own_family_and_no_question_without_a_name() {
    let server = Responder::start(("::1", 0), Some(Manner::Addresses(3)), None);
    let answers = ask_at(server.port, &[question("::1", Transport::Udp)], LONG);
    assert_eq!(answers[0].outcome, Outcome::Addresses { count: 3 });
    let nameless = Question {
        name: "a..b".to_owned(),
        ..question("::1", Transport::Udp)
    };
    let answers = ask_at(server.port, &[nameless], LONG);
    assert!(matches!(&answers[0].outcome, Outcome::Garbled { reason } if reason.contains("not asked")));
    assert_eq!(server.asked(), 1);
    assert_eq!(ask_at(53, &[], LONG), []);
}

#[test]
fn ids_ports_and_labels_are_new_each_time() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let questions = vec![question("127.0.0.1", Transport::Udp); 20];
    ask(
        &questions,
        Ask {
            timeout: Duration::from_millis(20),
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
        match ask_at(53, &[question], SHORT).remove(0).outcome {
            Outcome::Unreachable { error } => error,
            Outcome::Timeout => "nobody".to_owned(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(asked("nosuch0"), "there is no interface nosuch0");
    // The loopback has no link-local address: no way there, and none that is not understood.
    for zone in ["lo", "1"] {
        assert!(
            !asked(zone).contains("Invalid argument"),
            "{zone}: {}",
            asked(zone)
        );
    }
}
