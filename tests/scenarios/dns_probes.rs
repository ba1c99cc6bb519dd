//! Nameservers as they are in the field, good and bad, asked by the agent's own code: each is seen
//! for what it is, within the deadline, and with no packet more than there are questions.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use virtfleet_agent_core::dns::{
    Asked, Seen,
    answers::{ECHO, Health, Judged, QueryOutcome, Transport, judge, questions},
    asked::check,
    seen::{File, Local},
};
use virtfleet_agent_host::dns::{Ask, ask, random_bytes};
use virtfleet_tests::{
    dns::{NetNs, Reply, Resolver, Responder, Sent, Unbound, needs, veth},
    skip,
    wait::{eventually, until},
};
use virtfleet_wire::settings::DnsSettings;

const TIER: u8 = 2;
const TIMEOUT: Duration = Duration::from_secs(3);
/// What polling and this machine may add to the deadline. Three nameservers one after the other
/// would take longer than both.
const MARGIN: Duration = Duration::from_secs(5);
/// Correct answer without a delay.
const IMMEDIATE_REPLY: Reply = Reply::Right(Duration::ZERO);

fn asked() -> Result<Asked> {
    check(&DnsSettings::default(), None).map_err(|problems| anyhow!("{problems:?}"))
}

/// Asks all at the same time, in the namespace: how each is, how long all of it took, and what was
/// sent.
fn probe(from: &NetNs, seen: &Seen, nameservers: &[IpAddr]) -> Result<(Vec<Judged>, Duration, Sent)> {
    let asked = asked()?;
    let questions = questions(&asked, nameservers);
    let before = from.sent()?;
    let (answers, took) = from.run(|| {
        let begun = Instant::now();
        let how = Ask {
            timeout: TIMEOUT,
            port: 53,
            random: &mut random_bytes,
        };
        let answers = ask(&questions, how);
        (answers, begun.elapsed())
    })?;
    let after = from.sent()?;
    let sent = Sent {
        datagrams: after.datagrams - before.datagrams,
        connections: after.connections - before.connections,
    };
    Ok((judge(&asked, seen, &answers), took, sent))
}

fn count(nameservers: &[IpAddr]) -> Result<Sent> {
    let questions = questions(&asked()?, nameservers);
    let by = |transport| questions.iter().filter(|one| one.transport == transport).count() as u64;
    Ok(Sent {
        datagrams: by(Transport::Udp),
        connections: by(Transport::Tcp),
    })
}

/// Waits until a responder has received so many queries, and checks that there are no more: two
/// datagrams and a connection in each probe.
fn heard(responder: &Responder, queries: u64) -> Result<()> {
    let all = || responder.heard() >= queries;
    until(TIMEOUT, "all queries are received", all)?;
    let received = responder.heard();
    ensure!(received == queries, "{received} instead of {queries}");
    Ok(())
}

