//! Every branch of what becomes of one key.

use super::{
    tests::{BETA, RESTRICTED, ZONE, decision, entry, input, owning, pod, policy, rule, settle},
    *,
};
use crate::{
    labels::{
        evidence::{Dependent, NodeOperator, NodeRequirement, Term},
        owned::Entry,
        policy::Takeover,
    },
    store::tests::labels,
};

/// What the Node has, what was written over what, what the host has.
type Facts = (
    Option<&'static str>,
    Option<(&'static str, Option<&'static str>)>,
    Option<&'static str>,
);

/// Plans the key `k` and gives action, reason, the label afterwards, and whether there is an entry afterwards.
fn outcome(
    (current, owned, desired): Facts,
    mode: Mode,
    takeover: Takeover,
    change: impl FnOnce(&mut LabelInput),
) -> (Action, Reason, Option<String>, Option<Entry>) {
    outcome_of("k", (current, owned, desired), mode, takeover, change)
}

fn outcome_of(
    key: &str,
    (current, owned, desired): Facts,
    mode: Mode,
    takeover: Takeover,
    change: impl FnOnce(&mut LabelInput),
) -> (Action, Reason, Option<String>, Option<Entry>) {
    let node: Vec<_> = current.map(|value| (key, value)).into_iter().collect();
    let host: Vec<_> = desired.map(|value| (key, value)).into_iter().collect();
    let owned: Vec<_> = owned
        .map(|(value, previous)| (key, value, previous))
        .into_iter()
        .collect();
    let mut input = input(&host, &node, &owning(&owned), &[rule(key, mode, takeover)]);
    change(&mut input);
    let (plan, after) = settle(&input, Some(&Evidence::default()));
    let owned = owned::read(after.owned.as_deref()).unwrap();
    let decision = decision(&plan, key);
    (
        decision.action,
        decision.reason,
        after.labels.get(key).cloned(),
        owned.get(key).cloned(),
    )
}

