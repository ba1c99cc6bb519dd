//! Agents that connect with what is not theirs, and neighbours that connect in their place.

use std::net::TcpStream;

use virtfleet_tests::{
    pki::{self, Authority},
    sim::{
        self, Guest,
        enrol::{AgentDisk, AgentSpec, EnrolFault, RunningAgent},
    },
    stage::STAGE_TIMEOUT,
    wait,
};

use super::kit::PushKit;
use crate::enrolment::kit::{join, patient, signed};

/// An address that belongs to no VM.
const FOREIGN: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 77));

/// Runs an agent with this disk that connects from a foreign address.
fn from_elsewhere(kit: &PushKit, guest: &Guest, disk: AgentDisk) -> RunningAgent {
    let spec = AgentSpec::honest(guest)
        .unwrap()
        .pushing_from(kit.ingest, FOREIGN)
        .with_disk(disk);
    kit.run(spec)
}

/// A connection with this disk is closed for this reason, and another VM is joined all the while.
fn is_closed(disk: impl FnOnce(&PushKit, &Guest) -> AgentDisk, result: &str) {
    let kit = PushKit::new(2, "");
    let (victim, other) = (kit.kit.guest(0), kit.kit.guest(1));
    let disk = disk(&kit, &victim);
    let attacker = from_elsewhere(&kit, &victim, disk);
    kit.until_closed(result);
    let _honest = kit.push(&other);
    kit.until_way(&other, "push");
    let vm = kit.kit.vm(&victim);
    assert_ne!(vm["agent"]["status"], "up", "{vm:#}");
    assert_eq!(
        vm["agent"]["version"],
        serde_json::Value::Null,
        "nothing was read"
    );
    assert_eq!(attacker.accepted(), 0, "no certificate");
}

#[test]
fn an_agent_without_certificate_at_a_foreign_address_is_not_enrolled() {
    is_closed(|_, _| AgentDisk::new().unwrap(), "tls");
}

#[test]
fn an_address_of_two_vms_enrols_neither() {
    let kit = PushKit::new(2, "");
    let (first, second) = (kit.kit.guest(0), kit.kit.guest(1));
    let same = Guest {
        address: first.address,
        ..second.clone()
    };
    let host = kit.kit.stage.plan.hosts[second.host].name.clone();
    kit.kit.stage.write_vmi(&second, &sim::vmi(&same, &host)).unwrap();
    let is_shared = |vm: &serde_json::Value| vm["agent"]["address"] == first.address.to_string();
    let shared = kit
        .kit
        .stage
        .until_vm(&second, "it shares the address", is_shared);
    shared.unwrap();
    let agent = kit.push(&first);
    kit.until_closed("address_shared");
    assert_eq!((agent.requests(), agent.accepted()), (0, 0), "nothing is sent");
}

#[test]
fn an_expired_certificate_is_refused() {
    let expired = |kit: &PushKit, guest: &Guest| {
        let mut disk = AgentDisk::new().unwrap();
        signed(&kit.kit.authorities(), &mut disk, guest, -1800, -60);
        disk
    };
    is_closed(expired, "tls");
}

#[test]
fn a_certificate_of_another_fleet_is_refused() {
    let foreign = |_: &PushKit, guest: &Guest| {
        let authority = Authority::new("another fleet").unwrap();
        let identity = authority.agent(&guest.cluster, &guest.name, &guest.uid).unwrap();
        AgentDisk::with_certificate(&identity.key_pem(), &identity.certificate_pem()).unwrap()
    };
    is_closed(foreign, "tls");
}

#[test]
fn a_certificate_of_an_old_incarnation_is_refused() {
    let old = |kit: &PushKit, guest: &Guest| {
        let disk = kit.enrolled(guest);
        kit.kit.recreate(guest, "second-uid");
        let is_read = |vm: &serde_json::Value| vm["uid"] == "second-uid";
        kit.kit.stage.until_vm(guest, "it is read", is_read).unwrap();
        disk
    };
    is_closed(old, "wrong_vm");
}

#[test]
fn a_certificate_of_a_deleted_vm_is_refused() {
    let kit = PushKit::new(2, "");
    let guest = kit.kit.guest(0);
    let disk = kit.enrolled(&guest);
    kit.kit.delete(&guest);
    let _agent = from_elsewhere(&kit, &guest, disk);
    kit.until_closed("no_vm");
}

#[test]
fn a_collectors_certificate_is_no_agents() {
    let kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let authority = Authority::new("clients").unwrap();
    let identity = authority.collector().unwrap();
    let disk = AgentDisk::with_certificate(&identity.key_pem(), &identity.certificate_pem()).unwrap();
    let _agent = from_elsewhere(&kit, &guest, disk);
    kit.until_closed("tls");
    assert_eq!(pki::TRUST_DOMAIN, "virtfleet.test");
}

