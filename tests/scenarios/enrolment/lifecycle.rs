//! The path of an honest VM, and what an admin does with it.

use serde_json::Value;
use virtfleet_tests::{
    sim::enrol::{AgentSpec, EnrolFault},
    stage::STAGE_TIMEOUT,
    wait,
};

use super::kit::{self, Kit, beat, patient};

#[test]
fn after_a_restart_of_the_collector_no_agent_enrols_again() {
    let mut kit = Kit::with(6, patient());
    let agents = kit.run_all();
    kit.stage.until_up(6).unwrap();
    kit.restart_collector();
    kit.stage.until_up(6).unwrap();
    assert!(
        agents
            .iter()
            .all(|agent| (agent.requests(), agent.accepted()) == (1, 1))
    );
    // The records are the same: another key is still refused.
    let mut agents = agents;
    agents.remove(0).stop().unwrap();
    let guest = kit.guest(0);
    kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_refused(&guest, "second_key");
}

#[test]
fn an_agent_that_lost_its_certificate_gets_another_for_its_key() {
    let mut kit = Kit::new(1);
    let agent = kit.run_all().remove(0);
    let guest = kit.guest(0);
    kit.until_up(&guest);
    let mut disk = agent.stop().unwrap();
    disk.forget();
    let spec = AgentSpec::honest(&guest).unwrap().with_disk(disk);
    let agent = kit.run(spec);
    wait::until(STAGE_TIMEOUT, "it has a certificate", || agent.accepted() == 1).unwrap();
    kit.until_up(&guest);
}