#[test]
fn every_mode_and_state() {
    use Action::{Keep, Remove, Report, Restore, Set};
    use Mode::{Follow, FollowIfSafe, InitialOnly, ReportDrift};
    use Takeover::{Always, Never};
    type Expected = (Action, Reason, Option<&'static str>, bool);
    const OURS: Option<(&str, Option<&str>)> = Some(("a", None));
    const OVER: Option<(&str, Option<&str>)> = Some(("a", Some("f")));
    let table: &[(Facts, Mode, Takeover, Expected)] = &[
        // In line; not claimed when not ours, and a stale claim goes.
        (
            (Some("b"), None, Some("b")),
            Follow,
            Always,
            (Keep, Reason::InLine, Some("b"), false),
        ),
        (
            (Some("b"), Some(("b", None)), Some("b")),
            Follow,
            Never,
            (Keep, Reason::InLine, Some("b"), true),
        ),
        (
            (Some("b"), OURS, Some("b")),
            Follow,
            Never,
            (Keep, Reason::InLine, Some("b"), false),
        ),
        (
            (Some("b"), None, Some("b")),
            ReportDrift,
            Never,
            (Keep, Reason::InLine, Some("b"), false),
        ),
        (
            (None, None, None),
            Follow,
            Never,
            (Keep, Reason::InLine, None, false),
        ),
        (
            (None, OURS, None),
            Follow,
            Never,
            (Keep, Reason::InLine, None, false),
        ),
        (
            (None, OURS, None),
            InitialOnly,
            Never,
            (Keep, Reason::InLine, None, true),
        ),
        // The infra node has none.
        (
            (Some("a"), OURS, None),
            Follow,
            Never,
            (Remove, Reason::SourceGone, None, false),
        ),
        (
            (Some("a"), OVER, None),
            Follow,
            Never,
            (Restore, Reason::SourceGone, Some("f"), false),
        ),
        (
            (Some("a"), OURS, None),
            FollowIfSafe,
            Never,
            (Remove, Reason::SourceGone, None, false),
        ),
        (
            (Some("a"), OURS, None),
            InitialOnly,
            Never,
            (Keep, Reason::Initial, Some("a"), true),
        ),
        (
            (Some("a"), OURS, None),
            ReportDrift,
            Never,
            (Report, Reason::Drift, Some("a"), true),
        ),
        (
            (Some("f"), None, None),
            Follow,
            Always,
            (Keep, Reason::Foreign, Some("f"), false),
        ),
        (
            (Some("f"), OURS, None),
            Follow,
            Always,
            (Keep, Reason::Foreign, Some("f"), false),
        ),
        // The Node has none.
        (
            (None, None, Some("b")),
            Follow,
            Never,
            (Set, Reason::Missing, Some("b"), true),
        ),
        (
            (None, None, Some("")),
            Follow,
            Never,
            (Set, Reason::Missing, Some(""), true),
        ),
        (
            (None, None, Some("b")),
            FollowIfSafe,
            Never,
            (Set, Reason::Missing, Some("b"), true),
        ),
        (
            (None, None, Some("b")),
            InitialOnly,
            Never,
            (Set, Reason::Missing, Some("b"), true),
        ),
        (
            (None, None, Some("b")),
            ReportDrift,
            Always,
            (Report, Reason::Drift, None, false),
        ),
        (
            (None, OVER, Some("b")),
            Follow,
            Never,
            (Set, Reason::Repaired, Some("b"), true),
        ),
        (
            (None, OURS, Some("b")),
            FollowIfSafe,
            Never,
            (Set, Reason::Repaired, Some("b"), true),
        ),
        (
            (None, OURS, Some("b")),
            InitialOnly,
            Never,
            (Keep, Reason::Initial, None, true),
        ),
        // It differs, and is ours.
        (
            (Some("a"), OURS, Some("b")),
            Follow,
            Never,
            (Set, Reason::Moved, Some("b"), true),
        ),
        (
            (Some("a"), OURS, Some("b")),
            FollowIfSafe,
            Never,
            (Set, Reason::Moved, Some("b"), true),
        ),
        (
            (Some("a"), OURS, Some("b")),
            InitialOnly,
            Never,
            (Keep, Reason::Initial, Some("a"), true),
        ),
        (
            (Some("a"), OURS, Some("b")),
            ReportDrift,
            Always,
            (Report, Reason::Drift, Some("a"), true),
        ),
        // It differs, and is not.
        (
            (Some("f"), None, Some("b")),
            Follow,
            Never,
            (Report, Reason::Foreign, Some("f"), false),
        ),
        (
            (Some("f"), OURS, Some("b")),
            Follow,
            Never,
            (Report, Reason::Foreign, Some("f"), false),
        ),
        (
            (Some("f"), None, Some("b")),
            FollowIfSafe,
            Never,
            (Report, Reason::Foreign, Some("f"), false),
        ),
        (
            (Some("f"), None, Some("b")),
            InitialOnly,
            Always,
            (Keep, Reason::Initial, Some("f"), false),
        ),
        (
            (Some("f"), None, Some("b")),
            ReportDrift,
            Always,
            (Report, Reason::Drift, Some("f"), false),
        ),
        (
            (Some("f"), None, Some("b")),
            Follow,
            Always,
            (Set, Reason::TakenOver, Some("b"), true),
        ),
        (
            (Some("f"), OURS, Some("b")),
            FollowIfSafe,
            Always,
            (Set, Reason::TakenOver, Some("b"), true),
        ),
        // What cannot be a label.
        (
            (Some("a"), OURS, Some("b b")),
            Follow,
            Always,
            (Report, Reason::InvalidValue, Some("a"), true),
        ),
    ];
    for (facts, mode, takeover, (action, reason, value, claimed)) in table {
        let (done, why, label, entry) = outcome(*facts, *mode, *takeover, |_| {});
        assert_eq!(
            (done, why, label.as_deref(), entry.is_some()),
            (*action, *reason, *value, *claimed),
            "{facts:?} {mode:?} {takeover:?}"
        );
    }
}

#[test]
fn what_others_had_is_remembered_from_the_first_takeover_until_somebody_removes_ours() {
    let previous = |facts: Facts| {
        outcome(facts, Mode::Follow, Takeover::Always, |_| {})
            .3
            .unwrap()
            .previous
    };
    assert_eq!(previous((Some("f"), None, Some("b"))).as_deref(), Some("f"));
    assert_eq!(
        previous((Some("g"), Some(("a", Some("f"))), Some("b"))).as_deref(),
        Some("f")
    );
    assert_eq!(
        previous((Some("a"), Some(("a", Some("f"))), Some("b"))).as_deref(),
        Some("f")
    );
    assert_eq!(previous((None, Some(("a", Some("f"))), Some("b"))), None);
}

#[test]
fn a_value_of_a_place_where_the_vm_stood_is_stale_and_may_go() {
    let rule = (Mode::Follow, Takeover::IfPlacementMatches);
    let facts = (Some("old"), None, Some("b"));
    let known = |stood: &'static [(&str, &str)]| {
        outcome(facts, rule.0, rule.1, |input| {
            input.stood_on = vec![labels(&[("k", "older")]), labels(stood)];
        })
    };
    assert_eq!(known(&[("k", "old")]).1, Reason::TakenOver);
    assert_eq!(known(&[("k", "x")]).1, Reason::Foreign);
    assert_eq!(known(&[("other", "old")]).1, Reason::Foreign);
}

