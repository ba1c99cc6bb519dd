//! Tests of `virtfleetctl labels` with a real listener.

use super::tests::Server;

#[test]
fn differences_and_their_reasons() {
    let server = Server::new();
    let (code, out, _) = server.run(&["labels", "diff"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(out, @r#"
    CLUSTER  NODE      KEY               IS  SHOULD-BE  ACTION  REASON  POLICY
    alpha    worker-0  example.com/rack  r1  r2         set     Moved   racks
    "#);
    let (_, all, _) = server.run(&["labels", "diff", "--all"]);
    insta::assert_snapshot!(all, @r#"
    CLUSTER  NODE      KEY               IS  SHOULD-BE  ACTION  REASON            POLICY
    alpha    worker-0  example.com/rack  r1  r2         set     Moved             racks
    alpha    worker-1  example.com/rack  r1  -          keep    PlacementUnknown  racks
    "#);
    let (code, out, _) = server.run(&["labels", "why", "alpha/worker-0", "example.com/rack"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(out, @r#"
    Node:            alpha/worker-0
    Key:             example.com/rack
    Is:              r1
    Should be:       r2
    Action:          set
    Reason:          Moved: example.com/rack on the infra node host-1 is "r2", and "r1" was written before
    VM:              team-a/worker-0
    Infra node:      host-1
    Source key:      example.com/rack
    Policy:          racks
    Mode:            Follow
    "#);
    let (code, _, err) = server.run(&["labels", "why", "worker-0", "example.com/row"]);
    assert_eq!(code, 4);
    assert!(err.contains("no policy selects that key"), "{err}");
}

#[test]
fn another_policy_is_tested_without_a_write() {
    let server = Server::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        server.run(&["labels", "policy", "test", "--all", file.to_str().unwrap()])
    };
    let policy = |rule: &str| {
        format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: LabelPropagation\nmetadata: {{ name: racks }}\nspec:\n  labels:\n  - {rule}\n"
        )
    };
    let (code, out, _) = run(&policy("{ key: example.com/rack, mode: Follow }"));
    assert_eq!((code, out.as_str()), (0, "Nothing would change.\n"));
    let (code, out, _) = run(&policy("{ key: example.com/rack, mode: ReportDrift }"));
    assert_eq!(code, 0);
    insta::assert_snapshot!(out, @r#"
    CLUSTER  NODE      KEY               IS  SHOULD-BE  ACTION  REASON            POLICY
    alpha    worker-0  example.com/rack  r1  r2         report  Drift             racks
    alpha    worker-1  example.com/rack  r1  -          keep    PlacementUnknown  racks
    "#);
    let (_, changes, _) = server.run(&["labels", "policy", "test", file.to_str().unwrap()]);
    assert_eq!(
        changes.lines().count(),
        2,
        "no row for a key that is written neither before nor after: {changes}"
    );
    let (code, out, _) = run(&policy(
        "{ key: example.com/rack, target: infra.example.com/rack, mode: Follow }",
    ));
    assert_eq!(code, 0);
    insta::assert_snapshot!(out, @r#"
    CLUSTER  NODE      KEY                     IS  SHOULD-BE  ACTION  REASON            POLICY
    alpha    worker-0  example.com/rack        r1  -          remove  Withdrawn         -
    alpha    worker-0  infra.example.com/rack  -   r2         set     Missing           racks
    alpha    worker-1  example.com/rack        r1  -          keep    PlacementUnknown  -
    alpha    worker-1  infra.example.com/rack  -   -          keep    PlacementUnknown  racks
    "#);
    let (code, _, err) = run(&policy("{ key: example.com/rack, mod: Follow }"));
    assert_ne!(code, 0);
    assert!(err.contains("policy.yaml:6") && err.contains("mode"), "{err}");
    let (code, _, err) = server.run(&["labels", "policy", "test", "x", "--watch"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn deleting_policies_shows_reverted_labels() {
    let server = Server::new();
    for what in [&["--delete", "racks"][..], &["--delete-all"]] {
        let (code, out, _) = server.run(&[&["labels", "policy", "test"], what].concat());
        assert_eq!(code, 0);
        insta::allow_duplicates! {
            insta::assert_snapshot!(out, @r#"
            CLUSTER  NODE      KEY               IS  SHOULD-BE  ACTION  REASON     POLICY
            alpha    worker-0  example.com/rack  r1  -          remove  Withdrawn  -
            "#);
        }
    }
    let (code, _, err) = server.run(&["labels", "policy", "test", "--delete", "rack"]);
    assert_eq!(code, 4);
    assert!(err.contains("\"rack\""), "{err}");
}
