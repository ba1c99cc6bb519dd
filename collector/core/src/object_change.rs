//! What has to change in a Kubernetes object, as a merge patch (RFC 7386).

use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub enum ObjectChange {
    Create,
    /// It is changed with a merge patch (RFC 7386).
    Patch(Value),
    /// It has everything already.
    Keep,
}

/// What makes a live object have every field of `wanted`; fields that `wanted` does not have stay.
pub fn object_change(wanted: &Value, live: Option<&Value>) -> ObjectChange {
    let Some(live) = live else {
        return ObjectChange::Create;
    };
    match difference(wanted, live) {
        Some(patch) => ObjectChange::Patch(patch),
        None => ObjectChange::Keep,
    }
}

/// The fields of `wanted` that `live` does not have, as a merge patch. A list is replaced as a
/// whole.
fn difference(wanted: &Value, live: &Value) -> Option<Value> {
    let Value::Object(fields) = wanted else {
        return (!contains(live, wanted)).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (key, value) in fields {
        let now = live.get(key).unwrap_or(&Value::Null);
        if let Some(part) = difference(value, now) {
            patch.insert(key.clone(), part);
        }
    }
    // An empty object selects or means something of its own, e.g. an empty selector.
    let is_missing = fields.is_empty() && !live.is_object();
    (is_missing || !patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether `live` has everything of `wanted`. API servers add defaults to objects inside of lists.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key).is_some_and(|now| contains(now, value))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

/// An object without its fields that are null: in a merge patch, null removes a field.
#[must_use]
pub fn without_nulls(object: &Value) -> Value {
    match object {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                set.map(|(key, value)| (key.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differences_are_written() {
        let wanted = json!({ "spec": { "a": 1, "rules": [{ "x": "y" }] }, "metadata": { "name": "n" } });
        assert_eq!(object_change(&wanted, None), ObjectChange::Create);
        let mut live = json!({
            "metadata": { "name": "n", "uid": "u" }, "spec": { "a": 1, "b": 2, "rules": [{ "x": "y", "scope": "*" }] },
        });
        assert_eq!(object_change(&wanted, Some(&live)), ObjectChange::Keep);
        live["spec"]["a"] = 2.into();
        let patch = json!({ "spec": { "a": 1 } });
        assert_eq!(object_change(&wanted, Some(&live)), ObjectChange::Patch(patch));
        live["spec"] = json!({ "a": 1, "rules": [{ "x": "y" }, { "x": "z" }] });
        let patch = json!({ "spec": { "rules": [{ "x": "y" }] } });
        assert_eq!(object_change(&wanted, Some(&live)), ObjectChange::Patch(patch));
    }

    #[test]
    fn null_removes_a_field() {
        let wanted = json!({ "spec": { "mla": null, "a": 1 } });
        assert_eq!(
            object_change(&wanted, Some(&json!({ "spec": { "a": 1 } }))),
            ObjectChange::Keep
        );
        let live = json!({ "spec": { "a": 1, "mla": { "x": 1 } } });
        let patch = json!({ "spec": { "mla": null } });
        assert_eq!(object_change(&wanted, Some(&live)), ObjectChange::Patch(patch));
        assert_eq!(without_nulls(&wanted), json!({ "spec": { "a": 1 } }));
    }

    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in fields {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3_u8).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn objects() -> impl Strategy<Value = Value> {
        let fields = prop::collection::btree_map("[abc]", values(), 0..3);
        fields.prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_patched_object_needs_no_further_patch(wanted in objects(), mut live in objects()) {
            if let ObjectChange::Patch(patch) = object_change(&wanted, Some(&live)) {
                merge(&mut live, &patch);
            }
            prop_assert_eq!(object_change(&wanted, Some(&live)), ObjectChange::Keep);
        }
    }
}