#[test]
fn what_the_kubelet_imposes_is_reported_and_not_fought() {
    for mode in [Mode::Follow, Mode::InitialOnly, Mode::ReportDrift] {
        for owned in [None, Some(("a", Some("f")))] {
            let (action, reason, label, entry) =
                outcome((Some("k"), owned, Some("b")), mode, Takeover::Always, |input| {
                    input.kubelet_labels.insert("k".into());
                });
            assert_eq!((action, reason), (Action::Report, Reason::KubeletImposes));
            assert_eq!((label.as_deref(), entry.is_some()), (Some("k"), owned.is_some()));
        }
    }
    let ours = (Some("a"), Some(("a", None)), Some("b"));
    let (_, reason, ..) = outcome(ours, Mode::Follow, Takeover::Never, |input| {
        input.kubelet_labels.insert("k".into());
    });
    assert_eq!(reason, Reason::Moved, "while it has our value it is ours");
}

#[test]
fn what_is_withdrawn_is_taken_back_while_it_is_ours() {
    let none = |input: &mut LabelInput| input.policies.clear();
    for (facts, action, label) in [
        ((Some("a"), Some(("a", None)), Some("b")), Action::Remove, None),
        (
            (Some("a"), Some(("a", Some("f"))), None),
            Action::Restore,
            Some("f"),
        ),
        ((Some("a"), Some(("a", Some("a"))), None), Action::Keep, Some("a")),
        (
            (Some("a"), Some(("a", Some("no value!"))), None),
            Action::Remove,
            None,
        ),
        ((Some("f"), Some(("a", None)), Some("b")), Action::Keep, Some("f")),
        ((None, Some(("a", None)), Some("b")), Action::Keep, None),
    ] {
        let (done, reason, after, entry) = outcome(facts, Mode::Follow, Takeover::Never, none);
        assert_eq!(
            (done, reason, after.as_deref(), entry),
            (action, Reason::Withdrawn, label, None),
            "{facts:?}"
        );
    }
}

#[test]
fn the_annotation_authorises_nothing_that_a_kubelet_must_not_touch() {
    let at = |facts, mode, takeover, change: fn(&mut LabelInput)| {
        let (_, reason, label, entry) = outcome_of(RESTRICTED, facts, mode, takeover, change);
        (reason, label, entry.is_some())
    };
    let keep = |_: &mut LabelInput| {};
    let some = |value: &str| Some(value.to_owned());
    use Mode::{Follow, InitialOnly};
    use Takeover::{Always, Never};
    let claimed = Some(("a", Some("f")));
    assert_eq!(
        at((None, None, Some("b")), Follow, Never, keep),
        (Reason::Missing, some("b"), true)
    );
    assert_eq!(
        at((None, claimed, Some("b")), InitialOnly, Never, keep),
        (Reason::Missing, some("b"), true)
    );
    assert_eq!(
        at((Some("a"), claimed, Some("b")), Follow, Never, keep),
        (Reason::Foreign, some("a"), true),
        "a claim is not enough"
    );
    assert_eq!(
        at((Some("a"), claimed, Some("b")), Follow, Always, keep),
        (Reason::TakenOver, some("b"), true)
    );
    assert_eq!(
        at((Some("a"), claimed, None), Follow, Always, keep),
        (Reason::SourceGone, some("a"), true)
    );
    let withdrawn = |input: &mut LabelInput| input.policies.clear();
    assert_eq!(
        at((Some("a"), claimed, None), Follow, Always, withdrawn),
        (Reason::Withdrawn, some("a"), true)
    );
    assert_eq!(
        at((Some("x"), claimed, None), Follow, Always, withdrawn),
        (Reason::Withdrawn, some("x"), false)
    );
    let moved = |input: &mut LabelInput| input.stood_on = vec![labels(&[(RESTRICTED, "a")])];
    let (reason, ..) = at(
        (Some("a"), None, Some("b")),
        Follow,
        Takeover::IfPlacementMatches,
        moved,
    );
    assert_eq!(reason, Reason::TakenOver);
    let (.., entry) = outcome_of(RESTRICTED, (Some("x"), claimed, Some("b")), Follow, Always, keep);
    assert_eq!(entry.unwrap().previous, None, "never restored");
}

