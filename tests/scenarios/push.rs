//! Agents that connect to the real collector, because it cannot dial them: honest ones, through a
//! relay, and attackers.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod attacks;
mod bounds;
mod kit;
mod node_proofs;
mod own_address;
mod real;
mod tokens;

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use virtfleet_tests::{
    scrape::Client,
    sim::enrol::AgentSpec,
    stage::{Beat, STAGE_TIMEOUT},
    wait,
};

use crate::enrolment::kit::patient;
use kit::{PushKit, pushed};

#[test]
fn a_vm_that_cannot_be_dialled_enrols_and_is_joined_by_push() {
    let kit = PushKit::pulling(3, "", patient());
    let guests = kit.kit.stage.plan.guests.clone();
    let agents: Vec<_> = guests.iter().map(|guest| kit.push(guest)).collect();
    kit.kit.stage.until_up(3).unwrap();
    let guest = kit.kit.guest(0);
    let vm = kit.kit.vm(&guest);
    let way = &vm["agent"]["way"];
    assert_eq!(way["kind"], "push", "{vm:#}");
    let peer = way["peer"].as_str().unwrap();
    assert!(
        peer.starts_with(&format!("{}:", guest.address.ip())) && vm["agent"]["address"] == *peer,
        "{way}"
    );
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    assert_eq!(vm["findings"], 0, "{vm:#}");
    let name = format!("{}/{}", guest.cluster, guest.name);
    let text = kit.kit.ctl(&["vm", &name]);
    assert!(text.contains("push from 127."), "{text}");
    // One connection to enrol, one with the certificate, which stays open.
    kit.kit.let_pulls_pass(&guest, 3);
    assert!(
        agents
            .iter()
            .all(|agent| agent.pushes() == 2 && agent.accepted() == 1)
    );
    assert_eq!(kit.metric("connections_open"), 3);
    assert_eq!(kit.results("verified"), 3);
    assert_eq!(kit.results("enrolled"), 3);
}

#[test]
fn a_page_whose_connection_is_in_use_is_refused_for_the_moment() {
    let mut kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    kit.kit.stop_collector();
    // A page waits for half of the timeout.
    let slow = Beat {
        interval: Duration::from_secs(6),
        timeout: Duration::from_secs(6),
    };
    kit.kit.stage.start_collector(slow).unwrap();
    let agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    agent.hold_pages(true);
    let (collector, path) = (
        kit.kit.stage.api,
        format!("/vm/{}/{}/metrics", guest.cluster, guest.name),
    );
    let get = move |path: &str| {
        Client::plain(collector, STAGE_TIMEOUT)
            .unwrap()
            .get(path)
            .unwrap()
    };
    let (first, get) = (path.clone(), Arc::new(get));
    let other = Arc::clone(&get);
    let held = std::thread::spawn(move || other(&first).status);
    wait::until(STAGE_TIMEOUT, "the agent holds a page", || agent.held_pages() > 0).unwrap();
    let busy = get(&path);
    assert_eq!(busy.status, 503, "{}", busy.text().unwrap());
    assert!(
        busy.text().unwrap().contains("agent_busy"),
        "{}",
        busy.text().unwrap()
    );
    agent.hold_pages(false);
    held.join().unwrap();
    wait::until(STAGE_TIMEOUT, "the page is there again", || {
        get(&path).status == 200
    })
    .unwrap();
}

#[test]
fn prometheus_gets_the_page_through_the_collector_only() {
    let kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let _agent = kit.push(&guest);
    kit.kit.until_up(&guest);
    let listed = kit.kit.stage.json("/sd").unwrap();
    let target = listed[0]["targets"][0].as_str().unwrap();
    let expected = format!("{}.{}.push.invalid:10911", guest.name, guest.cluster);
    assert_eq!(target, expected, "no address that Prometheus could dial");
    assert_eq!(listed[0]["labels"]["__meta_virtfleet_way"], "push");
    let path = format!("/vm/{}/{}/metrics", guest.cluster, guest.name);
    // Pages and pulls share the agent's only connection. On a busy machine a page may wait for it
    // too long, and is answered that the agent is busy.
    let page = || wait::eventually(STAGE_TIMEOUT, "a page", || kit.kit.stage.text(&path));
    for _ in 0..20 {
        let page = page().unwrap();
        assert!(page.contains("node_memory_MemTotal_bytes"), "{page}");
    }
    // Several at once.
    std::thread::scope(|scope| {
        let pages: Vec<_> = (0..8).map(|_| scope.spawn(|| page().unwrap())).collect();
        for page in pages {
            assert!(page.join().unwrap().contains("node_memory_MemTotal_bytes"));
        }
    });
    // Pulls go on over the same connection.
    kit.kit.let_pulls_pass(&guest, 2);
    assert_eq!(kit.kit.vm(&guest)["agent"]["way"]["kind"], "push");
    assert_eq!(kit.results("verified"), 1);
}

