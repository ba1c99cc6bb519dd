//! Shared helpers of the planner's tests, and tests of whole plans: patch, order, placement,
//! annotation.

use std::collections::BTreeSet;

use super::*;
use crate::labels::policy::LabelPolicy;
use crate::{
    facts::Selector,
    labels::{
        evidence::Dependent,
        owned::OwnedLabel,
        policy::{Mode, Rule, Source, Takeover},
    },
    store::tests::{infra_node, key, labels},
};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const RESTRICTED: &str = "rack.node-restriction.kubernetes.io/row";

pub(super) fn policy(name: &str, rules: &[Rule]) -> LabelPolicy {
    LabelPolicy {
        name: name.into(),
        uid: None,
        generation: 1,
        clusters: Selector::default(),
        dry_run: false,
        rules: rules.to_vec(),
    }
}

pub(super) fn rule(source: &str, mode: Mode, takeover: Takeover) -> Rule {
    Rule {
        source: Source::Key(source.into()),
        target: None,
        mode: Some(mode),
        takeover: Some(takeover),
    }
}

/// A VM on host `h` with these labels; the labels and the annotation of its Node.
pub(super) fn input(
    host: &[(&str, &str)],
    node: &[(&str, &str)],
    owned: &Owned,
    rules: &[Rule],
) -> LabelInput {
    let mut infra = infra_node("h", "x");
    infra.labels = labels(host);
    infra.uid = Some("host-uid".parse().unwrap());
    LabelInput {
        cluster_labels: Labels::new(),
        vm: key("ns", "w0"),
        vmi_uid: Some("vmi-uid".parse().unwrap()),
        cluster: "c".parse().unwrap(),
        suspended: false,
        node: "w0".parse().unwrap(),
        node_uid: None,
        labels: labels(node),
        owned: owned::text(owned),
        kubelet_labels: BTreeSet::new(),
        resource_version: None,
        host: Some(infra),
        unconfirmed: BTreeSet::new(),
        stood_on: Vec::new(),
        policies: vec![policy("p", rules)],
    }
}

pub(super) fn entry(value: &str, previous: Option<&str>) -> OwnedLabel {
    OwnedLabel {
        value: value.into(),
        previous: previous.map(str::to_owned),
        if_safe: false,
        infra_node_uid: None,
        vmi_uid: None,
        policy: "p".into(),
    }
}

pub(super) fn owning(entries: &[(&str, &str, Option<&str>)]) -> Owned {
    let one =
        |(key, value, previous): &(&str, &str, Option<&str>)| ((*key).to_owned(), entry(value, *previous));
    entries.iter().map(one).collect()
}