#[test]
fn a_protected_key_is_not_touched_whatever_the_annotation_says() {
    let host = "kubernetes.io/hostname";
    for change in [
        |_: &mut LabelInput| {},
        |input: &mut LabelInput| input.policies.clear(),
    ] {
        let (action, reason, label, entry) = outcome_of(
            host,
            (Some("w0"), Some(("w0", Some("forged"))), Some("b")),
            Mode::Follow,
            Takeover::Always,
            change,
        );
        assert_eq!((action, reason), (Action::Report, Reason::Protected));
        assert_eq!((label.as_deref(), entry), (Some("w0"), None), "the claim goes");
    }
}

#[test]
fn a_conflict_changes_nothing() {
    let rules = [rule("k", Mode::Follow, Takeover::Always)];
    let owned = owning(&[("k", "a", Some("f")), (ZONE, "z", None), (BETA, "z", None)]);
    let node = [("k", "a"), (ZONE, "z"), (BETA, "z")];
    for host in [&[("k", "b"), (ZONE, "y")][..], &[]] {
        let mut now = input(host, &node, &owned, &rules);
        now.policies[0]
            .rules
            .push(rule(ZONE, Mode::Follow, Takeover::Never));
        let other = [
            rule("k", Mode::InitialOnly, Takeover::Always),
            rule(BETA, Mode::Follow, Takeover::Always),
        ];
        now.policies.push(policy("q", &other));
        let (plan, after) = settle(&now, Some(&Evidence::default()));
        assert_eq!((plan.patch.as_ref(), &after), (None, &now));
        for key in ["k", ZONE, BETA] {
            let decision = decision(&plan, key);
            assert_eq!(
                (decision.action, decision.reason),
                (Action::Report, Reason::Conflict)
            );
            assert_eq!(decision.policy.as_deref(), Some("p, q"));
            assert!(decision.message.contains("p (") && decision.message.contains("q ("));
        }
    }
}

