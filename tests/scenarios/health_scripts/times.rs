//! Times that API server, controllers and KubeVirt set in objects.

use serde_json::{Value, json};

/// Sets in `object` what a script leaves out; `before` is the object before its change.
pub(super) fn set_times(object: &mut Value, before: Option<&Value>, now: &str) {
    let created = &mut object["metadata"]["creationTimestamp"];
    if created.is_null() {
        let known = before.map(|before| before["metadata"]["creationTimestamp"].clone());
        *created = known.filter(Value::is_string).unwrap_or_else(|| json!(now));
    }
    set_transitions(object, before, now);
    if object["kind"] == "VirtualMachineInstance" {
        set_phase_time(object, before, now);
        set_start(object, now);
    }
}

fn set_transitions(object: &mut Value, before: Option<&Value>, now: &str) {
    let earlier = before.and_then(|before| before["status"]["conditions"].as_array().cloned());
    let earlier = earlier.unwrap_or_default();
    let conditions = object.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for one in conditions.into_iter().flatten() {
        if one["lastTransitionTime"].is_null() {
            let is_same = |known: &&Value| known["type"] == one["type"] && known["status"] == one["status"];
            let known = earlier.iter().find(is_same);
            let known = known.map(|known| known["lastTransitionTime"].clone());
            one["lastTransitionTime"] = known.filter(Value::is_string).unwrap_or_else(|| json!(now));
        }
    }
}

fn set_phase_time(object: &mut Value, before: Option<&Value>, now: &str) {
    let phase = object["status"]["phase"].clone();
    if !phase.is_string() || before.is_some_and(|before| before["status"]["phase"] == phase) {
        return;
    }
    let times = &mut object["status"]["phaseTransitionTimestamps"];
    let known = times.as_array().cloned().unwrap_or_default();
    if !known.iter().any(|one| one["phase"] == phase) {
        let entry = json!({ "phase": phase, "phaseTransitionTimestamp": now });
        *times = json!([known, vec![entry]].concat());
    }
}

fn set_start(object: &mut Value, now: &str) {
    let Some(Value::Object(migration)) = object.pointer_mut("/status/migrationState") else {
        return;
    };
    let has_ended = migration.contains_key("completed") || migration.contains_key("failed");
    if !has_ended && migration.contains_key("targetNode") && !migration.contains_key("startTimestamp") {
        migration.insert("startTimestamp".to_owned(), json!(now));
    }
}
