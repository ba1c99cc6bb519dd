//! Findings about the platform: queues for vCPUs that were added later, and features that several
//! devices lack.

use virtfleet_wire::finding::Severity;

use super::{
    fixtures::{CPUS, found, found_with, healthy, short, state},
    rules::channels,
};
use crate::virtio::{features::transport, status};

#[test]
fn added_vcpus_without_queues_are_reported() {
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
    // As it was started, or unknown.
    for first_cpus in [CPUS, CPUS + 1, 0] {
        let one = with(&mut state, first_cpus);
        assert_eq!(
            (one.id.as_str(), one.severity, &one.remedy),
            ("virtio-nic-fewer-queues", Severity::Info, &behind.remedy)
        );
    }
    // Findings that the guest can fix come first.
    channels(&mut machine, 1, 2);
    assert_eq!(found(&machine)[0].reason, "FewerQueues");
    let many: Vec<u32> = (0..300).collect();
    (machine.cpus.online, machine.cpus.present) = (many.clone(), many);
    channels(&mut machine, 256, 256);
    let nics = found(&machine);
    assert!(
        nics.iter().all(|one| one.subject.kind != "Interface"),
        "KubeVirt gives at most 256: {nics:?}"
    );
}

#[test]
fn devices_lacking_equal_features_share_a_finding() {
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
            .all(|one| one.remedy.starts_with("this kernel does not show")),
        "root has read the offered features already: {asked:?}"
    );
    assert!(!asked[1].remedy.contains("interface"), "{asked:?}");
}

#[test]
fn severity_of_failed_devices_and_missing_random_source() {
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
