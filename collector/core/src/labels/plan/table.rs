//! Every branch of the outcome of one key.

use super::{
    tests::{BETA, RESTRICTED, ZONE, decision, input, owning, plan_and_apply, policy, rule},
    *,
};
use crate::{
    labels::{
        owned::OwnedLabel,
        policy::{Mode, Takeover},
    },
    store::tests::labels,
};

/// Value on the Node; written value and the value before it; value on the host.
type Facts = (
    Option<&'static str>,
    Option<(&'static str, Option<&'static str>)>,
    Option<&'static str>,
);

/// Plans the key `k`. Returns action, reason, the label afterwards, and whether there is an entry
/// afterwards.
fn outcome(
    (current, owned, desired): Facts,
    mode: Mode,
    takeover: Takeover,
    change: impl FnOnce(&mut LabelInput),
) -> (Action, Reason, Option<String>, Option<OwnedLabel>) {
    outcome_of("k", (current, owned, desired), mode, takeover, change)
}

fn outcome_of(
    key: &str,
    (current, owned, desired): Facts,
    mode: Mode,
    takeover: Takeover,
    change: impl FnOnce(&mut LabelInput),
) -> (Action, Reason, Option<String>, Option<OwnedLabel>) {
    let node: Vec<_> = current.map(|value| (key, value)).into_iter().collect();
    let host: Vec<_> = desired.map(|value| (key, value)).into_iter().collect();
    let owned: Vec<_> = owned
        .map(|(value, previous)| (key, value, previous))
        .into_iter()
        .collect();
    let mut input = input(&host, &node, &owning(&owned), &[rule(key, mode, takeover)]);
    change(&mut input);
    let (plan, after) = plan_and_apply(&input, Some(&Evidence::default()));
    let owned = owned::read(after.owned.as_deref()).unwrap();
    let decision = decision(&plan, key);
    (
        decision.action,
        decision.reason,
        after.labels.get(key).map(str::to_owned),
        owned.get(key).cloned(),
    )
}

/// Value on the Node, written value over previous value, value on the host; mode and takeover; then
/// action, reason, and the label afterwards, with `*` if the annotation has an entry.
const TABLE: &str = r"
    b  -    b    Follow       Always  Keep    InLine       b     in line: not claimed when it is not ours
    b  b    b    Follow       Never   Keep    InLine       b*
    b  a    b    Follow       Never   Keep    InLine       b     a stale claim goes
    b  -    b    ReportDrift  Never   Keep    InLine       b
    -  -    -    Follow       Never   Keep    InLine       -
    -  a    -    Follow       Never   Keep    InLine       -
    -  a    -    InitialOnly  Never   Keep    InLine       -*
    a  a    -    Follow       Never   Remove  SourceGone   -     the infra node has none
    a  a/f  -    Follow       Never   Restore SourceGone   f
    a  a    -    FollowIfSafe Never   Remove  SourceGone   -
    a  a    -    InitialOnly  Never   Keep    Initial      a*
    a  a    -    ReportDrift  Never   Report  Drift        a*
    f  -    -    Follow       Always  Keep    Foreign      f
    f  a    -    Follow       Always  Keep    Foreign      f
    -  -    b    Follow       Never   Set     Missing      b*    the Node has none
    -  -    ''   Follow       Never   Set     Missing      ''*
    -  -    b    FollowIfSafe Never   Set     Missing      b*
    -  -    b    InitialOnly  Never   Set     Missing      b*
    -  -    b    ReportDrift  Always  Report  Drift        -
    -  a/f  b    Follow       Never   Set     Repaired     b*
    -  a    b    FollowIfSafe Never   Set     Repaired     b*
    -  a    b    InitialOnly  Never   Keep    Initial      -*
    a  a    b    Follow       Never   Set     Moved        b*    it differs, and is ours
    a  a    b    FollowIfSafe Never   Set     Moved        b*
    a  a    b    InitialOnly  Never   Keep    Initial      a*
    a  a    b    ReportDrift  Always  Report  Drift        a*
    f  -    b    Follow       Never   Report  Foreign      f     it differs, and is not
    f  a    b    Follow       Never   Report  Foreign      f
    f  -    b    FollowIfSafe Never   Report  Foreign      f
    f  -    b    InitialOnly  Always  Keep    Initial      f
    f  -    b    ReportDrift  Always  Report  Drift        f
    f  -    b    Follow       Always  Set     TakenOver    b*
    f  a    b    FollowIfSafe Always  Set     TakenOver    b*
    a  a    b!   Follow       Always  Report  InvalidValue a*    what cannot be a label
";

