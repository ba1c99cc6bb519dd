use super::*;
use crate::{facts::Selector, store::tests::labels};

fn key(source: &str, target: Option<&str>) -> Rule {
    rule(Source::Key(source.into()), target)
}

fn prefix(source: &str, target: Option<&str>) -> Rule {
    rule(Source::Prefix(source.into()), target)
}

fn rule(source: Source, target: Option<&str>) -> Rule {
    Rule {
        source,
        target: target.map(str::to_owned),
        mode: None,
        takeover: None,
    }
}

fn policy(name: &str, rules: &[Rule]) -> LabelPolicy {
    LabelPolicy {
        name: name.into(),
        uid: None,
        generation: 1,
        clusters: Selector::default(),
        dry_run: false,
        rules: rules.to_vec(),
    }
}

/// `target ← source = value, mode, takeover (policies)`, or the conflict's policies.
fn shown(desired: &BTreeMap<String, MergedRule>) -> Vec<String> {
    let one = |(target, desired): (&String, &MergedRule)| match desired {
        MergedRule::Agreed(rule) => format!(
            "{target} ← {} = {} {:?} {:?} ({})",
            rule.source,
            rule.desired.as_deref().unwrap_or("-"),
            rule.mode,
            rule.takeover,
            desired.policy()
        ),
        MergedRule::Conflict(_) => format!("{target} ⚡ ({})", desired.policy()),
    };
    desired.iter().map(one).collect()
}

fn host() -> Labels {
    labels(&[
        ("rack.example.com/row", "7"),
        ("rack.example.com/slot/u", "bad"),
        ("rack.example.com/slot", "3"),
        ("topology.kubernetes.io/zone", "a"),
        ("other", "x"),
    ])
}

fn real(policies: &[LabelPolicy]) -> Vec<String> {
    shown(&merge(policies, &host(), &[]).real)
}

#[test]
fn keys_and_prefixes_map_to_targets() {
    let rules = [
        prefix("rack.example.com/", Some("virtfleet.io/rack-")),
        prefix("rack.example.com/slot", Some("virtfleet.io/place")),
        key("rack.example.com/slot", Some("slot")),
        key("none", None),
        key("topology.kubernetes.io/zone", None),
    ];
    assert_eq!(
        real(&[policy("p", &rules)]),
        [
            "none ← none = - FollowIfSafe IfPlacementMatches (p)",
            "slot ← rack.example.com/slot = 3 FollowIfSafe IfPlacementMatches (p)",
            "topology.kubernetes.io/zone ← topology.kubernetes.io/zone = a FollowIfSafe IfPlacementMatches (p)",
            "virtfleet.io/place/u ← rack.example.com/slot/u = bad FollowIfSafe IfPlacementMatches (p)",
            "virtfleet.io/rack-row ← rack.example.com/row = 7 FollowIfSafe IfPlacementMatches (p)",
        ],
        "an exact key precedes a prefix, a longer prefix a shorter one"
    );
    let twice = [key("other", None), key("other", Some("copy"))];
    assert_eq!(real(&[policy("p", &twice)]).len(), 2, "one label to two keys");
}

#[test]
fn equal_rules_compose_and_different_ones_conflict() {
    let one = policy("one", &[key("other", None)]);
    let same = policy("two", &[key("other", Some("other"))]);
    assert_eq!(
        real(&[one.clone(), same.clone()]),
        ["other ← other = x FollowIfSafe IfPlacementMatches (one, two)"]
    );
    let spelled = Rule {
        mode: Some(Mode::Follow),
        takeover: Some(Takeover::IfPlacementMatches),
        ..key("other", None)
    };
    assert_eq!(
        real(&[one.clone(), policy("two", std::slice::from_ref(&spelled))]).len(),
        1,
        "an explicit default equals an implicit one"
    );
    for different in [
        key("rack.example.com/row", Some("other")),
        Rule {
            mode: Some(Mode::InitialOnly),
            ..spelled.clone()
        },
        Rule {
            takeover: Some(Takeover::Always),
            ..spelled.clone()
        },
    ] {
        let two = policy("two", std::slice::from_ref(&different));
        assert_eq!(real(&[one.clone(), two.clone()]), ["other ⚡ (one, two)"]);
        let MergedRule::Conflict(conflict) = &merge(&[one.clone(), two], &host(), &[]).real["other"] else {
            panic!()
        };
        for named in ["one (other", "two (", "Follow", "until they agree"] {
            assert!(conflict.message.contains(named), "{}", conflict.message);
        }
        let itself = policy("self", &[key("other", None), different]);
        assert_eq!(real(&[itself]), ["other ⚡ (self)"], "one policy against itself");
    }
    let dynamic = [
        prefix("rack.example.com/", Some("t/")),
        key("other", Some("t/row")),
    ];
    let both = real(&[policy("p", &dynamic)]);
    assert!(both.contains(&"t/row ⚡ (p)".to_owned()), "{both:?}");
}