#[test]
fn a_certificate_is_renewed_over_the_connection_of_the_pull() {
    let mut kit = Kit::with(1, patient());
    let guest = kit.guest(0);
    let agent = kit.run_all().remove(0);
    kit.until_up(&guest);
    kit.stop_collector();
    // A certificate for the same key of which three quarters are over.
    let mut disk = agent.stop().unwrap();
    kit::signed(&kit.authorities(), &mut disk, &guest, -2700, 900);
    let spec = AgentSpec::honest(&guest).unwrap().with_disk(disk);
    let agent = kit.run(spec);
    kit.stage.start_collector(patient()).unwrap();
    wait::until(STAGE_TIMEOUT, "it is renewed", || agent.accepted() == 1).unwrap();
    let vm = kit.until_up(&guest);
    assert_eq!(vm["findings"], 0, "no pull failed: {vm:#}");
    // The collector counts it when it has the agent's answer.
    let page = wait::eventually(STAGE_TIMEOUT, "it is counted", || {
        let page = kit.stage.text("/metrics")?;
        let line = "virtfleet_collector_enrolments_total{result=\"renewed\"} 1";
        anyhow::ensure!(page.contains(line), "{page}");
        Ok(page)
    })
    .unwrap();
    for line in [
        "virtfleet_collector_enrolments_total{result=\"issued\"} 0",
        "virtfleet_collector_pulls_total{result=\"tls\"} 0",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[test]
fn a_renewal_that_fails_is_a_finding_before_the_certificate_ends() {
    let mut kit = Kit::new(1);
    let guest = kit.guest(0);
    let agent = kit.run_all().remove(0);
    kit.until_up(&guest);
    kit.stop_collector();
    let mut disk = agent.stop().unwrap();
    // A tenth is left.
    kit::signed(&kit.authorities(), &mut disk, &guest, -2700, 300);
    let spec = AgentSpec::honest(&guest)
        .unwrap()
        .with_fault(EnrolFault::NeverAccepts)
        .with_disk(disk);
    kit.run(spec);
    kit.stage.start_collector(beat()).unwrap();
    kit.until_up(&guest);
    let finding = kit.until_finding(&guest, "agent-certificate-expiring");
    assert_eq!(finding["severity"], "warning");
    assert_eq!(finding["evidence"]["renewal"], "not_accepted", "{finding:#}");
}

#[test]
fn a_vm_created_again_under_its_name_is_enrolled_anew() {
    let mut kit = Kit::new(1);
    let guest = kit.guest(0);
    let agent = kit.run_all().remove(0);
    kit.until_up(&guest);
    let old = agent.disk();
    // The disk was kept: the agent sees another identity, and replaces its key.
    let again = kit.recreate(&guest, "second-uid");
    let is_new = |vm: &Value| vm["enrolment"]["uid"] == "second-uid" && vm["agent"]["status"] == "up";
    kit.stage
        .until_vm(&again, "it is enrolled again", is_new)
        .unwrap();
    assert_ne!(agent.disk().public_key().unwrap(), old.public_key().unwrap());
    agent.stop().unwrap();
    // The old identity is worthless.
    let spec = AgentSpec::honest(&again).unwrap().with_disk(old);
    kit.run(spec);
    kit.until_refused(&again, "second_key");
}

#[test]
fn a_revoked_vm_is_cut_off_and_comes_back_after_a_reset() {
    let mut kit = Kit::with(2, patient());
    let agents = kit.run_all();
    kit.stage.until_up(2).unwrap();
    let guest = kit.guest(0);
    let name = format!("{}/{}", guest.cluster, guest.name);
    let before = agents[0].connections();
    let shown = kit.ctl(&["enrolment", "revoke", &name]);
    assert!(shown.contains("revoked"), "{shown}");
    let vm = kit.until_refused(&guest, "revoked");
    assert_eq!(vm["enrolment"]["state"], "revoked");
    let targets = kit.stage.json("/sd").unwrap();
    assert_eq!(
        targets.as_array().unwrap().len(),
        1,
        "Prometheus scrapes the other one only"
    );
    let path = format!("/vm/{}/{}/metrics", guest.cluster, guest.name);
    kit.stage.text(&path).unwrap_err();
    assert_eq!(agents[0].requests(), 1, "nothing is issued to it");
    assert!(
        agents[0].connections() > before,
        "the kept connection was closed and the certificate met again"
    );
    let list = kit.ctl(&["enrolment", "list", "--state", "revoked"]);
    assert!(list.contains(&guest.name) && list.lines().count() == 2, "{list}");
    kit.restart_collector();
    kit.until_refused(&guest, "revoked");
    // The deny list has the serial number, for collectors that do not lead.
    let deny = std::fs::read_to_string(kit.stage.ca_folder().join("deny")).unwrap();
    let serial = vm["enrolment"]["serial"].as_str().unwrap();
    assert!(deny.contains(serial), "{deny}");
    kit.ctl(&["enrolment", "reset", &name]);
    kit.until_up(&guest);
    assert_eq!(agents[0].accepted(), 2, "with a new certificate");
}

#[test]
fn after_a_reset_another_key_is_accepted_and_the_old_one_is_not() {
    let mut kit = Kit::with(1, patient());
    let guest = kit.guest(0);
    let agent = kit.run_all().remove(0);
    kit.until_up(&guest);
    let old = agent.stop().unwrap();
    let restored = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_refused(&guest, "second_key");
    kit.ctl(&["enrolment", "reset", &guest.name]);
    kit.until_up(&guest);
    assert_eq!(restored.accepted(), 1);
    restored.stop().unwrap();
    let spec = AgentSpec::honest(&guest).unwrap().with_disk(old);
    kit.run(spec);
    kit.until_refused(&guest, "second_key");
}

#[test]
fn a_vm_is_revoked_before_it_has_enrolled() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    kit.ctl(&["enrolment", "revoke", &guest.name]);
    let agent = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_refused(&guest, "revoked");
    assert_eq!(agent.requests(), 0);
    kit.ctl(&["enrolment", "reset", &guest.name]);
    kit.until_up(&guest);
}

#[test]
fn an_unknown_vm_and_an_unknown_action_are_refused() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let run = |args: &[&str]| kit.stage.ctl().unwrap().args(args).output(STAGE_TIMEOUT).unwrap();
    let output = run(&["enrolment", "reset", &guest.name]);
    assert_eq!(output.status.code(), Some(4), "nothing is recorded: {output:?}");
    let output = run(&["enrolment", "revoke", "cluster-a/not-there"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let output = run(&["enrolment", "list", "--watch"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn damaged_records_stop_enrolment_until_they_are_restored() {
    let mut kit = Kit::new(2);
    let first = kit.guest(0);
    kit.run(AgentSpec::honest(&first).unwrap());
    kit.until_up(&first);
    kit.stop_collector();
    let file = kit.stage.ca_folder().join("enrolments.json");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &good[..good.len() / 2]).unwrap();
    kit.stage.start_collector(beat()).unwrap();
    kit.until_up(&first);
    let second = kit.guest(1);
    let agent = kit.run(AgentSpec::honest(&second).unwrap());
    let vm = kit.until_refused(&second, "not_recorded");
    let message = vm["agent"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains("stored records"), "{message}");
    assert_eq!(
        agent.requests(),
        0,
        "without records a second key would be accepted"
    );
    std::fs::write(&file, &good).unwrap();
    kit.until_up(&second);
}
