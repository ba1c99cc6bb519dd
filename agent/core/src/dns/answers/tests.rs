use super::*;
use crate::dns::fixtures::{asked, cluster_first, ip, ips, local, plain, resolved, strings};

const NS: &str = "10.96.0.10";

fn answer(nameserver: &str, transport: Transport, purpose: Purpose, outcome: QueryOutcome) -> Answer {
    let name = match purpose {
        Purpose::Random => "cluster.local",
        Purpose::Cluster => "kubernetes.default.svc.cluster.local",
        Purpose::Named => "registry.example",
    };
    Answer {
        question: Question {
            nameserver: ip(nameserver),
            zone: None,
            transport,
            purpose,
            name: name.to_owned(),
        },
        outcome,
        micros: 700,
    }
}

fn addresses(count: usize) -> QueryOutcome {
    QueryOutcome::Addresses { count }
}

fn code(code: &str) -> QueryOutcome {
    QueryOutcome::Code {
        code: code.to_owned(),
    }
}

fn unreachable() -> QueryOutcome {
    QueryOutcome::Unreachable {
        error: "connection refused".to_owned(),
    }
}

fn garbled(reason: &str) -> QueryOutcome {
    QueryOutcome::Garbled {
        reason: reason.to_owned(),
    }
}

/// Random name over UDP, random name over TCP, the cluster's name over UDP, another name over UDP.
fn four(udp: QueryOutcome, tcp: QueryOutcome, cluster: QueryOutcome, named: QueryOutcome) -> Vec<Answer> {
    vec![
        answer(NS, Transport::Udp, Purpose::Random, udp),
        answer(NS, Transport::Tcp, Purpose::Random, tcp),
        answer(NS, Transport::Udp, Purpose::Cluster, cluster),
        answer(NS, Transport::Udp, Purpose::Named, named),
    ]
}

fn health_of(asked: &Asked, seen: &Seen, answers: &[Answer]) -> Health {
    let judged = judge(asked, seen, answers);
    assert_eq!(judged.len(), 1);
    assert!(!judged[0].because.is_empty());
    judged[0].health
}

#[test]
fn health_follows_from_answers() {
    use QueryOutcome::{NoSuchName as No, Timeout, Truncated};
    let table = [
        (Health::Healthy, four(No, No, addresses(1), addresses(2))),
        // Some servers answer NOERROR without addresses instead of NXDOMAIN.
        (
            Health::Healthy,
            four(addresses(0), No, addresses(1), addresses(2)),
        ),
        // One datagram was lost.
        (Health::Healthy, four(Timeout, No, addresses(1), addresses(2))),
        (Health::Healthy, four(No, No, Truncated, Truncated)),
        (Health::NoTcp, four(No, unreachable(), addresses(1), addresses(2))),
        (Health::NoTcp, four(No, Timeout, addresses(1), addresses(2))),
        (Health::TcpOnly, four(Timeout, No, Timeout, Timeout)),
        (
            Health::TcpOnly,
            four(unreachable(), No, unreachable(), unreachable()),
        ),
        (Health::TcpOnly, four(Truncated, No, Truncated, Truncated)),
        (Health::Lying, four(addresses(1), No, addresses(1), addresses(2))),
        (Health::Lying, four(No, addresses(1), addresses(1), addresses(2))),
        // It should know the cluster, but does not.
        (Health::Incomplete, four(No, No, No, addresses(2))),
        (Health::Incomplete, four(No, No, addresses(0), addresses(2))),
        (Health::Incomplete, four(No, No, addresses(1), code("SERVFAIL"))),
        (Health::Incomplete, four(No, No, addresses(1), Timeout)),
        (
            Health::Incomplete,
            four(code("REFUSED"), code("REFUSED"), addresses(1), addresses(2)),
        ),
        (
            Health::Failing,
            four(code("SERVFAIL"), code("SERVFAIL"), code("SERVFAIL"), Timeout),
        ),
        (
            Health::Failing,
            four(code("REFUSED"), Timeout, code("REFUSED"), code("REFUSED")),
        ),
        (Health::Failing, four(Truncated, Timeout, Truncated, Truncated)),
        (
            Health::Failing,
            four(garbled("id"), Timeout, garbled("id"), garbled("id")),
        ),
        (Health::Dead, four(Timeout, Timeout, Timeout, Timeout)),
        (
            Health::Dead,
            four(unreachable(), unreachable(), unreachable(), Timeout),
        ),
        (
            Health::Looping,
            four(garbled(ECHO), Timeout, garbled(ECHO), Timeout),
        ),
    ];
    for (expected, answers) in table {
        assert_eq!(
            health_of(&cluster_first(), &plain("", ""), &answers),
            expected,
            "{answers:?}"
        );
    }
}

