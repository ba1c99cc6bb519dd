//! Agents that attack the enrolment itself.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use serde_json::Value;
use virtfleet_tests::{
    ports,
    sim::{
        self, Guest,
        enrol::{AgentSpec, EnrolFault},
    },
    stage::STAGE_TIMEOUT,
    wait,
};

use super::kit::{Kit, join, patient};

/// An agent with this fault is refused for this reason, and another VM is enrolled all the while.
fn is_refused(fault: EnrolFault, reason: &str, severity: &str) {
    let kit = Kit::new(2);
    let (bad, good) = (kit.guest(0), kit.guest(1));
    let attacker = kit.attack(&bad, fault);
    kit.run(AgentSpec::honest(&good).unwrap());
    kit.until_up(&good);
    let vm = kit.until_refused(&bad, reason);
    let message = vm["agent"]["failure"]["message"].as_str().unwrap();
    assert!(
        (20..=512).contains(&message.len()) && !message.contains(char::is_control),
        "one clear line: {message}"
    );
    let finding = kit.until_finding(&bad, "agent-enrolment");
    assert_eq!(finding["severity"], severity, "{finding:#}");
    assert_eq!(finding["evidence"]["reason"], reason);
    assert!(finding["remedy"].as_str().unwrap().len() > 10, "{finding:#}");
    let name = format!("virtfleet_collector_enrolments_total{{result=\"{reason}\"}} ");
    let page = kit.stage.text("/metrics").unwrap();
    let line = page.lines().find(|line| line.starts_with(&name)).unwrap();
    assert!(!line.ends_with(" 0"), "{line}");
    assert_eq!(attacker.disk().identity(), None, "it has no certificate");
    assert_eq!(kit.finding(&good, "agent-enrolment"), None);
}

#[test]
fn another_uuid_is_refused() {
    is_refused(EnrolFault::OtherUuid, "uuid_differs", "critical");
}

#[test]
fn another_mac_is_refused() {
    is_refused(EnrolFault::OtherMac, "mac_differs", "critical");
}

#[test]
fn another_hostname_is_refused() {
    is_refused(EnrolFault::OtherHostname, "hostname_differs", "warning");
}

#[test]
fn a_replayed_csr_is_refused() {
    is_refused(EnrolFault::ReplayedCsr, "nonce_differs", "critical");
}

#[test]
fn a_csr_for_another_name_is_refused() {
    is_refused(EnrolFault::OtherName, "names_differ", "critical");
}

#[test]
fn a_csr_for_another_key_than_that_of_the_connection_is_refused() {
    is_refused(EnrolFault::OtherKey, "key_not_of_connection", "critical");
}

#[test]
fn keys_that_change_are_refused_after_the_first() {
    is_refused(EnrolFault::NewKeys, "second_key", "critical");
}

#[test]
fn a_certificate_that_is_never_accepted_is_a_warning() {
    is_refused(EnrolFault::NeverAccepts, "not_accepted", "warning");
}

#[test]
fn an_answer_that_never_ends_is_refused() {
    is_refused(EnrolFault::Endless, "too_large", "warning");
}

#[test]
fn a_slow_answer_is_refused() {
    is_refused(EnrolFault::Slow, "timeout", "warning");
}

#[test]
fn no_answer_is_refused() {
    is_refused(EnrolFault::Silent, "timeout", "warning");
}

#[test]
fn an_answer_that_is_no_csr_is_refused() {
    is_refused(EnrolFault::Garbage, "malformed", "warning");
}

#[test]
fn an_agent_that_always_replaces_its_key_is_refused() {
    is_refused(EnrolFault::ReplacesForever, "key_of_another_vm", "critical");
}

#[test]
fn an_impostor_with_a_second_key_is_refused() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let honest = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_up(&guest);
    let disk = honest.stop().unwrap();
    let impostor = kit.run(AgentSpec::honest(&guest).unwrap());
    let vm = kit.until_refused(&guest, "second_key");
    assert_eq!(vm["agent"]["status"], "silent");
    assert_eq!(
        kit.until_finding(&guest, "agent-enrolment")["severity"],
        "critical"
    );
    assert_eq!(kit.stage.json("/sd").unwrap().as_array().unwrap().len(), 0);
    assert_eq!(impostor.disk().identity(), None);
    impostor.stop().unwrap();
    // The honest agent is accepted as before.
    let mut back = AgentSpec::honest(&guest).unwrap();
    back.disk = disk;
    let honest = kit.run(back);
    kit.until_up(&guest);
    assert_eq!(honest.requests(), 0);
}

