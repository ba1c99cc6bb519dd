//! The kustomize component that puts the queues of samples on PersistentVolumes: what it makes of
//! the shipped Deployment.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use serde_json::{Value, json};
use virtfleet_collector::config::MlaSettings;
use virtfleet_tests::install::{objects, shipped};

/// Applies an operation of a JSON patch (RFC 6902) to a member of an object.
fn apply(object: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap();
    let (parent, member) = path.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    let is_there = parent.contains_key(member);
    match operation["op"].as_str().unwrap() {
        "replace" => assert!(is_there, "{operation}"),
        "add" => assert!(!is_there, "{operation}"),
        other => panic!("{other} is not used"),
    }
    parent.insert(member.to_owned(), operation["value"].clone());
}

/// The StatefulSet.
pub(crate) fn stateful_set() -> Value {
    let component = &shipped("queue-volume/kustomization.yaml").unwrap()[0];
    let patch = &component["patches"][0];
    let is_target = |object: &&Value| {
        object["kind"] == patch["target"]["kind"] && object["metadata"]["name"] == patch["target"]["name"]
    };
    let mut object = shipped("infra/deployment.yaml")
        .unwrap()
        .iter()
        .find(is_target)
        .unwrap()
        .clone();
    for operation in objects(patch["patch"].as_str().unwrap()).unwrap()[0]
        .as_array()
        .unwrap()
    {
        apply(&mut object, operation);
    }
    object
}

#[test]
fn each_replica_has_a_volume_that_is_large_enough_and_kept() {
    let set = stateful_set();
    assert_eq!(set["kind"], "StatefulSet");
    let spec = &set["spec"];
    let services = shipped("infra/deployment.yaml").unwrap();
    let has_service = services
        .iter()
        .any(|object| object["kind"] == "Service" && object["metadata"]["name"] == spec["serviceName"]);
    assert!(has_service, "{}", spec["serviceName"]);
    // A Deployment's strategy would be refused.
    assert_eq!(spec.get("strategy"), None);
    let claim = &spec["volumeClaimTemplates"][0];
    let pod = &spec["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts
        .iter()
        .find(|mount| mount["name"] == claim["metadata"]["name"]);
    let queue = MlaSettings::default().queue;
    assert_eq!(mount.unwrap()["mountPath"], queue.folder);
    let size = claim["spec"]["resources"]["requests"]["storage"]
        .as_str()
        .unwrap();
    let size: u64 = size.strip_suffix("Gi").unwrap().parse().unwrap();
    assert!(size << 30 > queue.max_bytes, "{size} GiB");
    assert_eq!(
        spec["persistentVolumeClaimRetentionPolicy"],
        json!({ "whenDeleted": "Retain", "whenScaled": "Retain" })
    );
    assert_eq!(
        pod["securityContext"]["fsGroup"],
        pod["securityContext"]["runAsGroup"]
    );
}
