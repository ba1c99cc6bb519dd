//! Tests of keys that change together: topology labels with their beta names, and labels that
//! follow only if that is safe.

use super::{
    tests::{BETA, ZONE, decision, entry, input, owning, plan_and_apply, pod, policy, rule},
    *,
};
use crate::{
    labels::{
        evidence::{Dependent, NodeOperator, NodeRequirement, Term},
        owned::OwnedLabel,
        policy::{Mode, Takeover},
    },
    store::tests::labels,
};

use Mode::{Follow, FollowIfSafe, InitialOnly, ReportDrift};
use Takeover::{Always, IfPlacementMatches, Never};

/// GA and beta: values on the Node, and the outcomes.
#[test]
fn topology_labels_change_with_their_beta_names() {
    let host = [(ZONE, "b")];
    let pair = |node: &[(&str, &str)], owned: &Owned, takeover, mode| {
        let (plan, after) = plan_and_apply(
            &input(&host, node, owned, &[rule(ZONE, mode, takeover)]),
            Some(&Evidence::default()),
        );
        let label = |key: &str| after.labels.get(key).map(str::to_owned).unwrap_or_default();
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
    // Written together, even if the Node had no beta label.
    for mode in [Follow, FollowIfSafe, InitialOnly] {
        let (ga, beta, why, and) = pair(&[], &nothing, Never, mode);
        assert_eq!(
            ((ga, beta), why, and),
            (both("b"), Reason::Missing, Some(Reason::Missing))
        );
    }
    let (ga, beta, ..) = pair(&[(ZONE, "a"), (BETA, "a")], &nothing, Always, Follow);
    assert_eq!((ga, beta), both("b"));
    // Not written if the Node has no beta label and the other label is not owned.
    let (ga, beta, why, and) = pair(&[(ZONE, "b")], &nothing, Always, Follow);
    assert_eq!(
        (ga.as_str(), beta.as_str(), why, and),
        ("b", "", Reason::InLine, None)
    );
    // A key that may not be written prevents the change of the other one.
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
    // Owned: repaired, followed; an entry for the beta name alone is dropped.
    let owned_pair = owning(&[(ZONE, "b", None), (BETA, "b", None)]);
    let (ga, beta, why, and) = pair(&[(ZONE, "b")], &owned_pair, Never, Follow);
    assert_eq!(
        ((ga, beta), why, and),
        (both("b"), Reason::InLine, Some(Reason::Repaired))
    );
    let lost = owning(&[(BETA, "x", None)]);
    let (.., and) = pair(&[(ZONE, "b")], &lost, Never, Follow);
    assert_eq!(and, Some(Reason::Withdrawn));
}

#[test]
fn pairs_are_reverted_unless_the_kubelet_imposes_them() {
    let owned_pair = owning(&[(ZONE, "a", Some("f")), (BETA, "a", None)]);
    let node = [(ZONE, "a"), (BETA, "a")];
    for rules in [&[][..], &[rule(ZONE, Follow, Never)]] {
        let (_, after) = plan_and_apply(&input(&[], &node, &owned_pair, rules), None);
        assert_eq!(after.labels, labels(&[(ZONE, "f")]));
        assert_eq!(after.owned, None);
    }
    let rules = [rule(ZONE, Follow, Always)];
    let mut imposed = input(&[(ZONE, "b")], &[(ZONE, "k"), (BETA, "a")], &owned_pair, &rules);
    imposed.kubelet_labels.insert(ZONE.into());
    let (plan, after) = plan_and_apply(&imposed, None);
    assert_eq!(after.labels, imposed.labels);
    for key in [ZONE, BETA] {
        assert_eq!(decision(&plan, key).reason, Reason::KubeletImposes);
    }
    let rules = [rule(BETA, Follow, Never)];
    let (_, after) = plan_and_apply(&input(&[(ZONE, "b")], &[], &Owned::new(), &rules), None);
    assert_eq!(
        after.labels,
        labels(&[(ZONE, "b"), (BETA, "b")]),
        "selected by its beta name"
    );
}

#[test]
fn topology_labels_follow_if_safe_and_name_the_obstacle() {
    let region = "topology.kubernetes.io/region";
    let rules = [
        rule(ZONE, FollowIfSafe, Never),
        rule(region, FollowIfSafe, Never),
        rule("k", Follow, Never),
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

    let after = |evidence: &Evidence| plan_and_apply(&now, Some(evidence)).1.labels;
    let free = after(&Evidence::default());
    assert_eq!((&free[ZONE], &free[BETA], &free[region]), ("b", "b", "s"));
    let zone_stays = after(&pod(&[(BETA, "a")]));
    let pinned = after(&pod(&[(ZONE, "a"), (region, "r")]));
    assert_eq!(
        (&zone_stays[ZONE], &zone_stays[BETA]),
        ("a", "a"),
        "both members of the pair are kept"
    );
    assert_eq!(&zone_stays[region], "s");
    assert_eq!((&pinned[ZONE], &pinned[region], &pinned["k"]), ("a", "r", "2"));
    let gone = after(&pod(&[("k", "1")]));
    assert_eq!(
        &gone[ZONE], "b",
        "the zone may change although another key may not"
    );

    let message = plan_and_apply(&now, Some(&pod(&[(ZONE, "a")]))).0;
    assert!(decision(&message, ZONE).message.contains("pod shop/db-0"));
    let csi = Evidence {
        csi: vec![("csi.example.com".into(), vec![ZONE.into()])],
        ..Evidence::default()
    };
    let held = after(&csi);
    assert_eq!((&held[ZONE], &held[BETA], &held[region]), ("a", "a", "s"));
}

#[test]
fn safety_is_checked_for_all_changes_together() {
    let region = "topology.kubernetes.io/region";
    let rules = [ZONE, region].map(|key| rule(key, FollowIfSafe, Never));
    let owned = owning(&[(ZONE, "a", None), (BETA, "a", None), (region, "r", None)]);
    let node = [(ZONE, "a"), (BETA, "a"), (region, "r")];
    let now = input(&[(ZONE, "b"), (region, "s")], &node, &owned, &rules);
    let after = |evidence: &Evidence| plan_and_apply(&now, Some(evidence)).1.labels;
    // The volume matches by either of two keys: each may change alone, but not both.
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
    assert_eq!((&one[region], &one[ZONE]), ("s", "a"), "the first key follows");
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
        (&together[region], &together[ZONE]),
        ("s", "b"),
        "safe only together"
    );
}

#[test]
fn cloud_node_controller_copies_cause_no_update_loop() {
    let rules = [rule(ZONE, FollowIfSafe, IfPlacementMatches)];
    let copied = [(ZONE, "a"), (BETA, "a")];
    let mut now = input(&[(ZONE, "b")], &copied, &Owned::new(), &rules);
    now.stood_on = vec![labels(&[(ZONE, "a")])];
    let evidence = Evidence::default();
    let (first, mut now) = plan_and_apply(&now, Some(&evidence));
    assert_eq!(decision(&first, ZONE).reason, Reason::TakenOver);
    let beta = now.labels[BETA].to_owned();
    now.labels.insert(ZONE.into(), beta);
    assert_eq!(plan(&now, Some(&evidence)).patch, None);
    let entries = owned::read(now.owned.as_deref()).unwrap();
    assert_eq!(
        entries[BETA],
        OwnedLabel {
            infra_node_uid: entries[BETA].infra_node_uid.clone(),
            vmi_uid: entries[BETA].vmi_uid.clone(),
            if_safe: true,
            ..entry("b", Some("a"))
        }
    );
    now.policies.clear();
    let (_, after) = plan_and_apply(&now, Some(&evidence));
    assert_eq!(after.labels, labels(&copied), "the copied value is restored");
}

/// The policy that asked for `FollowIfSafe` is deleted while a volume or a pod is bound to the
/// zone.
#[test]
fn labels_written_if_safe_are_reverted_only_if_safe() {
    let region = "topology.kubernetes.io/region";
    let rules = [ZONE, region].map(|key| rule(key, FollowIfSafe, Never));
    let host = [(ZONE, "b"), (region, "s")];
    let free = Evidence::default();
    let (_, mut now) = plan_and_apply(
        &input(&host, &[(BETA, "b")], &owning(&[(BETA, "b", None)]), &rules),
        Some(&free),
    );
    let written = now.labels.clone();
    assert_eq!(
        (&written[ZONE], &written[BETA], &written[region]),
        ("b", "b", "s")
    );
    now.policies.clear();
    let blind = plan(&now, None);
    assert_eq!((blind.patch.is_none(), blind.needs_evidence), (true, true));
    assert_eq!(decision(&blind, ZONE).reason, Reason::SafetyUnknown);
    let (held, after) = plan_and_apply(&now, Some(&pod(&[(BETA, "b")])));
    assert_eq!(
        after.labels,
        labels(&[(ZONE, "b"), (BETA, "b")]),
        "both members of the pair are kept, the region is removed"
    );
    assert!(decision(&held, ZONE).message.contains("pod shop/db-0"));
    let (_, after) = plan_and_apply(&after, Some(&free));
    assert_eq!((after.labels, after.owned), (Labels::new(), None));

    // The mode that applied last decides: only labels written under FollowIfSafe are kept.
    now.policies = vec![policy("p", &[ZONE, region].map(|key| rule(key, Follow, Never)))];
    let (changed, mut now) = plan_and_apply(&now, None);
    assert_eq!(changed.patch.unwrap().labels, BTreeMap::new());
    now.policies.clear();
    let (plan, after) = plan_and_apply(&now, None);
    assert_eq!((after.labels, plan.needs_evidence), (Labels::new(), false));
}