#[test]
fn a_vm_that_reports_as_another_changes_only_its_own_findings() {
    let kit = Kit::new(2);
    let (liar, victim) = (kit.guest(0), kit.guest(1));
    // It shows its own VM when it enrols, and another one in its reports.
    let mut spec = AgentSpec::honest(&liar).unwrap();
    spec.reports_as = Some(victim.clone());
    kit.run(spec);
    let identity = |vm: &Value| vm["identity"]["smbiosUuid"]["verdict"] == "disagrees";
    kit.stage
        .until_vm(&liar, "its report disagrees", identity)
        .unwrap();
    let vm = kit.vm(&victim);
    assert_ne!(vm["agent"]["status"], "up", "{vm:#}");
    assert_eq!(vm["guest"], Value::Null, "{vm:#}");
    assert_eq!(kit.finding(&victim, "duplicate-claimed-uuid"), None);
}

#[test]
fn two_vms_with_one_address_are_both_refused() {
    let kit = Kit::new(2);
    let (first, second) = (kit.guest(0), kit.guest(1));
    let same = Guest {
        address: first.address,
        ..second.clone()
    };
    let host = kit.stage.plan.hosts[second.host].name.clone();
    kit.stage.write_vmi(&second, &sim::vmi(&same, &host)).unwrap();
    kit.stage
        .until_vm(&second, "it shares the address", |vm| {
            vm["agent"]["address"] == first.address.to_string()
        })
        .unwrap();
    let agent = kit.run(AgentSpec::honest(&first).unwrap());
    for guest in [&first, &second] {
        kit.until_refused(guest, "address_shared");
    }
    assert_eq!(agent.requests(), 0, "nothing is sent");
    // Once they are apart, the right one is enrolled.
    kit.stage.write_vmi(&second, &sim::vmi(&second, &host)).unwrap();
    kit.until_up(&first);
}

#[test]
fn a_poisoned_guest_agent_address_is_never_dialled() {
    let kit = Kit::new(2);
    let (victim, attacker) = (kit.guest(0), kit.guest(1));
    // The attacker listens on its own address, and its VMI is removed.
    let listener = kit.run(AgentSpec::honest(&attacker).unwrap());
    kit.delete(&attacker);
    // Its last pull may be under way.
    kit.let_pulls_pass(&victim, 2);
    let before = listener.connections();
    // The guest agent of the victim's VM reports the attacker's address; the pod keeps its own.
    let host = kit.stage.plan.hosts[victim.host].name.clone();
    let manifest = sim::vmi(&victim, &host);
    let (vmi, pod) = manifest.split_once("---\n").unwrap();
    let poisoned = vmi.replace(
        &victim.address.ip().to_string(),
        &attacker.address.ip().to_string(),
    );
    assert_ne!(poisoned, vmi);
    kit.stage
        .write_vmi(&victim, &format!("{poisoned}---\n{pod}"))
        .unwrap();
    kit.run(AgentSpec::honest(&victim).unwrap());
    let vm = kit.until_up(&victim);
    assert_eq!(vm["agent"]["address"], victim.address.to_string());
    assert_eq!(listener.connections(), before);
}

/// A real agent discards a copied key by itself: its SMBIOS UUID is another
/// (`guest_enrolment`). One that does not gets nothing, and the original loses nothing.
#[test]
fn a_copied_certificate_is_refused_and_the_original_keeps_its_key() {
    let kit = Kit::with(2, patient());
    let (original, clone) = (kit.guest(0), kit.guest(1));
    let first = kit.run(AgentSpec::honest(&original).unwrap());
    kit.until_up(&original);
    let key = first.disk().public_key().unwrap();
    let spec = AgentSpec::honest(&clone).unwrap().with_disk(first.disk());
    let second = kit.run(spec);
    kit.until_class(&clone, "wrong_vm");
    assert_eq!(second.requests(), 0, "nothing is asked of it");
    kit.until_up(&original);
    assert_eq!((first.accepted(), first.disk().public_key().unwrap()), (1, key));
}

#[test]
fn a_copied_key_without_certificate_is_refused_and_never_replaced() {
    let kit = Kit::new(2);
    let (original, clone) = (kit.guest(0), kit.guest(1));
    let first = kit.run(AgentSpec::honest(&original).unwrap());
    kit.until_up(&original);
    let mut disk = first.disk();
    disk.forget();
    let key = disk.public_key().unwrap();
    let second = kit.run(AgentSpec::honest(&clone).unwrap().with_disk(disk));
    kit.until_refused(&clone, "key_of_another_vm");
    assert_eq!(
        kit.until_finding(&clone, "agent-enrolment")["severity"],
        "critical"
    );
    assert_eq!(second.disk().public_key().unwrap(), key);
    kit.until_up(&original);
}

