//! Enrolment, end to end with the real collector on loopback: agents that start without a
//! certificate, honest ones and attackers.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod attacks;
mod certificates;
pub(crate) mod kit;
mod lifecycle;
mod load;
mod real;

use virtfleet_tests::sim::{Guest, enrol::AgentSpec};

use kit::{Kit, patient};

#[test]
fn agents_without_certificates_are_enrolled_and_joined() {
    let mut kit = Kit::with(6, patient());
    let agents = kit.run_all();
    kit.stage.until_up(6).unwrap();
    assert!(
        agents.iter().all(|agent| agent.accepted() == 1),
        "each exactly once"
    );
    let guest = kit.guest(0);
    let vm = kit.vm(&guest);
    let enrolment = &vm["enrolment"];
    assert_eq!(enrolment["state"], "enrolled");
    assert_eq!(enrolment["uid"], *guest.uid, "the VMI has no VirtualMachine");
    assert_eq!(
        agents[0].disk().identity().unwrap(),
        format!(
            "spiffe://virtfleet.test/vmi/{}/{}/{}",
            guest.cluster, guest.name, guest.uid
        )
    );
    assert_eq!(vm["findings"], 0, "{vm:#}");
    let page = kit.stage.text("/metrics").unwrap();
    for line in [
        "virtfleet_collector_enrolments_total{result=\"issued\"} 6",
        "virtfleet_collector_enrolments_total{result=\"second_key\"} 0",
        "virtfleet_collector_enrolled 6",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let list = kit.ctl(&["enrolment", "list"]);
    assert_eq!(list.lines().count(), 7, "{list}");
}

#[test]
fn the_virtual_machine_is_the_incarnation_if_there_is_one() {
    let mut kit = Kit::new(1);
    let guest = kit.guest(0);
    kit.own(&guest, "vm-uid");
    let agent = kit.run_all().remove(0);
    kit.stage.until_up(1).unwrap();
    assert!(agent.disk().identity().unwrap().ends_with("/vm-uid"));
    // A restart of the VM: the VMI is another one, the disk is the same.
    let disk = agent.stop().unwrap();
    let restarted = Guest {
        uid: "vmi-uid-2".to_owned(),
        ..guest
    };
    kit.own(&restarted, "vm-uid");
    let spec = AgentSpec::honest(&restarted).unwrap().with_disk(disk);
    let agent = kit.run(spec);
    kit.until_up(&restarted);
    assert_eq!(agent.requests(), 0, "its certificate is still valid");
}
