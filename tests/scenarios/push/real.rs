//! The real agent and the real collector, which cannot dial it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
};

use serde_json::Value;
use virtfleet_tests::{sim, skip, stage::STAGE_TIMEOUT};

use super::{
    kit::{PushKit, pushed},
    node_proofs::{Clusters, NODES, user},
};
use crate::real_guest::RealGuest;

/// No VM is in this network, so none is dialled.
const NOT_DIALLED: &str = "10.0.0.0/8";
/// The address of the VM, from which it does not connect.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 9));
/// The agents connect from there, which is the address of no VM.
const LOOPBACK: &str = "127.0.0.0/8";

/// Settings of an agent that connects at once, with further evidence.
fn settings(kit: &PushKit, evidence: &str) -> String {
    format!(
        "push: {{ collector: \"{}\", after: 1s, {evidence} }}\n",
        kit.ingest
    )
}

/// A VM with this evidence and a Node. It listens on this machine, and the inventory has another
/// address.
fn real(kit: &PushKit, evidence: &str) -> RealGuest {
    let real = RealGuest::with(&kit.kit.stage, &settings(kit, evidence));
    let stage = &kit.kit.stage;
    let mut known = real.guest.clone();
    known.address.set_ip(ELSEWHERE);
    let host = &stage.plan.hosts[known.host];
    stage.write_vmi(&known, &sim::vmi(&known, &host.name)).unwrap();
    let node = format!("clusters/{}/node-{}.yaml", known.cluster, known.name);
    let text = sim::user_node(&known, host, &stage.plan.region);
    stage.write_manifest(&node, &text).unwrap();
    let has_moved = |vm: &Value| vm.to_string().contains(&ELSEWHERE.to_string());
    stage
        .until_vm(&real.guest, "its address is read", has_moved)
        .unwrap();
    real
}

#[test]
fn the_real_agent_connects_and_enrols_with_a_join_token() {
    let kit = PushKit::with(1, "", |stage| stage.set_allowed(NOT_DIALLED));
    let real = real(&kit, "tokenFile: /etc/virtfleet/join-token");
    let cluster = real.guest.cluster.clone();
    let token = kit.kit.ctl(&["token", "create", &cluster, "--from", LOOPBACK]);
    let folder = real.home.at("root/etc/virtfleet");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("join-token"), token).unwrap();
    let agent = real.start();
    let vm = kit.until_way(&real.guest, "push");
    assert_eq!(vm["enrolment"]["state"], "enrolled", "{vm:#}");
    kit.kit.let_pulls_pass(&real.guest, 2);
    pushed(&kit.kit.vm(&real.guest));
    // The certificate is enough for the next connection.
    RealGuest::stop(agent);
    fs::remove_file(folder.join("join-token")).unwrap();
    let agent = real.start();
    kit.kit.let_pulls_pass(&real.guest, 2);
    let again = kit.until_way(&real.guest, "push");
    assert_eq!(again["enrolment"]["serial"], vm["enrolment"]["serial"]);
    RealGuest::stop(agent);
}

#[test]
fn tier2_the_real_agent_enrols_once_its_kubelet_vouches() {
    if skip::need(
        2,
        "tier2_the_real_agent_enrols_once_its_kubelet_vouches",
        skip::root(),
    )
    .unwrap()
    .is_none()
    {
        return;
    }
    let clusters = Clusters::with(1, |stage| stage.set_allowed(NOT_DIALLED));
    let kit = &clusters.kit;
    let file = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let real = real(kit, &format!("kubeletCertificate: {file}"));
    let agent = real.start();
    // The node has not joined its cluster yet.
    kit.until_closed("tls");
    let path = real.home.at("root").join(file.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let authority = clusters.authority(&real.guest.cluster);
    fs::write(path, authority.kubelet(&user(&real.guest), NODES).unwrap()).unwrap();
    let reconcile = real.command(&["apply", "--stage", "reconcile"]);
    let output = reconcile.output(STAGE_TIMEOUT).unwrap();
    assert!(output.status.success(), "{output:?}");
    let vm = kit.until_way(&real.guest, "push");
    assert_eq!(vm["enrolment"]["state"], "enrolled", "{vm:#}");
    RealGuest::stop(agent);
}
