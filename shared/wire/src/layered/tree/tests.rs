use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::layered::yaml::{parse_yaml, to_yaml};

fn tree(text: &str) -> Tree {
    let document = parse_yaml(text).unwrap().remove(0);
    Tree::of_document(document, &"f".into(), &mut Vec::new())
}

fn merged(default: Value, files: &[&str]) -> Value {
    let said = files.iter().map(|text| tree(text)).reduce(Tree::merge).unwrap();
    said.over_default(Some(&Tree::defaults(default)))
        .unwrap()
        .to_json()
}

#[test]
fn the_rules_one_by_one() {
    let default = || json!({"m": {"a": 1, "b": 2}, "l": [{"name": "d", "x": 1}], "p": [1, 2], "o": null});
    let base = json!({"m": {"a": 1, "b": 2}, "l": [{"name": "d", "x": 1}], "p": [1, 2]});
    let with = |key: &str, value: Value| {
        let mut expected = base.clone();
        expected[key] = value;
        expected
    };
    for (what, files, expected) in [
        (
            "maps merge",
            &["m: {a: 3}", "m: {b: 4}"][..],
            with("m", json!({"a": 3, "b": 4})),
        ),
        (
            "the last scalar wins",
            &["m: {a: 3}", "m: {a: 5}"],
            with("m", json!({"a": 5, "b": 2})),
        ),
        (
            "a named item merges with its namesake, the default's too",
            &["l: [{name: d, y: 2}]", "l: [{name: d, x: 3}]"],
            with("l", json!([{"name": "d", "x": 3, "y": 2}])),
        ),
        (
            "a new name goes to the end",
            &["l: [{name: e}]", "l: [{name: c}]"],
            with("l", json!([{"name": "d", "x": 1}, {"name": "e"}, {"name": "c"}])),
        ),
        (
            "a list without names is replaced whole",
            &["p: [3]", "p: [4, 5]"],
            with("p", json!([4, 5])),
        ),
        ("an empty list empties", &["l: []"], with("l", json!([]))),
        (
            "what comes after an empty list adds to nothing",
            &["l: []", "l: [{name: e}]"],
            with("l", json!([{"name": "e"}])),
        ),
        (
            "null removes what files set",
            &["m: {a: 3}", "m: {a: ~}"],
            base.clone(),
        ),
        (
            "what comes after a null merges with the default only",
            &["l: [{name: e}]", "l: ~", "l: [{name: c}]"],
            with("l", json!([{"name": "d", "x": 1}, {"name": "c"}])),
        ),
        (
            "null where there is no default is nothing",
            &["o: ~\nn: {k: ~}"],
            with("n", json!({})),
        ),
    ] {
        assert_eq!(merged(default(), files), expected, "{what}");
    }
}

#[test]
fn two_items_of_one_name_in_one_file_are_a_problem() {
    let document = parse_yaml("l:\n- {name: x, a: 1}\n- {name: x, b: 2}\n")
        .unwrap()
        .remove(0);
    let mut problems = Vec::new();
    let tree = Tree::of_document(document, &"f".into(), &mut problems);
    assert_eq!(tree.to_json(), json!({"l": [{"name": "x", "a": 1, "b": 2}]}));
    assert_eq!(problems[0].to_string(), "f:3: l: two items have the name \"x\"");
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), (0..3).prop_map(Value::from)];
    let any = leaf.prop_recursive(4, 32, 4, |inner| {
        let map = prop::collection::btree_map("[abc]", inner.clone(), 0..4)
            .prop_map(|entries| Value::Object(entries.into_iter().collect()));
        let named = prop::collection::btree_map("[xyz]", inner.clone(), 0..4).prop_map(|items| {
            items
                .into_iter()
                .map(|(name, value)| json!({"name": name, "v": value}))
                .collect()
        });
        prop_oneof![4 => map, 2 => named, 1 => prop::collection::vec(inner, 0..3).prop_map(Value::from)]
    });
    prop::collection::btree_map("[abc]", any, 0..4)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

proptest! {
    #[test]
    fn merging_is_associative(a in documents(), b in documents(), c in documents(), default in documents()) {
        let [a, b, c] = [a, b, c].map(|value| {
            let document = parse_yaml(&to_yaml(&value)).unwrap().pop();
            document.map(|node| Tree::of_document(node, &"f".into(), &mut Vec::new()))
        });
        let (Some(a), Some(b), Some(c)) = (a, b, c) else { return Ok(()) };
        let left = a.clone().merge(b.clone()).merge(c.clone());
        let right = a.merge(b.merge(c));
        prop_assert_eq!(&left, &right);
        let default = Tree::defaults(default);
        prop_assert_eq!(left.over_default(Some(&default)), right.over_default(Some(&default)));
    }

    #[test]
    fn merging_a_file_with_itself_changes_nothing(a in documents()) {
        let document = parse_yaml(&to_yaml(&a)).unwrap().pop();
        if let Some(node) = document {
            let a = Tree::of_document(node, &"f".into(), &mut Vec::new());
            prop_assert_eq!(a.clone().merge(a.clone()).to_json(), a.to_json());
        }
    }
}