/// GA, beta: what the Node has of each; the outcome of each.
#[test]
fn topology_labels_and_their_beta_names_go_together() {
    let host = [(ZONE, "b")];
    let pair = |node: &[(&str, &str)], owned: &Owned, takeover, mode| {
        let (plan, after) = settle(
            &input(&host, node, owned, &[rule(ZONE, mode, takeover)]),
            Some(&Evidence::default()),
        );
        let label = |key: &str| after.labels.get(key).cloned().unwrap_or_default();
        let reason = |key: &str| {
            plan.decisions
                .iter()
                .find(|one| one.key == key)
                .map(|one| one.reason)
        };
        (label(ZONE), label(BETA), reason(ZONE).unwrap(), reason(BETA))
    };
    let both = |value: &str| (value.to_owned(), value.to_owned());
    let nothing = Owned::new();
    use Mode::{Follow, FollowIfSafe, InitialOnly, ReportDrift};
    use Takeover::{Always, Never};
    // Written together, also when the Node had no beta label.
    for mode in [Follow, FollowIfSafe, InitialOnly] {
        let (ga, beta, why, and) = pair(&[], &nothing, Never, mode);
        assert_eq!(
            ((ga, beta), why, and),
            (both("b"), Reason::Missing, Some(Reason::Missing))
        );
    }
    let (ga, beta, ..) = pair(&[(ZONE, "a"), (BETA, "a")], &nothing, Always, Follow);
    assert_eq!((ga, beta), both("b"));
    // Not wanted where the Node has none and the other one is not ours.
    let (ga, beta, why, and) = pair(&[(ZONE, "b")], &nothing, Always, Follow);
    assert_eq!(
        (ga.as_str(), beta.as_str(), why, and),
        ("b", "", Reason::InLine, None)
    );
    // One that may not be written holds the other.
    let (ga, beta, why, and) = pair(&[(BETA, "a")], &nothing, Never, Follow);
    assert_eq!(
        (ga.as_str(), beta.as_str(), why, and),
        ("", "a", Reason::Foreign, Some(Reason::Foreign))
    );
    let (ga, beta, why, and) = pair(&[(ZONE, "a")], &nothing, Never, Follow);
    assert_eq!(
        (ga.as_str(), beta.as_str(), why, and),
        ("a", "", Reason::Foreign, None)
    );
    let (ga, beta, why, _) = pair(&[(BETA, "a")], &nothing, Never, InitialOnly);
    assert_eq!((ga.as_str(), beta.as_str(), why), ("", "a", Reason::Initial));
    let (ga, beta, why, _) = pair(&[(BETA, "a")], &nothing, Never, ReportDrift);
    assert_eq!((ga.as_str(), beta.as_str(), why), ("", "a", Reason::Drift));
    // Ours: repaired, followed, and a lost claim of the beta name alone goes.
    let ours = owning(&[(ZONE, "b", None), (BETA, "b", None)]);
    let (ga, beta, why, and) = pair(&[(ZONE, "b")], &ours, Never, Follow);
    assert_eq!(
        ((ga, beta), why, and),
        (both("b"), Reason::InLine, Some(Reason::Repaired))
    );
    let lost = owning(&[(BETA, "x", None)]);
    let (.., and) = pair(&[(ZONE, "b")], &lost, Never, Follow);
    assert_eq!(and, Some(Reason::Withdrawn));
}

#[test]
fn a_pair_is_taken_back_and_its_kubelet_is_not_fought() {
    let ours = owning(&[(ZONE, "a", Some("f")), (BETA, "a", None)]);
    let node = [(ZONE, "a"), (BETA, "a")];
    for rules in [&[][..], &[rule(ZONE, Mode::Follow, Takeover::Never)]] {
        let (_, after) = settle(&input(&[], &node, &ours, rules), None);
        assert_eq!(after.labels, labels(&[(ZONE, "f")]));
        assert_eq!(after.owned, None);
    }
    let rules = [rule(ZONE, Mode::Follow, Takeover::Always)];
    let mut imposed = input(&[(ZONE, "b")], &[(ZONE, "k"), (BETA, "a")], &ours, &rules);
    imposed.kubelet_labels.insert(ZONE.into());
    let (plan, after) = settle(&imposed, None);
    assert_eq!(after.labels, imposed.labels);
    for key in [ZONE, BETA] {
        assert_eq!(decision(&plan, key).reason, Reason::KubeletImposes);
    }
    let beta_only = Takeover::Never;
    let rules = [rule(BETA, Mode::Follow, beta_only)];
    let (_, after) = settle(&input(&[(ZONE, "b")], &[], &Owned::new(), &rules), None);
    assert_eq!(
        after.labels,
        labels(&[(ZONE, "b"), (BETA, "b")]),
        "asked for by its beta name"
    );
}

