use std::path::Path;

use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, FactKey, InventoryEvent},
    findings,
    index::FleetIndex,
    labels::{
        plan::plan,
        policy::{LabelPolicy, Mode, Rule, Source, Takeover},
    },
};

use super::{
    reader::FolderState,
    tests::{key, vmi},
};

const VALID: &str = "\
apiVersion: virtfleet.io/v1alpha1
kind: LabelPropagation
metadata: {name: racks, generation: 3}
spec:
  clusterSelector: {matchLabels: {tier: gold}}
  dryRun: true
  labels:
  - {key: topology.kubernetes.io/zone, mode: FollowIfSafe}
  - {key: rack, target: virtfleet.io/rack, mode: InitialOnly, takeover: Never}
  - {prefix: rack.example.com/, target: virtfleet.io/rack-, mode: Follow, takeover: Always}
  - {prefix: row.example.com/, mode: ReportDrift, takeover: IfPlacementMatches}
";

fn read(text: &str) -> Result<LabelPolicy, String> {
    let mut state = FolderState::default();
    let events = state.update(Path::new("policies/p.yaml"), Some(text));
    match events.into_iter().next() {
        Some(InventoryEvent::Apply(Fact::Policy(policy))) => Ok(*policy),
        other => Err(format!("{other:?} {:?}", state.findings())),
    }
}

#[test]
fn a_policy_is_read_in_full() {
    let policy = read(VALID).unwrap();
    assert_eq!(
        (policy.name.as_str(), policy.generation, policy.dry_run),
        ("racks", 3, true)
    );
    assert_eq!(&policy.clusters.match_labels["tier"], "gold");
    let rule = |source, target: Option<&str>, mode, takeover| Rule {
        source,
        target: target.map(str::to_owned),
        mode: Some(mode),
        takeover,
    };
    assert_eq!(
        policy.rules,
        [
            rule(
                Source::Key("topology.kubernetes.io/zone".into()),
                None,
                Mode::FollowIfSafe,
                None
            ),
            rule(
                Source::Key("rack".into()),
                Some("virtfleet.io/rack"),
                Mode::InitialOnly,
                Some(Takeover::Never)
            ),
            rule(
                Source::Prefix("rack.example.com/".into()),
                Some("virtfleet.io/rack-"),
                Mode::Follow,
                Some(Takeover::Always)
            ),
            rule(
                Source::Prefix("row.example.com/".into()),
                None,
                Mode::ReportDrift,
                Some(Takeover::IfPlacementMatches)
            ),
        ]
    );
    let least = read(
        "apiVersion: virtfleet.io/v1alpha1\nkind: LabelPropagation\nmetadata: {name: p}\nspec: {labels: [{key: rack}]}\n",
    );
    let least = least.unwrap();
    assert_eq!((least.generation, least.dry_run), (0, false));
    assert_eq!(
        (least.rules[0].mode, least.rules[0].takeover),
        (None, None),
        "left to the default of the key"
    );
}