#[test]
fn dry_runs_are_ignored_for_keys_of_real_policies() {
    let dry = LabelPolicy {
        dry_run: true,
        ..policy("dry", &[prefix("", None)])
    };
    let merged = merge(&[dry.clone(), policy("p", &[key("other", None)])], &host(), &[]);
    assert_eq!(shown(&merged.real).len(), 1);
    assert_eq!(shown(&merged.dry).len(), 4);
    assert!(!merged.dry.contains_key("other"));
    let second = LabelPolicy {
        name: "dry2".into(),
        rules: vec![key("rack.example.com/row", Some("other"))],
        ..dry.clone()
    };
    let merged = merge(&[dry, second], &host(), &[]);
    assert!(matches!(merged.dry["other"], MergedRule::Conflict(_)));
    assert!(merged.real.is_empty());
}

#[test]
fn a_topology_label_and_its_beta_name_are_one_target() {
    let both = [
        prefix("topology.kubernetes.io/", None),
        prefix("failure-domain.beta.kubernetes.io/", None),
    ];
    let old = labels(&[("failure-domain.beta.kubernetes.io/zone", "b")]);
    let new = labels(&[("topology.kubernetes.io/zone", "a")]);
    let mut together = old.clone();
    together.extend(new.clone());
    for (host, value) in [(old, "b"), (new, "a"), (together, "a")] {
        assert_eq!(
            shown(&merge(&[policy("p", &both)], &host, &[]).real),
            [format!(
                "topology.kubernetes.io/zone ← topology.kubernetes.io/zone = {value} FollowIfSafe IfPlacementMatches (p)"
            )]
        );
    }
    let copy = [key("failure-domain.beta.kubernetes.io/zone", Some("zone"))];
    assert_eq!(
        real(&[policy("p", &copy)]),
        ["zone ← failure-domain.beta.kubernetes.io/zone = - FollowIfSafe IfPlacementMatches (p)"],
        "other keys have no beta fallback"
    );
}

#[test]
fn a_key_under_a_prefix_stays_desired_without_its_source() {
    let rules = [
        prefix("rack.example.com/", Some("virtfleet.io/rack-")),
        key("rack.example.com/old", Some("elsewhere")),
    ];
    let owned = [
        "virtfleet.io/rack-gone",
        "virtfleet.io/rack-old",
        "virtfleet.io/rack-row",
        "free",
    ]
    .map(str::to_owned);
    let merged = merge(&[policy("p", &rules)], &host(), &owned).real;
    assert!(
        matches!(&merged["virtfleet.io/rack-gone"], MergedRule::Agreed(rule) if rule.desired.is_none() && rule.source == "rack.example.com/gone")
    );
    assert!(matches!(&merged["virtfleet.io/rack-row"], MergedRule::Agreed(rule) if rule.desired.is_some()));
    assert!(
        !merged.contains_key("virtfleet.io/rack-old"),
        "an exact rule gives that source another target"
    );
    assert!(!merged.contains_key("free"));
    let exact = policy("exact", &[key("a", Some("virtfleet.io/rack-gone"))]);
    let merged = merge(&[policy("p", &rules), exact], &host(), &owned).real;
    assert!(
        matches!(&merged["virtfleet.io/rack-gone"], MergedRule::Agreed(rule) if rule.source == "a"),
        "a rule for a missing source does not conflict with an actual one"
    );
}
