//! Certificates that must not be used. The agents here do not enrol, so that they cannot get better
//! ones.

use virtfleet_tests::{
    pki::Authority,
    sim::{
        Guest,
        enrol::{AgentDisk, AgentSpec, EnrolFault},
    },
};

use super::kit::{self, Kit};

/// An agent that serves with `disk` at the address of `guest` and asks for no certificate.
fn serve(kit: &Kit, guest: &Guest, disk: AgentDisk) {
    let spec = AgentSpec::honest(guest)
        .unwrap()
        .with_fault(EnrolFault::NotOffered)
        .with_disk(disk);
    kit.run(spec);
}

/// A disk with a certificate for `guest`, valid from and until so many seconds from now.
fn disk(kit: &Kit, guest: &Guest, from: i64, until: i64) -> AgentDisk {
    let mut disk = AgentDisk::new().unwrap();
    kit::signed(&kit.authorities(), &mut disk, guest, from, until);
    disk
}

#[test]
fn a_valid_certificate_without_a_record_is_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    serve(&kit, &guest, disk(&kit, &guest, -60, 3600));
    kit.until_up(&guest);
}

#[test]
fn a_certificate_of_cluster_a_is_not_used_for_cluster_b() {
    let kit = Kit::new(2);
    let (a, b) = (kit.guest(0), kit.guest(1));
    assert_ne!(a.cluster, b.cluster);
    assert_eq!(a.name, b.name, "only the cluster differs");
    serve(&kit, &b, disk(&kit, &a, -60, 3600));
    kit.until_class(&b, "wrong_vm");
    assert_eq!(kit.until_finding(&b, "agent-wrong-vm")["severity"], "critical");
    assert_eq!(kit.stage.json("/sd").unwrap().as_array().unwrap().len(), 0);
}

#[test]
fn a_certificate_of_an_old_incarnation_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let old = disk(&kit, &guest, -60, 3600);
    let again = kit.recreate(&guest, "another-uid");
    serve(&kit, &again, old);
    kit.until_class(&again, "wrong_vm");
}

#[test]
fn a_deleted_vm_is_not_dialled() {
    let kit = Kit::new(2);
    let guest = kit.guest(0);
    let agent = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_up(&guest);
    kit.delete(&guest);
    // Another VM shows that pulls go on.
    let other = kit.guest(1);
    kit.run(AgentSpec::honest(&other).unwrap());
    kit.until_up(&other);
    let before = agent.connections();
    kit.let_pulls_pass(&other, 3);
    assert_eq!(agent.connections(), before);
}

#[test]
fn an_expired_certificate_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    serve(&kit, &guest, disk(&kit, &guest, -3000, -60));
    kit.until_class(&guest, "tls");
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    serve(&kit, &guest, disk(&kit, &guest, 3000, 6000));
    kit.until_class(&guest, "tls");
}

#[test]
fn a_certificate_for_a_client_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let mut disk = AgentDisk::new().unwrap();
    let signed = kit
        .authorities()
        .sign_client(
            kit::csr(&disk).key(),
            &kit::identity(&guest).to_uri(),
            &["agent.virtfleet.internal".to_owned()],
            kit::validity(-60, 3600),
        )
        .unwrap();
    disk.accept(&signed.chain_pem).unwrap();
    serve(&kit, &guest, disk);
    kit.until_class(&guest, "tls");
}

#[test]
fn a_certificate_of_another_root_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let stranger = Authority::new("another authority").unwrap();
    let identity = stranger.agent(&guest.cluster, &guest.name, &guest.uid).unwrap();
    let disk = AgentDisk::with_certificate(&identity.key_pem(), &identity.certificate_pem()).unwrap();
    serve(&kit, &guest, disk);
    kit.until_class(&guest, "tls");
}

#[test]
fn a_certificate_for_another_key_than_the_recorded_one_is_not_used() {
    let kit = Kit::new(1);
    let guest = kit.guest(0);
    let agent = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.until_up(&guest);
    agent.stop().unwrap();
    // As if an authority outside had issued it, or one of an earlier enrolment.
    serve(&kit, &guest, disk(&kit, &guest, -60, 3600));
    let vm = kit.until_class(&guest, "wrong_vm");
    let message = vm["agent"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains("the recorded key is"), "{message}");
}