#[test]
fn slow_depends_on_the_fastest_answer() {
    let mut answers = four(
        QueryOutcome::NoSuchName,
        QueryOutcome::NoSuchName,
        addresses(1),
        addresses(1),
    );
    for answer in &mut answers {
        answer.micros = SLOW_MICROS + 1;
    }
    assert_eq!(
        health_of(&cluster_first(), &plain("", ""), &answers),
        Health::Slow
    );
    answers[2].micros = SLOW_MICROS;
    let judged = judge(&cluster_first(), &plain("", ""), &answers);
    assert_eq!(
        (judged[0].health, judged[0].micros),
        (Health::Healthy, Some(SLOW_MICROS))
    );
    let silent = judge(
        &asked(),
        &plain("", ""),
        &four(
            QueryOutcome::Timeout,
            QueryOutcome::Timeout,
            QueryOutcome::Timeout,
            QueryOutcome::Timeout,
        ),
    );
    assert_eq!(silent[0].micros, None);
}

#[test]
fn only_cluster_nameservers_must_know_the_cluster() {
    let answers = four(
        QueryOutcome::NoSuchName,
        QueryOutcome::NoSuchName,
        QueryOutcome::NoSuchName,
        addresses(1),
    );
    assert_eq!(health_of(&asked(), &plain("", ""), &answers), Health::Healthy);
    let mut other = cluster_first();
    other.cluster_nameservers = ips("10.96.0.99");
    assert_eq!(health_of(&other, &plain("", ""), &answers), Health::Healthy);
}

#[test]
fn loop_needs_local_address_listener_and_forwarding() {
    let asked = asked();
    let vain = |nameserver: &str| {
        vec![
            answer(nameserver, Transport::Udp, Purpose::Random, QueryOutcome::Timeout),
            answer(nameserver, Transport::Tcp, Purpose::Random, unreachable()),
            // The user cluster's cache knows its own cluster without forwarding.
            answer(nameserver, Transport::Udp, Purpose::Cluster, addresses(1)),
        ]
    };
    let cache = "169.254.20.10";
    let mut seen = resolved(cache, "");
    assert_eq!(health_of(&asked, &seen, &vain(cache)[..2]), Health::Dead);
    seen.locals.push(local(cache, "nodelocaldns"));
    assert_eq!(health_of(&asked, &seen, &vain(cache)[..2]), Health::Dead);
    seen.listeners.push(ip(cache));
    assert_eq!(health_of(&asked, &seen, &vain(cache)), Health::Looping);
    let mut failing = vain(cache);
    failing[0].outcome = code("SERVFAIL");
    assert_eq!(health_of(&asked, &seen, &failing), Health::Looping);
    // It answers, so it is not a loop.
    failing[0].outcome = QueryOutcome::NoSuchName;
    assert_eq!(health_of(&asked, &seen, &failing), Health::NoTcp);
    // The guest does not forward to it.
    let mut elsewhere = resolved("10.0.0.1", "");
    elsewhere.locals.push(local(cache, "nodelocaldns"));
    elsewhere.listeners.push(ip(cache));
    assert_eq!(health_of(&asked, &elsewhere, &vain(cache)[..2]), Health::Dead);
    // A resolver of the guest with dead upstreams is not a loop.
    let mut own = plain("127.0.0.1", "");
    own.links.clear();
    own.listeners = ips("127.0.0.1");
    assert_eq!(health_of(&asked, &own, &vain("127.0.0.1")[..2]), Health::Dead);
    // The stub of the forwarding resolver is one.
    assert_eq!(
        health_of(&asked, &resolved("127.0.0.53", ""), &vain("127.0.0.53")[..2]),
        Health::Looping
    );
}

