//! Tier 3: a real controller manager deletes dependents and namespaces, beside a collector that
//! writes there.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    cluster::{ControllerManager, live::WAIT_TIMEOUT, scene::Scene},
    parts, skip, wait,
};

/// The GuestHealth of a VM, with the conditions that show that the collector has written its
/// status.
fn health(scene: &Scene, vm: &str) -> Result<Option<Value>> {
    let path = format!("/apis/virtfleet.io/v1alpha1/namespaces/prod/guesthealths/{vm}");
    let answer = scene.infra.admin().get(&path)?;
    if answer.code == 404 {
        return Ok(None);
    }
    answer.ok().map(Some)
}

/// Waits until a GuestHealth is owned by this VMI and says that the VM is placed.
fn until_owned_by(scene: &Scene, vmi: &Value) {
    let name = vmi["metadata"]["name"].as_str().unwrap();
    wait::eventually(WAIT_TIMEOUT, &format!("GuestHealth {name} of the VMI"), || {
        let found = health(scene, name)?.context("there is none")?;
        let owner = &found["metadata"]["ownerReferences"][0]["uid"];
        ensure!(*owner == vmi["metadata"]["uid"], "owned by {owner}");
        ensure!(
            found["metadata"]["deletionTimestamp"].is_null(),
            "it is being deleted"
        );
        ensure!(!found["status"]["conditions"].is_null(), "no conditions");
        Ok(())
    })
    .unwrap();
}

fn until_gone(scene: &Scene, vm: &str) {
    wait::eventually(WAIT_TIMEOUT, &format!("GuestHealth {vm} is gone"), || {
        let found = health(scene, vm)?;
        ensure!(found.is_none(), "{found:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn dependents_and_namespaces_go_tier3() {
    let test = "dependents_and_namespaces_go_tier3";
    let Some(_) = skip::need(3, test, parts::kube_control_plane()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    let _manager = ControllerManager::start(&scene.infra).unwrap();
    scene.host("host-1", &[("rack", "rack-1")]).unwrap();
    scene
        .policy(
            "places",
            &serde_json::json!([{ "key": "rack", "mode": "Follow" }]),
        )
        .unwrap();
    let vmis: Vec<_> = ["vm-1", "vm-2", "vm-3"]
        .map(|vm| {
            tenant.node(vm, &[]).unwrap();
            scene.vmi("prod", vm, "host-1").unwrap()
        })
        .into();
    let first = scene.collector("a", "").unwrap();
    for vmi in &vmis {
        until_owned_by(&scene, vmi);
    }

    // A successor of the same name: the garbage collector deletes what its predecessor owned, and
    // only that.
    scene.infra.remove(&vmis[0]).unwrap();
    let successor = scene.vmi("prod", "vm-1", "host-1").unwrap();
    assert_ne!(successor["metadata"]["uid"], vmis[0]["metadata"]["uid"]);
    until_owned_by(&scene, &successor);

    // Without a collector, a VMI that is deleted takes its GuestHealth with it.
    first.process.terminate(WAIT_TIMEOUT).unwrap();
    scene.infra.remove(&vmis[1]).unwrap();
    until_gone(&scene, "vm-2");
    assert!(
        health(&scene, "vm-1").unwrap().is_some(),
        "its VMI is still there"
    );

    // The whole namespace goes, under a collector that keeps GuestHealth there.
    let second = scene.collector("b", "").unwrap();
    second.until_leads().unwrap();
    second.until_vms(&["prod/vm-1", "prod/vm-3"]).unwrap();
    let mark = tenant.server.audit_mark().unwrap();
    let infra = scene.infra.audit_mark().unwrap();
    let path = "/api/v1/namespaces/prod";
    scene.infra.admin().delete(path).unwrap().ok().unwrap();
    wait::eventually(WAIT_TIMEOUT, "the namespace is gone", || {
        let answer = scene.infra.admin().get(path)?;
        ensure!(answer.code == 404, "{:#}", answer.body["status"]);
        Ok(())
    })
    .unwrap();
    second.until_vms(&[]).unwrap();

    // The namespace comes back, and so does all of it. What the collector did before that is in the
    // audit logs by now.
    scene.infra.namespace("prod").unwrap();
    let vmi = scene.vmi("prod", "vm-1", "host-1").unwrap();
    until_owned_by(&scene, &vmi);
    assert_eq!(
        tenant.only_sets(mark, &["rack"]).unwrap(),
        0,
        "no label was removed or written again"
    );
    for vm in ["vm-1", "vm-3"] {
        let label = tenant.label(vm, "rack").unwrap();
        assert_eq!(label.as_deref(), Some("rack-1"), "{vm}");
    }
    let refused = scene.infra.audit_since(infra).unwrap().into_iter();
    let refused: Vec<_> = refused
        .filter(|one| one.resource == "guesthealths" && one.code == 403)
        .collect();
    println!("{} writes into the namespace that was going", refused.len());
    assert!(refused.len() < 10, "{refused:#?}");
}
