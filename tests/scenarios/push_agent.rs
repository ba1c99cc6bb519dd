//! An agent that connects to the collector (decision 0033), and its join token (decision 0034): the
//! real agent, and a listener that has the collector's part.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod machine;
mod node_proof;
mod other_services;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use hyper::StatusCode;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    enrolment::EnrolmentClient,
    pki::{Authority, Identity},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};
use virtfleet_wire::enrolment::{CLAIM_PATH, EnrolmentClaim};

use crate::agent_stage::{AgentStage, IDENTITY, READER, SOON, TOKEN};

fn report(client: &mut Client) -> Value {
    client.get("/v1/report").unwrap().ok().unwrap().json().unwrap()
}

fn way(report: &Value) -> &Value {
    &report["sections"]["way"]["items"][0]
}

#[test]
fn an_agent_that_is_not_pulled_connects_is_enrolled_and_pulled() {
    let stage = AgentStage::pushing();
    let agent = stage.start();
    let mut collector = stage.push();
    assert_eq!(collector.identity(), None);
    // As on a listener: without a certificate only enrolment is answered.
    let answer = collector.get("/v1/report").unwrap();
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    stage.enrol_over(&mut collector, IDENTITY);
    // The new certificate is shown on the next connection, which follows at once.
    drop(collector);
    let enrolled = Instant::now();
    let mut collector = stage.strict_push();
    assert!(enrolled.elapsed() < wait::PROMPT, "{:?}", enrolled.elapsed());
    let first = report(&mut collector);
    assert_eq!(first["sections"]["enrolment"]["items"][0]["identity"], IDENTITY);
    assert_eq!(
        way(&first)["push"]["state"],
        "connected",
        "before the first pull ends: {first}"
    );
    // Many pulls over one connection.
    let mut last = first;
    for _ in 0..20 {
        last = report(&mut collector);
        collector.get("/metrics").unwrap().ok().unwrap();
    }
    assert_eq!(way(&last)["way"], "push");
    assert_eq!(way(&last)["lastPushedPull"]["peer"], "127.0.0.1");
    let page = collector.get("/metrics").unwrap().ok().unwrap();
    let page = page.text().unwrap().to_owned();
    // Two, and those that a busy machine answered too late.
    let taken = stage.taken();
    for line in [
        "virtfleet_agent_push_connected 1\n",
        &format!("virtfleet_agent_push_attempts_total {taken}\n"),
        &format!("virtfleet_agent_push_connections_total {taken}\n"),
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let unused = "virtfleet_agent_push_failures_total{reason=\"unused\"} 0\n";
    assert!(taken > 2 || page.contains(unused), "{page}");
    stage.no_connection().unwrap();
    let doctor = stage.doctor();
    let expected = "it pulls over the connection that the agent opened to 127.0.0.1:";
    assert!(doctor.contains(expected), "{doctor}");
    assert_eq!(stage.report()["sections"]["way"]["items"][0]["way"], "push");
    agent.terminate(SOON).unwrap();
}

#[test]
fn a_pull_of_a_collector_that_dials_closes_the_connection() {
    let stage = AgentStage::pushing();
    let mut agent = stage.enrolled_by_push();
    let mut pushed = stage.strict_push();
    report(&mut pushed);
    // Who is not a collector, or does not pull, closes nothing.
    stage.strict_connect().get("/metrics").unwrap().ok().unwrap();
    let config = stage.agents.client_config(&stage.client(READER, &[])).unwrap();
    let mut reader = Client::tls(stage.home.address, config, SOON).unwrap();
    report(&mut reader);
    report(&mut pushed);
    let mut direct = stage.strict_connect();
    let report_of_direct = report(&mut direct);
    assert_eq!(way(&report_of_direct)["push"]["state"], "connected");
    agent.wait_for_line("a collector pulls directly", SOON).unwrap();
    wait::until(SOON, "the end of the connection", || {
        pushed.get("/healthz").is_err()
    })
    .unwrap();
    // As long as a collector pulls directly, the agent does not connect: three times `after`.
    let (mut start, mut pulled) = (Instant::now(), Instant::now());
    while start.elapsed() < Duration::from_secs(3) {
        let last = report(&mut direct);
        if pulled.elapsed() > Duration::from_millis(800) {
            // This test was too slow for `after`, so the agent may have connected.
            drop(stage.ingest.accept());
            start = Instant::now();
        } else {
            assert_eq!(way(&last)["push"]["lastFailure"], Value::Null);
            stage.no_connection().unwrap();
        }
        pulled = Instant::now();
        thread::park_timeout(Duration::from_millis(300));
    }
    let last = report(&mut direct);
    assert_eq!(way(&last)["way"], "direct", "{last}");
    assert!(
        stage.doctor().contains("a collector at 127.0.0.1 pulls directly"),
        "{}",
        stage.doctor()
    );
    // When it stops, the agent connects again.
    drop(direct);
    report(&mut stage.strict_push());
}

/// Whether a peer gets any answer over the next connection of the agent.
fn is_answered(stage: &AgentStage, identity: &Identity) -> bool {
    let connected = EnrolmentClient::over(stage.accept(), identity, Duration::from_secs(5));
    connected
        .is_ok_and(|mut client| client.get("/healthz").is_ok() || client.post(CLAIM_PATH, &json!({})).is_ok())
}

#[test]
fn an_impostor_that_the_agent_connects_to_gets_nothing() {
    let stage = AgentStage::pushing();
    stage.write_token();
    let agent = stage.enrolled_by_push();
    let foreign = Authority::new("clients").unwrap();
    for (who, identity) in [
        ("another authority", foreign.collector().unwrap()),
        ("the authority of agents", stage.agents.collector().unwrap()),
        // A listener answers this one: server.tls.clients names it.
        ("a reader", stage.client(READER, &[])),
        ("an agent", stage.client(IDENTITY, &[])),
        (
            "another path",
            stage.client("spiffe://virtfleet.test/collector/x", &[]),
        ),
    ] {
        assert!(!is_answered(&stage, &identity), "{who}");
        // The collector is still answered. Its pull also ends the longer delays.
        report(&mut stage.strict_push());
    }
    let mut anonymous = stage.accept();
    let plain = anonymous.write_all(b"GET /v1/report HTTP/1.1\r\nhost: x\r\n\r\n");
    plain.unwrap();
    let mut answer = Vec::new();
    drop(anonymous.read_to_end(&mut answer));
    assert!(!answer.windows(4).any(|part| part == b"HTTP"), "{answer:?}");
    // The failures have their reasons.
    let mut collector = stage.strict_push();
    report(&mut collector);
    let page = collector.get("/metrics").unwrap().ok().unwrap();
    let page = page.text().unwrap().to_owned();
    for line in [
        "virtfleet_agent_push_failures_total{reason=\"unauthorized\"} 3\n",
        "virtfleet_agent_push_failures_total{reason=\"tls\"} 3\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!agent.log().contains(TOKEN));
}

#[test]
fn a_token_is_shown_to_collectors_only_and_appears_nowhere_else() {
    let stage = AgentStage::pushing();
    let agent = stage.start();
    let mut collector = stage.push();
    let claim = |collector: &mut EnrolmentClient| {
        let answer = collector.post(CLAIM_PATH, &json!({"later": 1})).unwrap();
        let claim: EnrolmentClaim = serde_json::from_slice(&answer.ok().unwrap().body).unwrap();
        claim
    };
    let none = claim(&mut collector);
    assert_eq!(none.token, None, "there is no file yet");
    assert!(none.evidence.smbios_uuid.is_some() && none.evidence.boot_id.is_some());
    let problem = "the join token cannot be read: /etc/virtfleet/token: no such file";
    let doctor = stage.doctor();
    assert!(doctor.contains(problem), "{doctor}");
    stage.write_token();
    assert_eq!(claim(&mut collector).token.as_deref(), Some(TOKEN));
    assert_eq!(
        collector.post(CLAIM_PATH, &1).unwrap().status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        collector.get(CLAIM_PATH).unwrap().status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    // A reader that the settings name is not a collector, and gets 403 on a listener.
    let reader = stage.client(READER, &[]);
    let mut reader = EnrolmentClient::connect(stage.home.address, &reader, SOON).unwrap();
    let answer = reader.post(CLAIM_PATH, &json!({})).unwrap();
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    stage.enrol_over(&mut collector, IDENTITY);
    drop(collector);
    let mut collector = stage.strict_push();
    let served = format!(
        "{} {}",
        report(&mut collector),
        collector.get("/metrics").unwrap().text().unwrap()
    );
    for (place, text) in [
        ("log", agent.log()),
        ("doctor", stage.doctor()),
        ("report", stage.report().to_string()),
        ("served", served),
        ("record", record(&stage)),
        ("check-config", stage.agent("check-config").text(SOON).unwrap()),
    ] {
        assert!(!text.contains("c2VjcmV0") && !text.contains("vft1"), "{place}");
    }
    assert!(
        !stage.doctor().contains("the join token"),
        "the file is there now: {}",
        stage.doctor()
    );
    // Too large, and not one word: as if there were none.
    let mut again = stage.connect();
    for content in ["x".repeat(257), "a b".to_owned()] {
        fs::write(stage.at("root/etc/virtfleet/token"), content).unwrap();
        assert_eq!(claim(&mut again).token, None);
    }
}

/// What the agent stores for the doctor.
fn record(stage: &AgentStage) -> String {
    fs::read_to_string(stage.at("root/run/virtfleet-agent/way.json")).unwrap()
}

/// Waits until the doctor shows all of these.
fn doctor_says(stage: &AgentStage, parts: &[&str]) {
    let mut last = String::new();
    let found = wait::until(SOON, "the doctor", || {
        last = stage.doctor();
        parts.iter().all(|part| last.contains(part))
    });
    found.unwrap_or_else(|error| panic!("{error}: {last}"));
}

#[test]
fn failures_to_connect_are_named_and_retried() {
    let stage = AgentStage::pushing();
    let closed = ports::free().unwrap();
    stage.configure_push(&closed.to_string(), "1s");
    let agent = stage.start();
    let refused = format!("{closed} refused the connection");
    doctor_says(&stage, &[&refused, "next attempt in", "/dev/tcp/127.0.0.1/"]);
    // It is tried again, and warned of once.
    wait::until(SOON, "a third attempt", || {
        agent.log().matches("not connected").count() >= 3
    })
    .unwrap();
    let warnings = agent
        .log()
        .lines()
        .filter(|line| line.contains("not connected") && line.contains("WARN"))
        .count();
    assert_eq!(warnings, 1, "{}", agent.log());
    let page = metrics(&stage);
    let failures = "virtfleet_agent_push_failures_total{reason=\"refused\"} ";
    let line = page.lines().find_map(|line| line.strip_prefix(failures));
    assert!(line.unwrap().parse::<u64>().unwrap() >= 3, "{page}");
    agent.terminate(SOON).unwrap();

    // A name, and no nameserver that knows it.
    stage.configure_push("collector.example:10913", "1s");
    let agent = stage.start();
    doctor_says(
        &stage,
        &["collector.example cannot be resolved: /etc/resolv.conf names no nameserver"],
    );
    agent.terminate(SOON).unwrap();

    // A name of /etc/hosts.
    fs::write(stage.at("root/etc/hosts"), "127.0.0.1 collector.example\n").unwrap();
    let port = stage.ingest.local_addr().unwrap().port();
    stage.configure_push(&format!("collector.example:{port}"), "1s");
    let agent = stage.start();
    stage.enrol_over(&mut stage.push(), IDENTITY);
    report(&mut stage.strict_push());
    // Stopping does not wait for the connection.
    let stopping = Instant::now();
    agent.terminate(SOON).unwrap();
    assert!(stopping.elapsed() < wait::PROMPT, "{:?}", stopping.elapsed());
}

/// The page of metrics of an agent that is not enrolled yet.
fn metrics(stage: &AgentStage) -> String {
    stage.enrol(IDENTITY);
    let page = stage.strict_connect().get("/metrics").unwrap().ok().unwrap();
    page.text().unwrap().to_owned()
}

#[test]
fn a_peer_that_stays_silent_or_vanishes_is_given_up() {
    let stage = AgentStage::pushing();
    let agent = stage.start();
    // Accepts, and says nothing: a connection, but no way.
    let silent = stage.accept();
    doctor_says(&stage, &["no pull came over that connection yet"]);
    // Closes at once.
    drop(silent);
    doctor_says(&stage, &["no collector of this fleet at 127.0.0.1:"]);
    // Is authorised, and closes without a pull.
    let collector = stage.push();
    drop(collector);
    doctor_says(&stage, &["closed the connection without a pull"]);
    // A collector that is gone in the middle of a handshake does not stop the agent.
    let half: TcpStream = stage.accept();
    let peer: SocketAddr = half.peer_addr().unwrap();
    assert!(peer.ip().is_loopback());
    let stopping = Instant::now();
    agent.terminate(SOON).unwrap();
    assert!(stopping.elapsed() < wait::PROMPT, "{:?}", stopping.elapsed());
    drop(half);
}

/// A relay that passes connections of agents to `collector`.
fn start_relay(stage: &AgentStage, forward: SocketAddr, collector: SocketAddr) -> Process {
    let [connect, probes] = [(); 2].map(|()| ports::free().unwrap());
    let relay = Launch::new(bins::collector().unwrap())
        .args(["relay", "--connect.allow-cidrs=127.0.0.0/8"])
        .arg(format!("--connect.address={connect}"))
        .arg(format!("--probe.address={probes}"))
        .arg(format!("--forward.address={forward}"))
        .arg(format!("--forward.collector={collector}"))
        .start(&stage.at("root"));
    let mut relay = relay.unwrap();
    relay.wait_for_line("relaying", SOON).unwrap();
    relay
}

#[test]
fn a_relay_passes_the_connection_and_its_restart_is_survived() {
    let stage = AgentStage::pushing();
    stage.write_token();
    let forward = ports::free().unwrap();
    let collector = stage.ingest.local_addr().unwrap();
    stage.configure_push(&forward.to_string(), "1s");
    let relay = start_relay(&stage, forward, collector);
    let _agent = stage.start();
    // The collector cannot know the VM by its address, and asks for the token.
    let mut first = stage.push();
    let answer = first.post(CLAIM_PATH, &json!({})).unwrap().ok().unwrap();
    let claim: EnrolmentClaim = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(claim.token.as_deref(), Some(TOKEN));
    stage.enrol_over(&mut first, IDENTITY);
    drop(first);
    let mut collector_side = stage.strict_push();
    report(&mut collector_side);
    relay.terminate(SOON).unwrap();
    doctor_says(&stage, &[&format!("{forward} refused the connection")]);
    // A relay whose collector is away accepts, and closes.
    let away = start_relay(&stage, forward, ports::free().unwrap());
    doctor_says(&stage, &[&format!("no collector of this fleet at {forward}")]);
    away.terminate(SOON).unwrap();
    let _relay = start_relay(&stage, forward, collector);
    let last = report(&mut stage.strict_push());
    assert_eq!(last["sections"]["enrolment"]["items"][0]["identity"], IDENTITY);
}

/// An address that answers nothing: a listener whose queue is full. It lasts as long as what is
/// returned.
fn black_hole() -> (OwnedFd, Vec<TcpStream>, SocketAddr) {
    let listener = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let address: SockaddrIn = getsockname(listener.as_raw_fd()).unwrap();
    let address = SocketAddr::from((address.ip(), address.port()));
    let wait = Duration::from_millis(500);
    let filled = (0..10).map_while(|_| TcpStream::connect_timeout(&address, wait).ok());
    let filled: Vec<_> = filled.collect();
    assert!(filled.len() < 10, "the queue has no end");
    (listener, filled, address)
}

#[test]
fn an_address_that_does_not_answer_is_named_and_delays_no_stop() {
    let stage = AgentStage::pushing();
    let (_listener, _filled, address) = black_hole();
    stage.configure_push(&address.to_string(), "1s");
    let agent = stage.start();
    doctor_says(&stage, &[&format!("connecting to {address}")]);
    doctor_says(&stage, &[&format!("{address} does not answer")]);
    // In the next attempt.
    wait::until(SOON, "the next attempt", || {
        record(&stage).contains("\"connecting\"")
    })
    .unwrap();
    let stopping = Instant::now();
    agent.terminate(SOON).unwrap();
    // An attempt takes 5 seconds.
    assert!(
        stopping.elapsed() < Duration::from_secs(4),
        "{:?}",
        stopping.elapsed()
    );
}

#[test]
fn the_unit_lets_the_agent_connect() {
    let unit = include_str!("../../packaging/systemd/virtfleet-agent.service");
    let options = unit.lines().filter(|line| !line.starts_with('#'));
    for option in options {
        for denied in [
            "IPAddressDeny=",
            "PrivateNetwork=",
            "IPIngressFilterPath=",
            "IPEgressFilterPath=",
        ] {
            assert!(!option.starts_with(denied), "{option}");
        }
        if let Some(families) = option.strip_prefix("RestrictAddressFamilies=") {
            assert!(
                families.contains("AF_INET ") && families.contains("AF_INET6"),
                "{families}"
            );
        }
    }
    // The doctor reads there what the agent writes.
    assert!(unit.contains("\nRuntimeDirectory=virtfleet-agent\nRuntimeDirectoryMode=0755\n"));
}

#[test]
fn push_without_a_tls_identity_is_a_problem_of_the_settings() {
    let stage = AgentStage::pushing();
    let file = stage.at("agent.yaml");
    let text = fs::read_to_string(&file).unwrap();
    for (from, to, expected) in [
        (
            "enrolment: true",
            "enrolment: false",
            "push: the agent proves its identity to the collector, and needs server.tls.enrolment: true",
        ),
        (
            "after: 1s",
            "after: 0s",
            "push.after: 0s is too short; at least 1s",
        ),
        (
            "/etc/virtfleet/token",
            "token",
            "push.tokenFile: \"token\" is not an absolute path",
        ),
        (
            "collector: \"127.0.0.1:",
            "collector: \"127.0.0.1 :",
            "push.collector: ",
        ),
    ] {
        fs::write(&file, text.replace(from, to)).unwrap();
        let (code, output) = stage.agent("check-config").said(SOON).unwrap();
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(expected), "{output}");
    }
}