#[test]
fn every_mode_and_state() {
    fn value(word: &'static str) -> Option<&'static str> {
        (word != "-").then(|| word.trim_matches('\''))
    }
    let rows = TABLE.lines().filter(|row| !row.trim().is_empty());
    for row in rows {
        let words: Vec<_> = row.split_whitespace().collect();
        let owned = value(words[1]).map(|owned| match owned.split_once('/') {
            Some((ours, before)) => (ours, Some(before)),
            None => (owned, None),
        });
        let mode = serde_json::from_value(json!(words[3])).unwrap();
        let takeover = serde_json::from_value(json!(words[4])).unwrap();
        let facts = (value(words[0]), owned, value(words[2]));
        let (action, reason, label, entry) = outcome(facts, mode, takeover, |_| {});
        let claimed = words[7].strip_suffix('*');
        let expected = value(claimed.unwrap_or(words[7]));
        assert_eq!(
            format!("{action:?} {}", reason.as_str()),
            format!("{} {}", words[5], words[6]),
            "{row}"
        );
        assert_eq!(
            (label.as_deref(), entry.is_some()),
            (expected, claimed.is_some()),
            "{row}"
        );
    }
}

#[test]
fn previous_value_is_kept_until_another_writer_removes_the_label() {
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
fn values_of_previous_hosts_are_replaced() {
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
fn labels_imposed_by_the_kubelet_are_reported_only() {
    for mode in [Mode::Follow, Mode::InitialOnly, Mode::ReportDrift] {
        for owned in [None, Some(("a", Some("f")))] {
            let facts = (Some("k"), owned, Some("b"));
            let (action, reason, label, entry) = outcome_of(ZONE, facts, mode, Takeover::Always, |input| {
                input.kubelet_labels.insert(ZONE.into());
            });
            assert_eq!((action, reason), (Action::Report, Reason::KubeletImposes));
            assert_eq!((label.as_deref(), entry.is_some()), (Some("k"), owned.is_some()));
        }
    }
    let ours = (Some("a"), Some(("a", None)), Some("b"));
    let (_, reason, ..) = outcome_of(ZONE, ours, Mode::Follow, Takeover::Never, |input| {
        input.kubelet_labels.insert(ZONE.into());
    });
    assert_eq!(reason, Reason::Moved, "owned while it has the written value");
}

#[test]
fn unconfirmed_removal_of_the_source_reverts_nothing() {
    let facts = (Some("a"), Some(("a", Some("f"))), None);
    for mode in [Mode::Follow, Mode::FollowIfSafe] {
        let (action, reason, label, entry) = outcome(facts, mode, Takeover::Never, |input| {
            input.unconfirmed.insert("k".into());
        });
        assert_eq!((action, reason), (Action::Keep, Reason::SourceGone));
        assert_eq!((label.as_deref(), entry.is_some()), (Some("a"), true));
    }
}

#[test]
fn unconfirmed_change_of_the_source_writes_nothing() {
    let facts = (Some("a"), Some(("a", Some("f"))), Some("b"));
    for mode in [Mode::Follow, Mode::FollowIfSafe] {
        let (action, reason, label, entry) = outcome(facts, mode, Takeover::Never, |input| {
            input.unconfirmed.insert("k".into());
        });
        assert_eq!((action, reason), (Action::Keep, Reason::Moved));
        assert_eq!((label.as_deref(), entry.is_some()), (Some("a"), true));
    }
}

/// A kubelet writes other keys only when it registers the Node, so the takeover rule decides.
#[test]
fn labels_written_at_registration_belong_to_another_writer() {
    for (takeover, expected) in [
        (Takeover::Always, Reason::TakenOver),
        (Takeover::Never, Reason::Foreign),
    ] {
        let facts = (Some("k"), None, Some("b"));
        let (_, reason, ..) = outcome(facts, Mode::Follow, takeover, |input| {
            input.kubelet_labels.insert("k".into());
        });
        assert_eq!(reason, expected);
    }
}

/// A kubelet may have written the annotation's entries under `node-restriction.kubernetes.io`.
#[test]
fn missing_source_of_a_restricted_key_is_reported_only_with_an_entry() {
    let of = |owned| {
        outcome_of(
            RESTRICTED,
            (Some("a"), owned, None),
            Mode::Follow,
            Takeover::Always,
            |_| {},
        )
        .1
    };
    assert_eq!(of(None), Reason::Foreign);
    assert_eq!(of(Some(("other", None))), Reason::Foreign);
    assert_eq!(of(Some(("a", None))), Reason::SourceGone);
}

#[test]
fn withdrawn_labels_are_reverted_while_owned() {
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
fn the_annotation_does_not_authorise_restricted_keys() {
    use Mode::{Follow, InitialOnly};
    use Takeover::{Always, Never};
    let at = |facts, mode, takeover, change: fn(&mut LabelInput)| {
        let (_, reason, label, entry) = outcome_of(RESTRICTED, facts, mode, takeover, change);
        (reason, label, entry.is_some())
    };
    let keep = |_: &mut LabelInput| {};
    let some = |value: &str| Some(value.to_owned());
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
        "the entry alone does not authorise it"
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
fn protected_keys_never_change() {
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
        assert_eq!(
            (label.as_deref(), entry),
            (Some("w0"), None),
            "the entry is dropped"
        );
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
        let (plan, after) = plan_and_apply(&now, Some(&Evidence::default()));
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
