//! The real agent and the real collector.

use serde_json::Value;

use super::kit::Kit;
use crate::real_guest::RealGuest;

/// The recorded key.
fn key(vm: &Value) -> String {
    vm["enrolment"]["keySha256"].as_str().unwrap().to_owned()
}

#[test]
fn the_real_agent_is_enrolled_and_keeps_its_certificate() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit.stage);
    let agent = real.start();
    // The first answer may come before the agent has read its UUID.
    let confirmed =
        |vm: &Value| vm["agent"]["status"] == "up" && vm["identity"]["smbiosUuid"]["verdict"] == "confirmed";
    let vm = kit
        .stage
        .until_vm(&real.guest, "its UUID is confirmed", confirmed);
    let vm = vm.unwrap();
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    RealGuest::stop(agent);
    let agent = real.start();
    kit.let_pulls_pass(&real.guest, 2);
    let again = kit.until_up(&real.guest);
    assert_eq!(
        (key(&again), &again["enrolment"]["serial"]),
        (key(&vm), &vm["enrolment"]["serial"])
    );
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_of_another_machine_is_refused() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit.stage);
    let other = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
    real.home.set_uuid(other).unwrap();
    let agent = real.start();
    kit.until_refused(&real.guest, "uuid_differs");
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_of_a_vm_that_is_created_again_gets_another_key() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit.stage);
    let agent = real.start();
    let before = kit.until_up(&real.guest);
    let again = kit.recreate(&real.guest, "second-uid");
    let is_new = |vm: &Value| vm["enrolment"]["uid"] == "second-uid" && vm["agent"]["status"] == "up";
    let vm = kit
        .stage
        .until_vm(&again, "it is enrolled again", is_new)
        .unwrap();
    assert_ne!(key(&vm), key(&before));
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_that_lost_its_disk_is_accepted_after_a_reset() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit.stage);
    let agent = real.start();
    kit.until_up(&real.guest);
    RealGuest::stop(agent);
    real.home.clear_root().unwrap();
    let agent = real.start();
    kit.until_refused(&real.guest, "second_key");
    kit.ctl(&["enrolment", "reset", &real.guest.name]);
    kit.until_up(&real.guest);
    RealGuest::stop(agent);
}
