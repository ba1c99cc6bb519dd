//! Properties for any object: what is not virtfleet's stays, and a second admission changes
//! nothing.

use proptest::prelude::*;

use super::*;
use crate::{AGENT_PATH, payload::SETTINGS};

/// Paths and names of others, and some of virtfleet.
const PATHS: [&str; 6] = [
    "/etc/a",
    "/etc/b",
    "/opt/bin/c",
    EXTRACTED_PATH,
    SETTINGS,
    AGENT_PATH,
];
const NAMES: [&str; 5] = [
    "kubelet.service",
    "a.service",
    "b.timer",
    "virtfleet-delivery.service",
    "virtfleet-agent.service",
];

/// One of the first three, usually.
fn named(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop_oneof![
        20 => proptest::sample::select(&names[..3]),
        1 => proptest::sample::select(names),
    ]
}

fn file() -> impl Strategy<Value = Value> {
    (named(&PATHS), "[a-z]{0,3}", proptest::option::of("[a-z]{1,3}")).prop_map(|(path, data, host)| {
        let mut file = json!({"path": path, "content": {"inline": {"encoding": "", "data": data}}});
        if let Some(host) = host {
            file["hostName"] = host.into();
        }
        file
    })
}

fn unit() -> impl Strategy<Value = Value> {
    (named(&NAMES), any::<bool>(), proptest::option::of("[a-z]{0,3}")).prop_map(|(name, enable, content)| {
        let mut unit = json!({"name": name, "enable": enable});
        if let Some(content) = content {
            unit["content"] = content.into();
        }
        unit
    })
}

/// A list, null, or something else.
fn list(item: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        10 => proptest::collection::vec(item, 0..6).prop_map(|items| Some(items.into())),
        1 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => Just(Some(json!({"0": "text"}))),
        1 => Just(Some(json!(["text", 1, null, {"path": 1, "name": []}]))),
    ]
}

fn annotations() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        4 => Just(Some(json!({"gardener.cloud/operation": "reconcile", "a/b~c": "d"}))),
        1 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => Just(Some(json!({}))),
        1 => Just(Some(json!(["text"]))),
        1 => Just(Some(json!({OWNED_ITEMS_ANNOTATION: "{\"v\":1"}))),
        1 => Just(Some(json!({OWNED_ITEMS_ANNOTATION: 7}))),
        1 => Just(Some(json!({IGNORE_ANNOTATION: "true"}))),
    ]
}

fn any_object() -> impl Strategy<Value = Value> {
    let purpose = prop_oneof![9 => Just("reconcile"), 1 => Just("provision")];
    (purpose, list(file()), list(unit()), annotations(), any::<bool>()).prop_map(
        |(purpose, files, units, annotations, deleted)| {
            let mut object = object(purpose);
            for (place, key, value) in [
                ("/spec", "files", files),
                ("/spec", "units", units),
                ("/metadata", "annotations", annotations),
            ] {
                let map = object.pointer_mut(place).unwrap().as_object_mut().unwrap();
                match value {
                    Some(value) => map.insert(key.to_owned(), value),
                    None => map.remove(key),
                };
            }
            if deleted && purpose == "provision" {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            object
        },
    )
}

/// The object without virtfleet's items, its record and the difference between an empty list or map
/// and none.
fn without_ours(object: &Value, ours: &[&AgentItems]) -> Value {
    let mut object = object.clone();
    for list in ["files", "units"] {
        let items = ours.iter().flat_map(|items| {
            if list == "files" {
                &items.files
            } else {
                &items.units
            }
        });
        let items: Vec<&Value> = items.collect();
        if let Some(all) = object["spec"][list].as_array_mut() {
            all.retain(|item| !items.contains(&item));
        }
        if object["spec"][list].is_null() {
            object["spec"][list] = json!([]);
        }
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(OWNED_ITEMS_ANNOTATION);
    }
    let is_empty = |annotations: &Value| annotations.is_null() || *annotations == json!({});
    if metadata.get("annotations").is_some_and(is_empty) {
        metadata.remove("annotations");
    }
    object
}

proptest! {
    #[test]
    fn everything_of_others_stays_and_a_second_admission_changes_nothing(object in any_object()) {
        let (first, second) = (first(), second());
        let found = plan(&object, &first, &digest);
        prop_assert_eq!(found.patch.is_empty(), found.action != OscAction::Patched);
        prop_assert_eq!(found.warnings.is_empty(), found.action != OscAction::Conflict);
        for warning in &found.warnings {
            prop_assert!(warning.chars().count() <= 256, "{}", warning);
        }
        let after = applied(&object, &found);
        prop_assert_eq!(without_ours(&after, &[&first]), without_ours(&object, &[]));
        let again = plan(&after, &first, &digest);
        prop_assert!(again.patch.is_empty(), "{:?}", again);
        prop_assert_eq!(admitted(&after, &first), after.clone());

        let is_ignored = object["metadata"]["annotations"][IGNORE_ANNOTATION] == "true";
        if found.action != OscAction::Patched || is_ignored {
            return Ok(());
        }
        for (list, items) in [("files", &first.files), ("units", &first.units)] {
            let all = after["spec"][list].as_array().unwrap();
            for item in items {
                prop_assert_eq!(all.iter().filter(|found| *found == item).count(), 1);
            }
        }
        // An upgrade gives what the newer items alone would, and others keep their places.
        let upgraded = admitted(&after, &second);
        prop_assert_eq!(plan(&after, &second, &digest).action, OscAction::Patched);
        prop_assert_eq!(without_ours(&upgraded, &[&second]), without_ours(&object, &[]));
        let direct = admitted(&object, &second);
        prop_assert_eq!(&upgraded["metadata"], &direct["metadata"]);
        prop_assert_eq!(&upgraded["spec"]["files"], &direct["spec"]["files"]);
        // With the annotation, all that was added goes again.
        let removed = admitted(&ignoring(upgraded), &second);
        let mut expected = object.clone();
        if !expected["metadata"]["annotations"].is_object() {
            expected["metadata"]["annotations"] = json!({});
        }
        prop_assert_eq!(without_ours(&removed, &[]), without_ours(&ignoring(expected), &[]));
    }
}