#[test]
fn agents_push_through_the_real_relay() {
    let kit = PushKit::new(2, "");
    let relay = kit.relay();
    // Without a certificate the relay's address says nothing.
    let stranger = kit.kit.guest(1);
    let unenrolled = kit.run(AgentSpec::honest(&stranger).unwrap().pushing(relay.forward));
    wait::until(STAGE_TIMEOUT, "it is refused", || kit.results("tls") >= 1).unwrap();
    assert_eq!(unenrolled.accepted(), 0);
    let guest = kit.kit.guest(0);
    let disk = kit.enrolled(&guest);
    let spec = AgentSpec::honest(&guest)
        .unwrap()
        .pushing(relay.forward)
        .with_disk(disk);
    let agent = kit.run(spec);
    kit.until_way(&guest, "push");
    let vm = kit.kit.until_up(&guest);
    assert!(
        vm["agent"]["way"]["peer"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:"),
        "{vm:#}"
    );
    assert_eq!(agent.accepted(), 0, "it had a certificate");
    assert!(relay.metric("virtfleet_relay_from_vms_bytes_total{direction=\"push\"}") > 1000.0);
}

#[test]
fn a_second_connection_replaces_the_first() {
    let kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let disk = kit.enrolled(&guest);
    let run = || {
        let spec = AgentSpec::honest(&guest)
            .unwrap()
            .pushing(kit.ingest)
            .with_disk(disk.clone());
        kit.run(spec)
    };
    let first = run();
    let vm = kit.until_way(&guest, "push");
    let peer = vm["agent"]["way"]["peer"].clone();
    let _second = run();
    let replaced = |vm: &Value| vm["agent"]["way"]["kind"] == "push" && vm["agent"]["way"]["peer"] != peer;
    kit.kit
        .stage
        .until_vm(&guest, "the second is used", replaced)
        .unwrap();
    // The first is closed, and connects again in turn.
    wait::until(STAGE_TIMEOUT, "the first is closed", || first.pushes() > 1).unwrap();
    assert!(kit.metric("connections_open") <= 2);
}

#[test]
fn a_vm_that_can_be_dialled_again_is_dialled() {
    let kit = PushKit::new(1, ", maxAge: 4s");
    let guest = kit.kit.guest(0);
    let agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    agent.set_reachable();
    kit.until_way(&guest, "direct");
    let pushes = agent.pushes();
    kit.kit.let_pulls_pass(&guest, 3);
    let vm = kit.kit.until_up(&guest);
    assert_eq!(vm["agent"]["way"]["kind"], "direct");
    assert_eq!(agent.pushes(), pushes, "it does not connect while it is dialled");
}

#[test]
fn an_old_connection_is_closed_and_the_next_one_verified_without_a_failed_pull() {
    // A timeout that a busy machine meets.
    let beat = Beat {
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(2),
    };
    let kit = PushKit::pulling(1, ", maxAge: 3s", beat);
    let guest = kit.kit.guest(0);
    let agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    let before = agent.pushes();
    wait::until(STAGE_TIMEOUT, "three more connections", || {
        agent.pushes() >= before + 3
    })
    .unwrap();
    let vm = kit.kit.until_up(&guest);
    assert_eq!(vm["agent"]["way"]["kind"], "push");
    assert!(kit.results("verified") >= 3);
    // The first pulls may have tried to dial, before the agent connected.
    let failed = kit.pulls_failed();
    kit.kit.let_pulls_pass(&guest, 4);
    assert_eq!(kit.pulls_failed(), failed);
}

#[test]
fn a_vm_without_an_allowed_address_is_pulled_and_renewed_over_its_connection() {
    let mut kit = PushKit::with(1, "", |stage| stage.set_allowed("10.0.0.0/8"));
    let guest = kit.kit.guest(0);
    kit.kit.until_class(&guest, "not_allowed");
    let agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    kit.kit.until_up(&guest);
    // A certificate for the same key of which three quarters are over.
    kit.kit.stop_collector();
    let mut disk = agent.stop().unwrap();
    crate::enrolment::kit::signed(&kit.kit.authorities(), &mut disk, &guest, -2700, 900);
    kit.kit.stage.start_collector(patient()).unwrap();
    let spec = AgentSpec::honest(&guest)
        .unwrap()
        .pushing(kit.ingest)
        .with_disk(disk);
    let agent = kit.run(spec);
    wait::until(STAGE_TIMEOUT, "it is renewed", || agent.accepted() == 1).unwrap();
    kit.kit.until_up(&guest);
    // The collector counts it when it has the agent's answer.
    wait::eventually(STAGE_TIMEOUT, "it is counted", || {
        let page = kit.kit.stage.text("/metrics")?;
        let line = "virtfleet_collector_enrolments_total{result=\"renewed\"} 1";
        anyhow::ensure!(page.contains(line), "{page}");
        Ok(())
    })
    .unwrap();
    pushed(&kit.kit.vm(&guest));
}

#[test]
fn a_deleted_vm_is_cut_off_and_an_agent_that_stops_is_silent() {
    let kit = PushKit::new(2, "");
    let (deleted, stopped) = (kit.kit.guest(0), kit.kit.guest(1));
    let agents = [&deleted, &stopped].map(|guest| kit.push(guest));
    kit.kit.stage.until_up(2).unwrap();
    kit.kit.delete(&deleted);
    // It connects again, and its certificate names no VM.
    wait::until(STAGE_TIMEOUT, "it is refused", || kit.results("no_vm") >= 1).unwrap();
    let [_, agent] = agents;
    agent.stop().unwrap();
    let dialled = |vm: &Value| {
        let agent = &vm["agent"];
        agent["failure"]["class"] == "connect" && agent["way"]["kind"] == "direct"
    };
    kit.kit
        .stage
        .until_vm(&stopped, "it is dialled again", dialled)
        .unwrap();
}
