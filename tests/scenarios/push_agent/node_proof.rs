//! Root's part vouches for the agent with the kubelet's key (decision 0035); the agent shows the
//! proof, and has no need of that key.

use std::fs;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::json;
use virtfleet_tests::{enrolment::EnrolmentClient, pki::Authority, skip};
use virtfleet_wire::enrolment::{CLAIM_PATH, EnrolmentClaim};

use super::report;
use crate::agent_stage::{AgentStage, IDENTITY, SOON};

/// The file in the guest.
const KUBELET: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

#[test]
fn tier2_the_agent_never_opens_the_file_with_which_root_vouches_for_it() {
    let test = "tier2_the_agent_never_opens_the_file_with_which_root_vouches_for_it";
    if skip::need(2, test, skip::root()).unwrap().is_none() {
        return;
    }
    let stage = AgentStage::pushing();
    let ingest = stage.ingest.local_addr().unwrap();
    let push = format!("push: {{collector: \"{ingest}\", after: 1s, kubeletCertificate: {KUBELET}}}\n");
    stage.home.configure(&stage.at("ca.pem"), "", &push).unwrap();
    let file = stage.at("root").join(KUBELET.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let authority = Authority::new("kubelets").unwrap();
    let kubelet = authority.kubelet("system:node:worker-0", "system:nodes");
    fs::write(&file, kubelet.unwrap()).unwrap();
    // The test runs as root, so the file's mode would stop no program.
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
    watch.add_watch(file.as_path(), AddWatchFlags::IN_OPEN).unwrap();
    // Without an event it fails with EAGAIN.
    let was_opened = || watch.read_events().is_ok();
    let claim = |collector: &mut EnrolmentClient| {
        let answer = collector.post(CLAIM_PATH, &json!({})).unwrap().ok().unwrap();
        let claim: EnrolmentClaim = serde_json::from_slice(&answer.body).unwrap();
        claim
    };

    let agent = stage.start();
    let mut collector = stage.push();
    assert_eq!(
        claim(&mut collector).node_proof,
        None,
        "root has signed nothing yet"
    );
    assert!(!was_opened(), "by the agent that needs a proof");
    let run = stage.home.command(&["apply", "--stage", "reconcile"]).unwrap();
    let output = run.output(SOON).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(was_opened(), "by root's part");
    assert!(claim(&mut collector).node_proof.is_some());
    stage.enrol_over(&mut collector, IDENTITY);
    drop(collector);
    let mut collector = stage.strict_push();
    report(&mut collector);
    collector.get("/metrics").unwrap().ok().unwrap();
    agent.terminate(SOON).unwrap();
    let _agent = stage.start();
    report(&mut stage.strict_push());
    assert!(!was_opened(), "by the agent");
}