/// A VM forwards its port to the agent of another VM, which is enrolled.
#[test]
fn a_forwarded_port_takes_nothing_from_the_agent_behind_it() {
    let kit = Kit::new(2);
    let (red, blue) = (kit.guest(0), kit.guest(1));
    let agent = kit.run(AgentSpec::honest(&blue).unwrap());
    let before = kit.until_up(&blue);
    let asked = agent.requests();
    forward(red.address, blue.address);
    kit.until_class(&red, "wrong_vm");
    kit.let_pulls_pass(&red, 3);
    assert_eq!(agent.requests(), asked, "blue's agent is asked to enrol as red");
    let after = kit.until_up(&blue);
    assert_eq!(after["enrolment"]["keySha256"], before["enrolment"]["keySha256"]);
}

#[test]
fn a_forwarded_port_gets_no_certificate_for_an_agent_that_has_none() {
    let kit = Kit::new(2);
    let (red, blue) = (kit.guest(0), kit.guest(1));
    // Red's VMI contradicts nothing that blue's agent shows.
    let host = kit.stage.plan.hosts[red.host].name.clone();
    let manifest = sim::vmi(&red, &host);
    let blank = manifest
        .replace(&red.firmware.to_string(), "00000000-0000-0000-0000-000000000000")
        .replace(&format!("    mac: \"{}\"\n", red.mac), "");
    assert_eq!(red.name, blue.name, "the host name fits, too");
    assert!(!blank.contains("mac:") && blank != manifest);
    kit.stage.write_vmi(&red, &blank).unwrap();
    // Its own VM is deleted, so that no one else enrols it.
    kit.delete(&blue);
    let agent = kit.run(AgentSpec::honest(&blue).unwrap());
    forward(red.address, blue.address);
    kit.until_refused(&red, "not_proved");
    kit.let_pulls_pass(&red, 3);
    assert_eq!(agent.accepted(), 0, "it has the certificate of another VM");
    assert_eq!(
        agent.claims(),
        0,
        "there is no authority to check a node proof with"
    );
}

/// The connection that enrols is another one than that of the pull, and may lead elsewhere.
#[test]
fn a_port_that_is_forwarded_for_the_enrolment_alone_takes_nothing_either() {
    let kit = Kit::new(2);
    let (red, blue) = (kit.guest(0), kit.guest(1));
    let agent = kit.run(AgentSpec::honest(&blue).unwrap());
    kit.until_up(&blue);
    let asked = agent.requests();
    let mut decoy = AgentSpec::honest(&red).unwrap().with_fault(EnrolFault::OtherUuid);
    decoy.address = ports::free().unwrap();
    forward_in_turn(red.address, [decoy.address, blue.address]);
    kit.run(decoy);
    let vm = kit.until_refused(&red, "key_of_another_vm");
    let message = vm["agent"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains(&*blue.cluster), "{message}");
    kit.let_pulls_pass(&red, 3);
    assert_eq!(agent.requests(), asked, "blue's agent is asked to enrol as red");
}

/// Forwards connections from one address to another, as long as the process lives.
fn forward(from: SocketAddr, to: SocketAddr) {
    forward_in_turn(from, [to]);
}

/// The same to each of several addresses in turn.
fn forward_in_turn<const N: usize>(from: SocketAddr, to: [SocketAddr; N]) {
    let listener = TcpListener::bind(from).unwrap();
    thread::spawn(move || {
        let mut to = to.iter().cycle();
        while let (Ok((client, _)), Some(to)) = (listener.accept(), to.next()) {
            if let Ok(server) = TcpStream::connect(to) {
                join(client, server);
            }
        }
    });
}

#[test]
fn a_guest_that_throws_its_certificates_away_gets_few() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let agent = kit.attack(&guest, EnrolFault::Forgets);
    wait::until(STAGE_TIMEOUT, "it got some", || agent.accepted() >= 2).unwrap();
    let (some, connections) = (agent.accepted(), agent.connections());
    wait::until(STAGE_TIMEOUT, "pulls go on", || {
        agent.connections() > connections + 5
    })
    .unwrap();
    let more = agent.accepted() - some;
    assert!(more <= 3, "{more} certificates in few seconds");
}