/// A pod that requires these labels.
pub(super) fn pod(selector: &[(&str, &str)]) -> Evidence {
    Evidence {
        pods: vec![Dependent {
            what: "pod shop/db-0".into(),
            selector: labels(selector),
            terms: Vec::new(),
        }],
        ..Evidence::default()
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub(super) fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (field, value) in fields {
        if value.is_null() {
            target.remove(field);
        } else {
            merge_patch(target.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The Node after the patch, applied as JSON like the API server does.
pub(super) fn patched(input: &LabelInput, patch: &NodePatch) -> LabelInput {
    let mut node = json!({
        "metadata": {
            "resourceVersion": "7",
            "uid": "u",
            "labels": input.labels,
            "annotations": { "other": "kept" },
        },
        "spec": { "taints": [] },
        "status": { "addresses": ["10.0.0.1", "fd00::1"] },
    });
    if let Some(owned) = &input.owned {
        node["metadata"]["annotations"][ANNOTATION] = json!(owned);
    }
    let (spec, status) = (node["spec"].clone(), node["status"].clone());
    merge_patch(&mut node, &patch.to_merge_patch(Some("7"), Some("u")));
    assert_eq!((&node["spec"], &node["status"]), (&spec, &status));
    assert_eq!(node["metadata"]["annotations"]["other"], "kept");
    LabelInput {
        labels: serde_json::from_value(node["metadata"]["labels"].clone()).unwrap(),
        owned: node["metadata"]["annotations"]
            .get(ANNOTATION)
            .map(|text| text.as_str().unwrap().to_owned()),
        ..input.clone()
    }
}

pub(super) fn decision<'a>(plan: &'a NodePlan, key: &str) -> &'a Decision {
    let mut found = plan.decisions.iter().filter(|decision| decision.key == key);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no decision about {key} in {plan:#?}"));
    assert!(found.next().is_none(), "two decisions about {key} in {plan:#?}");
    assert!(!first.message.is_empty(), "{first:?}");
    first
}

/// Plans, applies the patch and plans again, which must give no patch.
pub(super) fn plan_and_apply(input: &LabelInput, evidence: Option<&Evidence>) -> (NodePlan, LabelInput) {
    let plan = plan(input, evidence);
    let after = plan
        .patch
        .as_ref()
        .map_or_else(|| input.clone(), |patch| patched(input, patch));
    let again = super::plan(&after, evidence);
    assert_eq!(again.patch, None, "after {plan:#?}");
    (plan, after)
}

#[test]
fn the_patch_is_metadata_with_preconditions_and_null_removes() {
    let patch = NodePatch {
        labels: BTreeMap::from([("a".into(), Some("b".into())), ("c".into(), None)]),
        owned: None,
    };
    assert_eq!(
        patch.to_merge_patch(Some("12"), Some("u")),
        json!({"metadata": {
            "resourceVersion": "12", "uid": "u",
            "labels": {"a": "b", "c": null},
            "annotations": {ANNOTATION: null},
        }})
    );
    let only = NodePatch {
        owned: Some("{}".into()),
        ..NodePatch::default()
    };
    assert_eq!(
        only.to_merge_patch(None, None),
        json!({"metadata": {"annotations": {ANNOTATION: "{}"}}})
    );
}

#[test]
fn all_changes_and_the_annotation_are_one_patch() {
    let rules = [
        rule("rack", Mode::Follow, Takeover::Never),
        rule("row", Mode::Follow, Takeover::Never),
    ];
    let owned = owning(&[("row", "1", None), ("gone", "g", None)]);
    let node = [("row", "1"), ("gone", "g"), ("mine", "m")];
    let (plan, after) = plan_and_apply(
        &input(&[("rack", "r"), ("row", "2")], &node, &owned, &rules),
        None,
    );
    assert_eq!(
        after.labels,
        labels(&[("rack", "r"), ("row", "2"), ("mine", "m")])
    );
    assert_eq!(
        after.owned.unwrap(),
        r#"{"v":1,"labels":{"rack":{"value":"r","infraNodeUid":"host-uid","vmiUid":"vmi-uid","policy":"p"},"row":{"value":"2","infraNodeUid":"host-uid","vmiUid":"vmi-uid","policy":"p"}}}"#
    );
    assert_eq!(plan.patch.unwrap().labels.len(), 3);
    let keys: Vec<_> = plan
        .decisions
        .iter()
        .map(|decision| decision.key.as_str())
        .collect();
    assert_eq!(keys, ["gone", "rack", "row"]);
}

#[test]
fn changed_uid_or_formatting_alone_causes_no_patch() {
    let rules = [rule("rack", Mode::Follow, Takeover::Never)];
    let (_, mut steady) = plan_and_apply(&input(&[("rack", "r")], &[], &Owned::new(), &rules), None);
    steady.vmi_uid = Some("another".parse().unwrap());
    steady.host.as_mut().unwrap().uid = None;
    steady.policies[0].name = "renamed".into();
    let spelled: Value = serde_json::from_str(steady.owned.as_ref().unwrap()).unwrap();
    steady.owned = Some(serde_json::to_string_pretty(&spelled).unwrap());
    assert_eq!(plan(&steady, None).patch, None);
    assert_eq!(decision(&plan(&steady, None), "rack").reason, Reason::InLine);
    let mut empty = input(&[], &[], &Owned::new(), &[]);
    empty.owned = Some(r#"{"v":1,"labels":{}}"#.into());
    assert_eq!(plan(&empty, None), NodePlan::default());
}

#[test]
fn a_patch_of_labels_alone_keeps_the_annotation_text() {
    // A label under node-restriction whose entry already has the written value: only the label
    // changes.
    let rules = [rule(RESTRICTED, Mode::Follow, Takeover::Always)];
    let host = [(RESTRICTED, "7")];
    let (_, mut now) = plan_and_apply(&input(&host, &[], &Owned::new(), &rules), None);
    now.labels.insert(RESTRICTED.into(), "forged".into());
    let spelled = now.owned.clone();
    let patch = plan(&now, None).patch.unwrap();
    assert_eq!((patch.labels.len(), patch.owned), (1, spelled));
}

#[test]
fn without_placement_nothing_changes() {
    let rules = [
        rule("rack", Mode::Follow, Takeover::Always),
        rule(ZONE, Mode::Follow, Takeover::Always),
    ];
    let owned = owning(&[("rack", "r", None), ("gone", "g", Some("before"))]);
    let node = [("rack", "r"), ("gone", "g"), (BETA, "z")];
    let mut nowhere = input(&[], &node, &owned, &rules);
    nowhere.host = None;
    let plan = plan(&nowhere, None);
    assert_eq!(plan.patch, None);
    for key in ["rack", "gone", ZONE, BETA] {
        let decision = decision(&plan, key);
        assert_eq!(
            (decision.action, decision.reason),
            (Action::Keep, Reason::PlacementUnknown),
            "{key}"
        );
    }
}

#[test]
fn with_a_broken_annotation_nothing_changes_and_a_remedy_is_given() {
    let rules = [rule("rack", Mode::Follow, Takeover::Always)];
    for broken in ["{", r#"{"v":2,"labels":{}}"#] {
        let mut now = input(&[("rack", "r")], &[("rack", "old")], &Owned::new(), &rules);
        now.owned = Some(broken.into());
        for policies in [now.policies.clone(), Vec::new()] {
            let wanted = !policies.is_empty();
            let plan = plan(
                &LabelInput {
                    policies,
                    ..now.clone()
                },
                Some(&Evidence::default()),
            );
            assert_eq!(plan.patch, None);
            let decision = decision(&plan, if wanted { "rack" } else { ANNOTATION });
            assert_eq!(
                (decision.action, decision.reason),
                (Action::Report, Reason::AnnotationBroken)
            );
            assert!(
                decision.message.contains("delete the annotation"),
                "{}",
                decision.message
            );
        }
    }
}

#[test]
fn a_suspended_cluster_is_planned_but_not_written() {
    let rules = [
        rule("rack", Mode::Follow, Takeover::Never),
        rule("row", Mode::Follow, Takeover::Never),
        rule(ZONE, Mode::FollowIfSafe, Takeover::Never),
    ];
    let owned = owning(&[("gone", "g", None)]);
    let host = [("rack", "r"), ("row", "1"), (ZONE, "z")];
    let mut now = input(&host, &[("gone", "g"), ("row", "1")], &owned, &rules);
    now.suspended = true;
    let plan = plan(&now, None);
    assert_eq!((&plan.patch, plan.needs_evidence), (&None, false));
    for (key, action, reason) in [
        ("gone", Action::Remove, Reason::Suspended),
        ("rack", Action::Set, Reason::Suspended),
        ("row", Action::Keep, Reason::InLine),
        (ZONE, Action::Report, Reason::SafetyUnknown),
    ] {
        let decision = decision(&plan, key);
        assert_eq!((decision.action, decision.reason), (action, reason), "{key}");
    }
}

#[test]
fn a_dry_run_is_shown_and_never_sent() {
    let dry = LabelPolicy {
        dry_run: true,
        ..policy(
            "dry",
            &[
                rule("rack", Mode::Follow, Takeover::Always),
                rule("row", Mode::Follow, Takeover::Always),
                rule(ZONE, Mode::FollowIfSafe, Takeover::Always),
            ],
        )
    };
    let owned = owning(&[("row", "1", None)]);
    let host = [("rack", "r"), ("row", "1"), (ZONE, "z")];
    let mut now = input(&host, &[("row", "1"), (ZONE, "a")], &owned, &[]);
    now.policies.push(dry.clone());
    let shown = plan(&now, None);
    assert!(!shown.needs_evidence, "a dry run needs no evidence");
    let rack = decision(&shown, "rack");
    assert!(rack.dry_run && rack.action == Action::Set && rack.message.contains("dry run"));
    let row: Vec<_> = shown.decisions.iter().filter(|one| one.key == "row").collect();
    assert_eq!(
        row.iter()
            .map(|one| (one.dry_run, one.action, one.reason))
            .collect::<Vec<_>>(),
        [
            (false, Action::Remove, Reason::Withdrawn),
            (true, Action::Keep, Reason::InLine)
        ],
        "a dry run delays nothing"
    );
    let (_, after) = plan_and_apply(&now, Some(&pod(&[(ZONE, "a")])));
    assert_eq!(after.labels, labels(&[(ZONE, "a")]));
    let zone = |evidence: &Evidence| decision(&plan(&now, Some(evidence)), ZONE).reason;
    assert_eq!(zone(&pod(&[(ZONE, "a")])), Reason::Unsafe);
    assert_eq!(zone(&Evidence::default()), Reason::TakenOver);
    now.policies[0].rules = vec![rule("rack", Mode::ReportDrift, Takeover::Never)];
    let rack = plan(&now, None);
    let rack = decision(&rack, "rack");
    assert_eq!(
        (rack.dry_run, rack.reason),
        (false, Reason::Drift),
        "a real policy decides alone"
    );
}
