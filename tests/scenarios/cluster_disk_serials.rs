//! Tier 3: the shipped policy gives the disks of new VMs serials by which a guest finds them, and
//! touches nothing else; `virtfleetctl disks set-serials` gives those of existing VMs the same.
//! With KubeVirt's own schemas, on a real API server.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod objects;
mod verb;

use anyhow::ensure;
use serde_json::Value;
use virtfleet_collector_core::disk_serials::{SerialDecision, is_cluster_node, plan_serials};
use virtfleet_tests::{
    cluster::{ApiServer, Client, kubevirt, live::WAIT_TIMEOUT},
    install::shipped,
    parts, skip, wait,
};

use self::objects::{CLUSTER_NAME, DISKS, NAMESPACE, any_vm, cases, disk, of_kkp, serials, vm};

/// Random VMs that are compared.
const RANDOM_VMS: usize = 300;

/// The serials that `virtfleetctl disks set-serials` gives a VM of the selection.
fn planned(vm: &Value) -> Vec<String> {
    let mut serials = serials(vm);
    if is_cluster_node(vm) {
        for decision in plan_serials(vm) {
            if let SerialDecision::Set(serial) = decision.serial {
                serials[decision.index] = serial;
            }
        }
    }
    serials
}

/// The plan of the verb is what the policy does, also with unusual VMs.
fn plan_and_policy_agree(client: &Client, vms: &str) {
    let mut random = fastrand::Rng::new();
    let seed = random.u64(..);
    random.seed(seed);
    let mut set = 0;
    for number in 0..RANDOM_VMS {
        let vm = any_vm(&mut random, &format!("r{number}"));
        let made = client
            .post(&format!("{vms}?dryRun=All"), &vm)
            .unwrap()
            .ok()
            .unwrap();
        assert_eq!(planned(&vm), serials(&made), "seed {seed}: {vm:#}");
        set += usize::from(serials(&vm) != serials(&made));
    }
    assert!(set > RANDOM_VMS / 4, "seed {seed}: only {set} VMs got serials");
}

/// The API server generates a name after admission: the policy does not see it.
fn names_are_generated_after_the_policy(client: &Client, vms: &str) {
    let mut vm = vm(
        "w-",
        CLUSTER_NAME,
        &[disk("w-data", "emptyDisk"), disk("logs", "emptyDisk")],
    );
    let metadata = vm["metadata"].as_object_mut().unwrap();
    metadata.remove("name");
    metadata.insert("generateName".to_owned(), "w-".into());
    let made = client.post(vms, &vm).unwrap().ok().unwrap();
    assert!(made["metadata"]["name"].as_str().unwrap().len() > 2, "{made}");
    assert_eq!(serials(&made), ["w-data", "logs"]);
    assert_eq!(planned(&vm), serials(&made));
}

#[test]
fn the_shipped_policy_gives_new_disks_serials_tier3() {
    let test = "the_shipped_policy_gives_new_disks_serials_tier3";
    let needs = || {
        // Debian's 1.20 has no such policies.
        parts::kube_control_plane()?;
        parts::kubevirt()
    };
    let Some(folder) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let server = ApiServer::start(root.path()).unwrap();
    server.namespace(NAMESPACE).unwrap();
    kubevirt::install_release(&server, &folder.join("schemas/1.9")).unwrap();
    let before = server
        .apply(&vm("before", CLUSTER_NAME, &of_kkp("before")))
        .unwrap();
    let policies = shipped("disk-serials/policy.yaml").unwrap();
    for object in &policies {
        server.apply(object).unwrap();
    }
    // An error in an expression is ignored, so that VMs are always created. Here it is found.
    let mut strict = policies[0].clone();
    strict["spec"]["failurePolicy"] = "Fail".into();
    server.apply(&strict).unwrap();
    let vms = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines");
    let probe = vm("probe", CLUSTER_NAME, &of_kkp("probe"));
    wait::eventually(WAIT_TIMEOUT, "the policy is applied", || {
        let answer = server.admin().post(&format!("{vms}?dryRun=All"), &probe)?;
        ensure!(serials(&answer.ok()?)[2] == "secondarydisk0");
        Ok(())
    })
    .unwrap();

    for (vm, expected) in cases() {
        let name = vm["metadata"]["name"].as_str().unwrap();
        let mut made = server.admin().post(&vms, &vm).unwrap().ok().unwrap();
        assert_eq!(serials(&made), expected, "{name}");
        assert_eq!(planned(&vm), expected, "{name}: the plan of the verb");
        for disk in made.pointer_mut(DISKS).unwrap().as_array_mut().unwrap() {
            disk.as_object_mut().unwrap().remove("serial");
        }
        let mut asked = vm.pointer(DISKS).unwrap().clone();
        for disk in asked.as_array_mut().unwrap() {
            disk.as_object_mut().unwrap().remove("serial");
        }
        assert_eq!(made.pointer(DISKS), Some(&asked), "{name}: nothing else changes");
    }
    // A VM without disks is created as before.
    let mut bare = vm("bare", CLUSTER_NAME, &[]);
    bare.pointer_mut("/spec/template/spec/domain/devices")
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("disks");
    server.admin().post(&vms, &bare).unwrap().ok().unwrap();
    // One from before the policy does not change, also when it is written.
    assert_eq!(serials(&before), vec![""; 4]);
    let mut written = before.clone();
    written["metadata"]["labels"]["written"] = "again".into();
    assert_eq!(serials(&server.apply(&written).unwrap()), vec![""; 4]);
    plan_and_policy_agree(server.admin(), &vms);
    names_are_generated_after_the_policy(server.admin(), &vms);
}
