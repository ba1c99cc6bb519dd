//! What the platform has not given: queues for vCPUs that came later, and features that several devices lack.

use virtfleet_wire::finding::Severity;

use super::{
    fixtures::{CPUS, found, found_with, healthy, short, state},
    rules::channels,
};
use crate::virtio::{features::transport, status};

#[test]
fn queues_that_the_vm_lacks_are_left_behind_where_vcpus_have_come() {
    let mut machine = healthy();
    channels(&mut machine, 2, 2);
    let mut state = state();
    let with = |state: &mut crate::nic::state::NicState, first_cpus| {
        state.nics.get_mut("eth0").unwrap().first_cpus = first_cpus;
        found_with(&machine, state).remove(0)
    };
    let behind = with(&mut state, 2);
    assert_eq!(
        (behind.id.as_str(), behind.severity, behind.reason.as_str()),
        (
            "virtio-nic-queues-left-behind",
            Severity::Warning,
            "TooFewPossible"
        )
    );
    assert!(behind.remedy.starts_with("restart the VM"), "{behind:?}");
    // As it was started, or nobody knows.
    for first_cpus in [CPUS, CPUS + 1, 0] {
        let one = with(&mut state, first_cpus);
        assert_eq!(
            (one.id.as_str(), one.severity, &one.remedy),
            ("virtio-nic-fewer-queues", Severity::Info, &behind.remedy)
        );
    }
    // What the guest can mend comes first.
    channels(&mut machine, 1, 2);
    assert_eq!(found(&machine)[0].reason, "FewerQueues");
    let many: Vec<u32> = (0..300).collect();
    (machine.cpus.online, machine.cpus.present) = (many.clone(), many);
    channels(&mut machine, 256, 256);
    let nics = found(&machine);
    assert!(
        nics.iter().all(|one| one.subject.kind != "Interface"),
        "KubeVirt gives no more than 256: {nics:?}"
    );
}

#[test]
fn devices_that_lack_the_same_have_one_finding() {
    let mut machine = healthy();
    let mut other = machine.devices[0].clone();
    (other.name, other.parts) = ("virtio9".into(), vec!["eth1".into()]);
    machine.devices.push(other);
    for at in [0, 1, 4] {
        let device = &mut machine.devices[at];
        device.negotiated = device.negotiated.without(transport::EVENT_IDX);
    }
    let all = found(&machine);
    assert_eq!(
        short(&all),
        [
            "virtio-features-missing Info virtio1",
            "virtio-features-missing Info virtio2"
        ]
    );
    assert_eq!(
        all[0].message,
        "virtio1 (eth0), virtio9 (eth1) work without EVENT_IDX: more interrupts and kicks"
    );
    assert!(
        all.iter()
            .all(|one| one.remedy.starts_with("sudo virtfleet-agent virtio"))
    );
    machine.asked_offered = true;
    let asked = found(&machine);
    assert!(
        asked
            .iter()
            .all(|one| one.remedy.starts_with("this kernel does not tell")),
        "who has asked as root is not sent there again: {asked:?}"
    );
    assert!(!asked[1].remedy.contains("interface"), "{asked:?}");
}

#[test]
fn a_device_that_has_failed_is_as_bad_as_what_it_carries_and_random_numbers_come_from_somewhere() {
    let mut machine = healthy();
    machine.devices[1].status = Some(status::FAILED);
    assert_eq!(short(&found(&machine)), ["virtio-device-failed Critical virtio2"]);
    let mut machine = healthy();
    machine.devices.remove(2);
    machine.cpus.random = Some(false);
    assert_eq!(short(&found(&machine)), ["virtio-no-rng Info rng"]);
    machine.cpus.random = None;
    assert_eq!(found(&machine), []);
}