#[test]
fn a_certificate_reports_as_its_own_vm_only() {
    let kit = PushKit::new(2, "");
    let (own, victim) = (kit.kit.guest(0), kit.kit.guest(1));
    // It connects from the victim's address, and claims to be the victim in all that it sends.
    let spec = AgentSpec::honest(&victim)
        .unwrap()
        .pushing(kit.ingest)
        .with_disk(kit.enrolled(&own));
    let _attacker = kit.run(spec);
    let vm = kit.until_way(&own, "push");
    assert_eq!(vm["name"], *own.name);
    let finding = kit.kit.until_finding(&own, "identity-uuid-mismatch");
    assert_eq!(finding["severity"], "critical", "{finding:#}");
    let vm = kit.kit.vm(&victim);
    assert_ne!(vm["agent"]["status"], "up", "{vm:#}");
    assert_eq!(vm["guest"], serde_json::Value::Null, "{vm:#}");
}

#[test]
fn a_revoked_vm_is_cut_off_while_it_is_connected() {
    let kit = PushKit::pulling(1, "", patient());
    let guest = kit.kit.guest(0);
    let agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    let name = format!("{}/{}", guest.cluster, guest.name);
    kit.kit.ctl(&["enrolment", "revoke", &name]);
    kit.until_closed("enrolment");
    kit.kit.until_refused(&guest, "revoked");
    assert_eq!(agent.accepted(), 1, "nothing more was issued");
    kit.kit.ctl(&["enrolment", "reset", &name]);
    kit.until_way(&guest, "push");
    assert_eq!(agent.accepted(), 2, "with a new certificate");
}

#[test]
fn a_second_key_is_a_critical_finding() {
    let kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let first = kit.push(&guest);
    kit.until_way(&guest, "push");
    first.stop().unwrap();
    let second = kit.push(&guest);
    kit.kit.until_refused(&guest, "second_key");
    let finding = kit.kit.until_finding(&guest, "agent-enrolment");
    assert_eq!(finding["severity"], "critical", "{finding:#}");
    assert_eq!(second.accepted(), 0);
    wait::until(STAGE_TIMEOUT, "it is counted", || kit.results("enrolment") >= 1).unwrap();
}

#[test]
fn evidence_that_differs_is_refused_as_in_a_pull() {
    let kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let spec = AgentSpec::honest(&guest).unwrap().pushing(kit.ingest);
    let agent = kit.run(spec.with_fault(EnrolFault::OtherUuid));
    kit.kit.until_refused(&guest, "uuid_differs");
    assert_eq!(agent.accepted(), 0);
    wait::until(STAGE_TIMEOUT, "it is counted", || kit.results("enrolment") >= 1).unwrap();
}

/// A neighbour joins the port of an agent, which would not connect by itself, to the collector's.
#[test]
fn a_port_that_is_joined_to_the_collectors_is_no_agent_that_connects() {
    let kit = PushKit::pulling(1, "", patient());
    let guest = kit.kit.guest(0);
    let _agent = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_way(&guest, "direct");
    join(
        TcpStream::connect(guest.address).unwrap(),
        TcpStream::connect(kit.ingest).unwrap(),
    );
    kit.until_closed("tls");
    assert_eq!(kit.results("verified"), 0);
    assert_eq!(kit.kit.until_up(&guest)["agent"]["way"]["kind"], "direct");
}

#[test]
fn a_way_that_works_is_kept_and_the_other_one_is_tried_at_once() {
    let kit = PushKit::pulling(1, "", patient());
    let guest = kit.kit.guest(0);
    let dialled = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_way(&guest, "direct");
    // A connection with the certificate of the VM, over which no page is answered.
    let spec = AgentSpec::honest(&guest).unwrap().pushing(kit.ingest);
    let stalled = kit.run(spec.with_disk(dialled.disk()));
    stalled.hold_pages(true);
    let connected = || kit.results("verified") >= 1;
    wait::until(STAGE_TIMEOUT, "it has connected", connected).unwrap();
    kit.kit.let_pulls_pass(&guest, 2);
    assert_eq!(kit.kit.until_up(&guest)["agent"]["way"]["kind"], "direct");
    assert_eq!(stalled.reports(), 0, "its connection is not used");
    // Without the agent that is dialled, the same pull uses the connection.
    stalled.hold_pages(false);
    let disk = dialled.stop().unwrap();
    kit.until_way(&guest, "push");
    // And when that stalls, the same pull dials.
    let dialled = kit.run(AgentSpec::honest(&guest).unwrap().with_disk(disk));
    stalled.hold_pages(true);
    kit.until_way(&guest, "direct");
    assert!(dialled.reports() > 0 && stalled.held_pages() > 0);
    assert_eq!(kit.pulls_failed(), 0, "no pull was without an answer");
}

#[test]
fn connections_end_with_the_authority_that_vouched_for_them() {
    let kit = PushKit::pulling(2, "", patient());
    let (near, far) = (kit.kit.guest(0), kit.kit.guest(1));
    let agents = [kit.run(AgentSpec::honest(&near).unwrap()), kit.push(&far)];
    kit.until_way(&near, "direct");
    kit.until_way(&far, "push");
    kit.kit.ctl(&["ca", "rotate", "agents", "--distrust-previous"]);
    for (agent, way) in agents.iter().zip(["direct", "push"]) {
        let what = format!("the agent by {way} has a certificate of the new authority");
        wait::until(STAGE_TIMEOUT, &what, || agent.accepted() == 2).unwrap();
    }
    kit.until_way(&near, "direct");
    kit.until_way(&far, "push");
}
