//! VMs whose address says which VM they are, and whose UUID proves nothing: KubeVirt before 1.5
//! made it from their name.

use std::{fs, path::Path};

use serde_json::Value;
use virtfleet_tests::{
    cluster::machine_of_name,
    sim::enrol::{AgentSpec, EnrolFault},
    stage::Stage,
};

use super::{kit::PushKit, node_proofs::Clusters};
use crate::relay::{Relay, put_behind};

/// Gives the first VM and its Node the UUID that follows from its name.
fn hash(stage: &mut Stage) {
    let guest = &mut stage.plan.guests[0];
    let (random, hashed) = (guest.firmware, machine_of_name(&guest.name));
    guest.firmware = hashed;
    replace(&stage.manifests(), &random.to_string(), &hashed.to_string());
}

/// Replaces a text in all files below a folder.
fn replace(folder: &Path, old: &str, new: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            replace(&path, old, new);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if text.contains(old) {
            fs::write(&path, text.replace(old, new)).unwrap();
        }
    }
}

#[test]
fn a_uuid_that_follows_from_the_name_enrols_no_agent_that_connects_itself() {
    let kit = PushKit::with(1, "", hash);
    let guest = kit.kit.guest(0);
    let agent = kit.push(&guest);
    kit.kit.until_refused(&guest, "not_proved");
    let finding = kit.kit.until_finding(&guest, "agent-enrolment");
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(remedy.contains("push.tokenFile"), "{remedy}");
    assert_eq!(agent.accepted(), 0);
    assert!(agent.claims() > 0, "it may have a token, or a proof");
}

#[test]
fn a_join_token_enrols_it_at_its_own_address() {
    let kit = PushKit::with(1, "", hash);
    let guest = kit.kit.guest(0);
    // Accepted only from the address of the VM's own pod.
    let token = kit.kit.ctl(&["token", "create", &guest.cluster]);
    let spec = AgentSpec::honest(&guest).unwrap().pushing(kit.ingest);
    let agent = kit.run(spec.with_token(token.trim()));
    let vm = kit.until_way(&guest, "push");
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    assert_eq!(vm["findings"], 0, "{vm:#}");
    assert!(agent.claims() > 0 && agent.accepted() == 1);
    assert_eq!(
        kit.results("enrolment"),
        0,
        "it is asked over the same connection"
    );
    let list = kit.kit.ctl(&["token", "list", "-o", "json"]);
    assert!(list.contains("lastUsedMs"), "{list}");
}

#[test]
fn a_token_proves_nothing_for_a_guest_that_contradicts_its_vm() {
    let kit = PushKit::with(1, "", hash);
    let guest = kit.kit.guest(0);
    let token = kit.kit.ctl(&["token", "create", &guest.cluster]);
    let spec = AgentSpec::honest(&guest).unwrap().pushing(kit.ingest);
    let spec = spec.with_token(token.trim()).with_fault(EnrolFault::OtherMac);
    let agent = kit.run(spec);
    kit.kit.until_refused(&guest, "mac_differs");
    assert_eq!(
        (agent.claims(), agent.accepted()),
        (0, 0),
        "nothing else is asked"
    );
}

#[test]
fn its_kubelet_enrols_it_at_its_own_address() {
    let clusters = Clusters::with(1, hash);
    let guest = clusters.kit.kit.guest(0);
    let _agent = clusters
        .kit
        .run(clusters.proved(&guest).pushing(clusters.kit.ingest));
    let vm = clusters.kit.until_way(&guest, "push");
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    assert_eq!(vm["findings"], 0, "{vm:#}");
}

#[test]
fn a_dialled_agent_is_asked_for_a_proof_only_if_it_can_be_checked() {
    let behind_relay = |kit: &PushKit| {
        let guest = kit.kit.guest(0);
        let relay = Relay::start(kit.kit.stage.path(), guest.address.port(), &[]);
        put_behind(&kit.kit.stage, &guest.cluster, relay.connect);
        let is_read = |vm: &Value| vm["agent"]["way"]["kind"] == "relay";
        kit.kit
            .stage
            .until_vm(&guest, "its relay is read", is_read)
            .unwrap();
        relay
    };
    // No authority of its kubelets is known.
    let kit = PushKit::with(1, "", hash);
    let guest = kit.kit.guest(0);
    let _relay = behind_relay(&kit);
    let agent = kit.run(AgentSpec::honest(&guest).unwrap());
    kit.kit.until_refused(&guest, "not_proved");
    assert_eq!((agent.claims(), agent.accepted()), (0, 0));

    let clusters = Clusters::with(1, hash);
    let guest = clusters.kit.kit.guest(0);
    let _relay = behind_relay(&clusters.kit);
    let agent = clusters.kit.run(clusters.proved(&guest));
    let vm = clusters.kit.until_way(&guest, "relay");
    assert_eq!(vm["enrolment"]["state"], "enrolled", "{vm:#}");
    assert!(agent.claims() > 0 && agent.accepted() == 1);
}