#[test]
fn a_place_follows_when_that_is_safe_and_says_what_is_in_the_way() {
    let region = "topology.kubernetes.io/region";
    let rules = [
        rule(ZONE, Mode::FollowIfSafe, Takeover::Never),
        rule(region, Mode::FollowIfSafe, Takeover::Never),
        rule("k", Mode::Follow, Takeover::Never),
    ];
    let owned = owning(&[
        (ZONE, "a", None),
        (BETA, "a", None),
        (region, "r", None),
        ("k", "1", None),
    ]);
    let node = [(ZONE, "a"), (BETA, "a"), (region, "r"), ("k", "1")];
    let now = input(&[(ZONE, "b"), (region, "s"), ("k", "2")], &node, &owned, &rules);

    let blind = plan(&now, None);
    assert!(blind.needs_evidence);
    assert_eq!(
        blind.patch.as_ref().unwrap().labels.keys().collect::<Vec<_>>(),
        ["k"]
    );
    assert_eq!(decision(&blind, ZONE).reason, Reason::SafetyUnknown);

    let after = |evidence: &Evidence| settle(&now, Some(evidence)).1.labels;
    let free = after(&Evidence::default());
    assert_eq!(
        (free[ZONE].as_str(), free[BETA].as_str(), free[region].as_str()),
        ("b", "b", "s")
    );
    let zone_stays = after(&pod(&[(BETA, "a")]));
    let none = after(&pod(&[(ZONE, "a"), (region, "r")]));
    assert_eq!(
        (zone_stays[ZONE].as_str(), zone_stays[BETA].as_str()),
        ("a", "a"),
        "the pair is one"
    );
    assert_eq!(zone_stays[region], "s");
    assert_eq!(
        (none[ZONE].as_str(), none[region].as_str(), none["k"].as_str()),
        ("a", "r", "2")
    );
    let gone = after(&pod(&[("k", "1")]));
    assert_eq!(
        gone[ZONE], "b",
        "what another key breaks is not held against the zone"
    );

    let message = settle(&now, Some(&pod(&[(ZONE, "a")]))).0;
    assert!(decision(&message, ZONE).message.contains("pod shop/db-0"));
    let csi = Evidence {
        csi: vec![("csi.example.com".into(), vec![ZONE.into()])],
        ..Evidence::default()
    };
    let held = after(&csi);
    assert_eq!(
        (held[ZONE].as_str(), held[BETA].as_str(), held[region].as_str()),
        ("a", "a", "s")
    );

    // It holds by either of two keys: each may go alone, both may not.
    let either = |key: &str, value: &str| Term {
        expressions: vec![NodeRequirement {
            key: key.into(),
            operator: NodeOperator::In,
            values: vec![value.into()],
        }],
    };
    let evidence = Evidence {
        volumes: vec![Dependent {
            what: "PersistentVolume pv".into(),
            selector: Labels::new(),
            terms: vec![either(ZONE, "a"), either(region, "r")],
        }],
        ..Evidence::default()
    };
    let one = after(&evidence);
    assert_eq!(
        (one[region].as_str(), one[ZONE].as_str()),
        ("s", "a"),
        "the first by key goes"
    );
    let swap = Evidence {
        volumes: vec![Dependent {
            what: "PersistentVolume pv".into(),
            selector: Labels::new(),
            terms: vec![
                Term {
                    expressions: [either(ZONE, "a"), either(region, "r")]
                        .map(|term| term.expressions)
                        .concat(),
                },
                Term {
                    expressions: [either(ZONE, "b"), either(region, "s")]
                        .map(|term| term.expressions)
                        .concat(),
                },
            ],
        }],
        ..Evidence::default()
    };
    let together = after(&swap);
    assert_eq!(
        (together[region].as_str(), together[ZONE].as_str()),
        ("s", "b"),
        "safe only together"
    );
}

#[test]
fn a_cloud_node_controller_that_rewrites_the_label_from_its_beta_name_is_at_peace_with_us() {
    let rules = [rule(ZONE, Mode::FollowIfSafe, Takeover::IfPlacementMatches)];
    let copied = [(ZONE, "a"), (BETA, "a")];
    let mut now = input(&[(ZONE, "b")], &copied, &Owned::new(), &rules);
    now.stood_on = vec![labels(&[(ZONE, "a")])];
    let evidence = Evidence::default();
    let (first, mut now) = settle(&now, Some(&evidence));
    assert_eq!(decision(&first, ZONE).reason, Reason::TakenOver);
    let beta = now.labels[BETA].clone();
    now.labels.insert(ZONE.into(), beta);
    assert_eq!(plan(&now, Some(&evidence)).patch, None);
    let entries = owned::read(now.owned.as_deref()).unwrap();
    assert_eq!(
        entries[BETA],
        Entry {
            infra_node_uid: entries[BETA].infra_node_uid.clone(),
            vmi_uid: entries[BETA].vmi_uid.clone(),
            ..entry("b", Some("a"))
        }
    );
    now.policies.clear();
    let (_, after) = settle(&now, None);
    assert_eq!(
        after.labels,
        labels(&copied),
        "what it had copied is written back"
    );
}