/// Probes these nameservers, and checks that each is seen for what it is, in time. Packets beyond
/// the questions are a failure at once.
fn are_seen(asker: &NetNs, expected: &[(&str, Health, &str)]) -> Result<()> {
    let nameservers = expected.iter().map(|one| one.0.parse());
    let nameservers = nameservers.collect::<Result<Vec<IpAddr>, _>>()?;
    let (judged, took, sent) = probe(asker, &Seen::default(), &nameservers)?;
    assert_eq!(sent, count(&nameservers)?, "packets beyond the questions");
    let mut wrong = Vec::new();
    for (address, (_, health, what)) in nameservers.iter().zip(expected) {
        let one = judged.iter().find(|one| one.nameserver == *address);
        let one = one.context("a nameserver that was not judged")?;
        println!("{address} ({what}): {:?}, {}", one.health, one.because);
        if one.health != *health {
            wrong.push(format!("{address} ({what}) is not {health:?}: {one:#?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(took <= TIMEOUT + MARGIN, "{took:?}");
    println!("{} nameservers in {took:?}: {sent:?}", nameservers.len());
    Ok(())
}

/// Two namespaces with a cable: `asker` has .1, `servers` has what is asked for.
fn pair(servers: &[&str]) -> Result<(NetNs, NetNs)> {
    let (asker, there) = (NetNs::new()?, NetNs::new()?);
    let addresses: Vec<String> = servers
        .iter()
        .map(|address| format!("{address}/{}", if address.contains(':') { 64 } else { 24 }))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    veth(
        (&asker, "eth0", &["10.66.0.1/24", "fd66::1/64"]),
        (&there, "eth0", &addresses),
    )?;
    Ok((asker, there))
}

#[test]
fn tier2_each_nameserver_is_seen_for_what_it_is() {
    let test = "tier2_each_nameserver_is_seen_for_what_it_is";
    let Some(()) = skip::need(TIER, test, needs(&["unbound", "dnsmasq"])).unwrap() else {
        return;
    };
    let expected = [
        ("10.66.0.11", Health::Healthy, "unbound with the cluster's zone"),
        ("10.66.0.12", Health::Healthy, "dnsmasq with the cluster's zone"),
        ("fd66::13", Health::Healthy, "unbound by IPv6"),
        ("10.66.0.14", Health::Dead, "no server listens there"),
        ("10.66.0.15", Health::Dead, "what is sent there is swallowed"),
        ("10.66.0.16", Health::Failing, "unbound that refuses"),
        ("10.66.0.17", Health::Slow, "true answers after 1.5 s"),
        (
            "10.66.0.18",
            Health::Lying,
            "dnsmasq that has an address for every name",
        ),
        (
            "10.66.0.19",
            Health::Healthy,
            "unbound whose long answers are cut off by UDP",
        ),
        ("10.66.0.20", Health::TcpOnly, "all is cut off by UDP"),
        ("10.66.0.21", Health::NoTcp, "unbound without TCP"),
        ("10.66.0.22", Health::NoTcp, "TCP swallows questions"),
        ("10.66.0.23", Health::TcpOnly, "unbound without UDP"),
        ("10.66.0.24", Health::Failing, "SERVFAIL alone"),
        ("10.66.0.25", Health::Looping, "sends the question back"),
        (
            "10.66.0.26",
            Health::Failing,
            "dnsmasq without an upstream nameserver",
        ),
    ];
    // What is swallowed has no address there, but a route.
    let listening: Vec<&str> = expected
        .iter()
        .map(|one| one.0)
        .filter(|one| *one != "10.66.0.15")
        .collect();
    let (asker, there) = pair(&listening).unwrap();
    there.ip("route add blackhole 10.66.0.1/32 table 7").unwrap();
    there.ip("address add 10.66.0.15/24 dev eth0").unwrap();
    there.ip("rule add from 10.66.0.15 lookup 7 priority 1").unwrap();
    let cluster = Unbound::cluster(1);
    let plain = |address| cluster.start(&there, address).unwrap();
    let with = |address, line: &str| cluster.clone().server(line).start(&there, address).unwrap();
    let _real = [
        plain("10.66.0.11"),
        plain("fd66::13"),
        with("10.66.0.16", "access-control: 10.66.0.1/32 refuse"),
        Unbound::cluster(60)
            .server("max-udp-size: 512")
            .start(&there, "10.66.0.19")
            .unwrap(),
        with("10.66.0.21", "do-tcp: no"),
        with("10.66.0.23", "do-udp: no"),
        Resolver::dnsmasq(
            &there,
            "10.66.0.12",
            &[
                "--local=/cluster.local/",
                "--host-record=kubernetes.default.svc.cluster.local,10.96.0.1",
            ],
        )
        .unwrap(),
        Resolver::dnsmasq(&there, "10.66.0.18", &["--address=/#/198.51.100.7"]).unwrap(),
        Resolver::dnsmasq(&there, "10.66.0.26", &[]).unwrap(),
    ];
    let responder = |address, udp, tcp| Responder::start(&there, address, udp, Some(tcp)).unwrap();
    let slow = Reply::Right(Duration::from_millis(1500));
    let played = [
        responder("10.66.0.17", slow, slow),
        responder("10.66.0.20", Reply::CutOff, IMMEDIATE_REPLY),
        responder("10.66.0.22", IMMEDIATE_REPLY, Reply::Silence),
        responder("10.66.0.24", Reply::Code(2), Reply::Code(2)),
        responder("10.66.0.25", Reply::Echo, Reply::Echo),
    ];
    let mut probes = 0;
    // A busy machine may delay a good answer until it counts as slow.
    eventually(TIMEOUT, "each is seen for what it is", || {
        probes += 1;
        are_seen(&asker, &expected)
    })
    .unwrap();
    for responder in &played {
        heard(responder, 3 * probes).unwrap();
    }
}

#[test]
fn tier2_one_that_never_answers_takes_the_deadline_and_no_longer() {
    let test = "tier2_one_that_never_answers_takes_the_deadline_and_no_longer";
    let Some(()) = skip::need(TIER, test, needs(&[])).unwrap() else {
        return;
    };
    let (asker, there) = pair(&["10.66.0.11", "10.66.0.12", "10.66.0.13"]).unwrap();
    let silent = ["10.66.0.11", "10.66.0.12"]
        .map(|address| Responder::start(&there, address, Reply::Silence, Some(Reply::Silence)).unwrap());
    let late = Reply::Right(TIMEOUT + Duration::from_secs(4));
    let _late = Responder::start(&there, "10.66.0.13", late, Some(late)).unwrap();
    let nameservers = ["10.66.0.11", "10.66.0.12", "10.66.0.13"].map(|address| address.parse().unwrap());
    let (judged, took, sent) = probe(&asker, &Seen::default(), &nameservers).unwrap();
    for one in &judged {
        assert_eq!(one.health, Health::Dead, "{one:#?}");
        assert!(
            one.answers
                .iter()
                .all(|answer| answer.outcome == QueryOutcome::Timeout),
            "{one:#?}"
        );
    }
    assert!(took >= TIMEOUT && took <= TIMEOUT + MARGIN, "{took:?}");
    assert_eq!(sent, count(&nameservers).unwrap());
    for one in &silent {
        heard(one, 3).unwrap();
    }
}

#[test]
fn tier2_loops_are_never_used() {
    let test = "tier2_loops_are_never_used";
    let Some(()) = skip::need(TIER, test, needs(&["unbound"])).unwrap() else {
        return;
    };
    let own: IpAddr = "169.254.20.10".parse().unwrap();
    let (asker, there) = pair(&["10.66.0.11", "10.66.0.12"]).unwrap();
    asker.ip("address add 169.254.20.10/32 dev lo").unwrap();
    let to = |address: &str| Unbound::default().forward(address);
    // A cache that forwards to itself, and two that forward to each other.
    let _itself = to("169.254.20.10").start(&asker, "169.254.20.10").unwrap();
    let _first = to("10.66.0.12").start(&there, "10.66.0.11").unwrap();
    let _second = to("10.66.0.11").start(&there, "10.66.0.12").unwrap();
    let seen = Seen {
        resolv_conf: File {
            text: Some(format!("nameserver {own}\n")),
            ..File::default()
        },
        locals: vec![Local {
            address: own,
            interface: "nodelocaldns".to_owned(),
        }],
        listeners: vec![own],
        ..Seen::default()
    };
    let nameservers = [own, "10.66.0.11".parse().unwrap(), "10.66.0.12".parse().unwrap()];
    let (judged, took, _) = probe(&asker, &seen, &nameservers).unwrap();
    for one in &judged {
        println!("{}: {:?}, {}", one.nameserver, one.health, one.because);
        assert!(!one.health.is_usable(), "{one:#?}");
        assert!(!one.because.contains(ECHO), "{one:#?}");
    }
    assert_eq!(judged[0].health, Health::Looping, "{:#?}", judged[0]);
    assert!(took <= TIMEOUT + MARGIN, "{took:?}");
}