#[test]
fn all_nameservers_get_equal_queries_in_order() {
    let mut asked = cluster_first();
    asked.probe_names = strings("registry.example");
    let questions = questions(&asked, &ips("10.0.0.2 10.0.0.1"));
    let lines: Vec<String> = questions
        .iter()
        .map(|one| {
            format!(
                "{} {:?} {:?} {}",
                one.nameserver, one.transport, one.purpose, one.name
            )
        })
        .collect();
    assert_eq!(
        lines[..4],
        [
            "10.0.0.2 Udp Random cluster.local",
            "10.0.0.2 Tcp Random cluster.local",
            "10.0.0.2 Udp Cluster kubernetes.default.svc.cluster.local",
            "10.0.0.2 Udp Named registry.example",
        ]
    );
    assert_eq!(lines.len(), 8);
    let answers: Vec<Answer> = questions
        .into_iter()
        .map(|question| Answer {
            question,
            outcome: addresses(0),
            micros: 1,
        })
        .collect();
    let order: Vec<IpAddr> = judge(&asked, &plain("", ""), &answers)
        .iter()
        .map(|one| one.nameserver)
        .collect();
    assert_eq!(order, ips("10.0.0.2 10.0.0.1"));
}

#[test]
fn periodic_probe_is_one_query_in_the_cluster_domain() {
    let question = periodic_question(&cluster_first(), ip(NS));
    assert_eq!(
        (question.transport, question.purpose),
        (Transport::Udp, Purpose::Random)
    );
    assert_eq!(question.name, "cluster.local");
    // A name that the user cluster's cache forwards shows a loop. Its own domain may have the same
    // name.
    assert_eq!(periodic_question(&asked(), ip("169.254.20.10")).name, "example");
    let mut none = asked();
    none.cluster_domain.clear();
    assert_eq!(periodic_question(&none, ip(NS)).name, "invalid");
    assert_eq!(questions(&none, &ips(NS)).len(), 2);
}

#[test]
fn nameserver_failing_only_for_the_cluster_works() {
    let (asked, seen) = (asked(), resolved("10.0.0.1", ""));
    let failed = || QueryOutcome::Code {
        code: "SERVFAIL".to_owned(),
    };
    let answer = |question: Question, outcome| Answer {
        question,
        outcome,
        micros: 900,
    };
    let mut answers: Vec<Answer> = questions(&asked, &ips("10.0.0.1"))
        .into_iter()
        .map(|question| answer(question, failed()))
        .collect();
    let first = judge(&asked, &seen, &answers);
    assert_eq!(first[0].health, Health::Failing);
    let more = error_questions(&asked, &first);
    assert_eq!((more.len(), more[0].name.as_str()), (1, "invalid"));
    let mut still = answers.clone();
    still.push(answer(more[0].clone(), failed()));
    assert_eq!(judge(&asked, &seen, &still)[0].health, Health::Failing);
    answers.push(answer(more[0].clone(), QueryOutcome::NoSuchName));
    let judged = judge(&asked, &seen, &answers);
    assert_eq!(judged[0].health, Health::Incomplete);
    assert!(
        judged[0].because.contains("below cluster.local: SERVFAIL"),
        "{}",
        judged[0].because
    );
    assert!(error_questions(&asked, &judged).is_empty());
    // The cluster's own nameserver must know the cluster.
    let mut first = cluster_first();
    first.cluster_nameservers = ips("10.0.0.1");
    let failing = [crate::dns::fixtures::judged("10.0.0.1", Health::Failing)];
    assert!(error_questions(&first, &failing).is_empty());
}

#[test]
fn link_local_nameservers_are_probed_through_their_interface() {
    use crate::dns::{fixtures::resolved, plan};
    let mut seen = resolved("10.0.0.1", "");
    // networkd reports no interface, systemd-resolved its index.
    seen.upstreams = Some("nameserver fe80::1%2\nnameserver 10.0.0.1\n".to_owned());
    seen.told.nameservers.push(ip("fe80::1"));
    let zones = plan::zones(&asked(), &seen);
    assert_eq!(zones[&ip("fe80::1")], "eth0");
    let all = by_interface(questions(&asked(), &ips("fe80::1 10.0.0.1")), &zones);
    for question in &all {
        let expected = question.nameserver.is_ipv6().then_some("eth0");
        assert_eq!(question.zone.as_deref(), expected);
    }
    // A link-local nameserver that answers is used like any other.
    let plan = plan::plan(&asked(), &seen, &crate::dns::fixtures::healthy("fe80::1"));
    let choice = plan.choice.unwrap();
    assert_eq!(choice.conf().shown_nameservers(), ["fe80::1%eth0", "10.0.0.1"]);
}