#[test]
fn invalid_policies_are_rejected_with_line_and_path() {
    for (from, to, expected) in [
        (
            "dryRun: true",
            "dryrun: true",
            "policies/p.yaml:6: spec.dryrun: unknown; valid keys: clusterSelector, dryRun, labels",
        ),
        (
            "dryRun: true",
            "dryRun: yes please",
            "spec.dryRun: \"yes please\" is not true or false",
        ),
        (
            "matchLabels",
            "matchLabel",
            "policies/p.yaml:5: spec.clusterSelector.matchLabel: unknown",
        ),
        (
            "target: virtfleet.io/rack,",
            "tarket: virtfleet.io/rack,",
            "policies/p.yaml:9: spec.labels[1].tarket: unknown",
        ),
        (
            "mode: FollowIfSafe",
            "mode: follow",
            "spec.labels[0].mode: \"follow\" is not one of Follow, InitialOnly, FollowIfSafe, ReportDrift",
        ),
        (
            "takeover: Never",
            "takeover: Sometimes",
            "spec.labels[1].takeover: \"Sometimes\" is not one of Never, ",
        ),
        (
            "prefix: rack.example.com/",
            "key: rack, prefix: rack.example.com/",
            "spec.labels[2]: key and prefix exclude each other",
        ),
        (
            "{prefix: row.example.com/, ",
            "{prefix: '', ",
            "spec.labels[3]: needs key or prefix",
        ),
        (
            "key: rack,",
            "key: rack/,",
            "spec.labels[1].key: \"rack/\" is not a label key",
        ),
        (
            "target: virtfleet.io/rack,",
            "target: a b,",
            "spec.labels[1].target: \"a b\" is not a label key",
        ),
        ("  labels:\n", "  labels: {}\n  x:\n", "spec.x: unknown"),
        ("name: racks, ", "", "metadata.name: required"),
        (
            "generation: 3",
            "generation: three",
            "metadata.generation: \"three\" is not a whole number",
        ),
    ] {
        let text = VALID.replacen(from, to, 1);
        assert_ne!(text, VALID, "{from}");
        let mut state = FolderState::default();
        assert!(state.update(Path::new("policies/p.yaml"), Some(&text)).is_empty());
        let found = state.findings();
        assert!(
            found.len() == 1
                && found[0].id == findings::MANIFEST_BROKEN
                && found[0].message.contains(expected),
            "expected {expected}\nfound {found:?}"
        );
    }
    let none = "apiVersion: virtfleet.io/v1alpha1\nkind: LabelPropagation\nmetadata: {name: p}\n";
    assert!(read(none).unwrap_err().contains("spec.labels: required"));
}

#[test]
fn an_invalid_policy_keeps_its_last_valid_version_and_others_are_ignored() {
    let mut state = FolderState::default();
    let path = Path::new("policies/p.yaml");
    assert_eq!(state.update(path, Some(VALID)).len(), 1);
    assert!(
        state
            .update(path, Some(&VALID.replace("dryRun", "dry")))
            .is_empty()
    );
    assert_eq!(state.facts().count(), 1);
    assert_eq!(
        state.update(path, None),
        [InventoryEvent::Delete(FactKey::Policy("racks".into()))]
    );
    for elsewhere in ["infra/p.yaml", "clusters/blue/p.yaml"] {
        assert!(state.update(Path::new(elsewhere), Some(VALID)).is_empty());
    }
    let ids: Vec<_> = state.findings().into_iter().map(|finding| finding.id).collect();
    assert_eq!(ids, [findings::MANIFEST_KIND_IGNORED; 2]);
}

#[test]
fn labels_are_planned_from_a_folder() {
    let cluster = "apiVersion: virtfleet.io/v1alpha1\nkind: UserCluster\nmetadata: {name: blue, labels: {tier: gold}}\nspec: {vmis: {namespace: tenants}, suspend: true}\n";
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: w0, labels: {a: b}}\nstatus: {nodeInfo: {systemUUID: 5d307ca9-b3ef-428c-8861-06e72d69f223}}\n";
    let machine = "spec: {domain: {firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223}}}\nstatus:";
    let host = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {rack: r7}}\n";
    let mut state = FolderState::default();
    let mut index = FleetIndex::new(DialRules::default());
    let mut put = |path: &str, text: &str| {
        for event in state.update(Path::new(path), Some(text)) {
            index.apply(event);
        }
        index.apply(InventoryEvent::Synced);
        index.label_input(&key("w0"))
    };
    put("infra/vmi.yaml", &vmi("w0", "n1").replace("status:", machine));
    put("infra/node.yaml", host);
    put("clusters/blue/nodes.yaml", node);
    put("policies/p.yaml", &VALID.replace("dryRun: true", "dryRun: false"));
    let suspended = put("clusters/blue/cluster.yaml", cluster).unwrap();
    assert!(suspended.suspended && plan(&suspended, None).patch.is_none());
    let input = put(
        "clusters/blue/cluster.yaml",
        &cluster.replace("suspend: true", "suspend: false"),
    )
    .unwrap();
    let patch = plan(&input, None).patch.unwrap();
    assert_eq!(patch.labels["virtfleet.io/rack"].as_deref(), Some("r7"));
    let lead = put("clusters/blue/cluster.yaml", &cluster.replace("gold", "lead")).unwrap();
    assert!(lead.policies.is_empty(), "another tier");
}
