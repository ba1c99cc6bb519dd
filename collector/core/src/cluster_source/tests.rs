use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    CredentialStep, ExistingCluster, HeldRemoval, KnownCredential, NamePattern, SkipReason, SourceCluster,
    SourceKind, SourcePlan, SourceRules, credential_step, plan, read_cluster,
};
use crate::facts::Selector;

fn rules() -> SourceRules {
    SourceRules {
        name: "seed".into(),
        selector: Selector::default(),
        pattern: None,
        max_clusters: 100,
        vm_namespace: None,
        allow_removal: false,
        is_suspended: false,
    }
}

fn kkp(name: &str, more: &Value) -> SourceCluster {
    let mut object = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "tier": "gold" } },
        "spec": { "cloud": { "kubevirt": {} } }, "status": { "namespaceName": format!("cluster-{name}") },
    });
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
        if key == "deletionTimestamp" {
            object["metadata"][key] = value.clone();
        }
    }
    read_cluster(SourceKind::Kkp, &object).unwrap()
}

/// The cluster `blue` of Cluster API in a namespace, which is its UID, too.
fn blue(namespace: &str) -> SourceCluster {
    let object = json!({
        "metadata": { "namespace": namespace, "name": "blue", "uid": namespace },
        "spec": { "infrastructureRef": { "kind": "KubevirtCluster" } },
    });
    read_cluster(SourceKind::ClusterApi, &object).unwrap()
}

fn made(name: &str, source: Option<&str>) -> ExistingCluster {
    ExistingCluster {
        name: name.into(),
        source: source.map(str::to_owned),
        source_key: name.into(),
        source_uid: format!("uid-{name}"),
        is_deleting: false,
        hibernates: false,
    }
}

fn names(plan: &SourcePlan) -> Vec<&str> {
    plan.keep.iter().map(|one| one.name.as_str()).collect()
}

fn reasons(plan: &SourcePlan) -> Vec<(&str, SkipReason)> {
    plan.skipped
        .iter()
        .map(|one| (one.key.as_str(), one.reason))
        .collect()
}

#[test]
fn objects_of_each_platform_are_read() {
    let one = kkp("abc", &json!({}));
    assert_eq!(
        (
            one.vm_namespace.as_deref(),
            one.credential_namespace.as_deref(),
            one.is_on_kubevirt
        ),
        (Some("cluster-abc"), Some("cluster-abc"), true)
    );
    assert_eq!(one.vm_labels["kubermatic.k8c.io/cluster-id"], "abc");
    assert!(!kkp("abc", &json!({ "cloud": { "aws": {} } })).is_on_kubevirt);
    for (version, reference) in [
        (
            "v1beta1",
            json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "KubevirtCluster" }),
        ),
        (
            "v1beta2",
            json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "KubevirtCluster" }),
        ),
    ] {
        let object = json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"),
            "metadata": { "namespace": "team", "name": "blue", "uid": "u" },
            "spec": { "infrastructureRef": reference },
        });
        let one = read_cluster(SourceKind::ClusterApi, &object).unwrap();
        assert_eq!(
            (one.key.as_str(), one.vm_namespace.as_deref(), one.is_on_kubevirt),
            ("team/blue", Some("team"), true)
        );
    }
    let shoot = json!({
        "metadata": { "namespace": "garden-dev", "name": "prod", "uid": "u" },
        "spec": {}, "status": { "technicalID": "shoot--dev--prod" },
    });
    let one = read_cluster(SourceKind::Gardener, &shoot).unwrap();
    assert_eq!(
        (one.user_cluster.as_str(), one.vm_namespace),
        ("shoot--dev--prod", None)
    );
    assert_eq!(one.vm_labels["mcm.gardener.cloud/cluster"], "shoot--dev--prod");
    for (object, word) in [
        (json!({}), "metadata.name"),
        (json!({ "metadata": { "name": "a" } }), "metadata.uid"),
        (json!({ "metadata": { "name": "a", "uid": "u" } }), "technicalID"),
    ] {
        let error = read_cluster(SourceKind::Gardener, &object).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn clusters_are_kept_skipped_or_removed() {
    let (gold, lead) = (json!({}), json!({ "cloud": { "aws": {} } }));
    let (paused, leaving) = (json!({ "pause": true }), json!({ "deletionTimestamp": "t" }));
    let found = [
        kkp("new", &gold),
        kkp("other-cloud", &lead),
        kkp("by-hand", &gold),
        kkp("of-another", &gold),
        kkp("paused-new", &paused),
        kkp("paused-old", &paused),
        kkp("leaving-new", &leaving),
        kkp("leaving-old", &leaving),
    ];
    let existing = [
        made("by-hand", None),
        made("of-another", Some("other")),
        made("paused-old", Some("seed")),
        made("leaving-old", Some("seed")),
        made("gone", Some("seed")),
        made("gone-of-another", Some("other")),
    ];
    let planned = plan(&rules(), &found, &existing);
    assert_eq!(names(&planned), ["leaving-old", "new"]);
    assert!(planned.keep[0].is_suspended && !planned.keep[1].is_suspended);
    assert_eq!(planned.remove, ["gone"]);
    assert_eq!(
        reasons(&planned),
        [
            ("by-hand", SkipReason::NameTaken),
            ("leaving-new", SkipReason::Deleting),
            ("of-another", SkipReason::NameTaken),
            ("paused-new", SkipReason::Paused),
            ("paused-old", SkipReason::Paused),
        ]
    );
    assert_eq!(planned.selected, 7);
    let renewed: Vec<_> = planned.renew.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(renewed, ["paused-old"]);
    assert!(!planned.renew[0].is_suspended, "its API server answers");
}

#[test]
fn a_suspended_source_renews_only() {
    let mut rules = rules();
    rules.is_suspended = true;
    let mut again = kkp("again", &json!({}));
    again.uid = "new".into();
    let found = [
        kkp("old", &json!({})),
        kkp("new", &json!({})),
        kkp("paused", &json!({ "pause": true })),
        again,
    ];
    let existing = ["old", "paused", "again", "gone-1", "gone-2", "gone-3", "gone-4"];
    let existing = existing.map(|name| made(name, Some("seed")));
    let planned = plan(&rules, &found, &existing);
    assert_eq!(
        (planned.keep.len(), planned.remove.len(), planned.held),
        (0, 0, None)
    );
    let renewed: Vec<_> = planned.renew.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(renewed, ["old", "paused"]);
    assert_eq!(
        reasons(&planned),
        [
            ("again", SkipReason::SourceSuspended),
            ("new", SkipReason::SourceSuspended),
            ("old", SkipReason::SourceSuspended),
            ("paused", SkipReason::Paused),
        ]
    );
}

/// With the label, an outage is no finding.
#[test]
fn a_cluster_that_has_woken_up_loses_its_label_also_during_a_pause() {
    let shoot = |name: &str, is_off: bool| {
        let object = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}") },
            "spec": { "hibernation": { "enabled": is_off } }, "status": { "technicalID": name },
        });
        read_cluster(SourceKind::Gardener, &object).unwrap()
    };
    let mut rules = rules();
    rules.vm_namespace = Some("shoots".into());
    let labelled = |name: &str, source: &str| ExistingCluster {
        hibernates: true,
        ..made(name, Some(source))
    };
    let existing = [
        labelled("awake", "seed"),
        labelled("off", "seed"),
        labelled("gone", "seed"),
        labelled("of-another", "other"),
        made("without", Some("seed")),
    ];
    let found = [
        shoot("awake", false),
        shoot("off", true),
        shoot("of-another", false),
        shoot("without", false),
    ];
    // The change of the UserCluster removes the label, too.
    let planned = plan(&rules, &found, &existing);
    assert_eq!(names(&planned), ["awake", "off", "without"]);
    assert!(planned.awake.is_empty(), "{planned:?}");
    rules.is_suspended = true;
    assert_eq!(plan(&rules, &found, &existing).awake, ["awake"]);
    rules.is_suspended = false;
    rules.pattern = Some(NamePattern::new("none").unwrap());
    let planned = plan(&rules, &found, &existing);
    assert_eq!(planned.awake, ["awake"]);
    assert!(planned.selected == 0 && planned.remove == ["gone"]);
}

#[test]
fn a_cluster_that_is_not_selected_any_more_keeps_its_user_cluster() {
    let mut rules = rules();
    rules.pattern = Some(NamePattern::new("prod-.*").unwrap());
    let found = [kkp("prod-1", &json!({})), kkp("dev-prod-1", &json!({}))];
    let planned = plan(&rules, &found, &[made("dev-prod-1", Some("seed"))]);
    assert_eq!((names(&planned), planned.remove.len()), (vec!["prod-1"], 0));
    assert!(NamePattern::new("(").is_err());
    assert!(NamePattern::new("a{1000}{1000}").is_err());
}

#[test]
fn a_limit_drops_new_clusters_first() {
    let mut rules = rules();
    rules.max_clusters = 2;
    let found = ["a", "b", "c"].map(|name| kkp(name, &json!({})));
    let planned = plan(&rules, &found, &[made("c", Some("seed"))]);
    assert_eq!(names(&planned), ["a", "c"]);
    assert_eq!(reasons(&planned), [("b", SkipReason::OverLimit)]);
}

#[test]
fn one_name_is_one_user_cluster() {
    let found = [blue("team-a"), blue("team-b")];
    let planned = plan(&rules(), &found, &[]);
    assert_eq!(
        (planned.keep[0].cluster.key.as_str(), planned.keep.len()),
        ("team-a/blue", 1)
    );
    assert_eq!(reasons(&planned), [("team-b/blue", SkipReason::NameTaken)]);
    let mut existing = made("blue", Some("seed"));
    existing.source_uid = "team-b".into();
    let planned = plan(&rules(), &found, &[existing]);
    assert_eq!(
        planned.keep[0].cluster.key, "team-b/blue",
        "it had the name first"
    );
}

/// While the UserCluster has the kubeconfig of one cluster, it must not select the VMs of another.
#[test]
fn a_user_cluster_never_changes_its_cluster() {
    let existing = ExistingCluster {
        source_key: "team-b/blue".into(),
        source_uid: "team-b".into(),
        ..made("blue", Some("seed"))
    };
    let taken = [("team-a/blue", SkipReason::NameTaken)];
    // The other one is not selected any more.
    let mut unselected = blue("team-b");
    unselected.is_on_kubevirt = false;
    let found = [blue("team-a"), unselected];
    let planned = plan(&rules(), &found, std::slice::from_ref(&existing));
    assert_eq!((planned.keep.len(), planned.remove.len()), (0, 0));
    assert_eq!(reasons(&planned), taken);
    // It is gone.
    let planned = plan(&rules(), &[blue("team-a")], std::slice::from_ref(&existing));
    assert_eq!((planned.keep.len(), reasons(&planned)), (0, taken.to_vec()));
    assert_eq!(planned.remove, ["blue"]);
    // It was made again.
    let mut again = blue("team-b");
    again.uid = "new".into();
    let planned = plan(&rules(), &[blue("team-a"), again], &[existing]);
    assert_eq!(planned.keep[0].cluster.key, "team-b/blue");
    assert_eq!(reasons(&planned), taken);
}

#[test]
fn clusters_of_one_name_share_no_vm() {
    let rules = SourceRules {
        vm_namespace: Some("vms".into()),
        ..rules()
    };
    let selected = |namespace: &str| {
        let planned = plan(&rules, &[blue(namespace)], &[]);
        let wanted = planned.keep[0].clone();
        assert_eq!(wanted.vm_namespace, "vms");
        wanted.cluster.vm_labels
    };
    let (name, owner) = (
        "cluster.x-k8s.io/cluster-name",
        "capk.cluster.x-k8s.io/kubevirt-machine-namespace",
    );
    for namespace in ["team-a", "team-b"] {
        let labels = [(name, "blue"), (owner, namespace)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(selected(namespace), BTreeMap::from(labels));
    }
}

#[test]
fn a_source_that_loses_most_clusters_removes_none() {
    let existing: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| made(name, Some("seed")))
        .collect();
    let planned = plan(&rules(), &[kkp("a", &json!({}))], &existing);
    assert_eq!(
        (planned.remove.len(), planned.held),
        (0, Some(HeldRemoval { removals: 3, of: 4 }))
    );
    // Another source: its clusters must not outnumber those that are missing.
    let others = ["a", "p", "q", "r", "s", "t", "u"].map(|name| kkp(name, &json!({})));
    let planned = plan(&rules(), &others, &existing);
    assert_eq!((names(&planned), planned.remove.len()), (vec!["a"], 0));
    assert_eq!(planned.skipped[0].reason, SkipReason::RemovalHeld);
    let mut rules = rules();
    rules.allow_removal = true;
    assert_eq!(plan(&rules, &[], &existing).remove.len(), 4);
    let two = ["a", "b"].map(|name| kkp(name, &json!({})));
    rules.allow_removal = false;
    assert_eq!(plan(&rules, &two, &existing).remove, ["c", "d"]);
}

#[test]
fn requested_kubeconfigs_are_renewed_at_half_time() {
    let known = KnownCredential {
        issued: 100,
        expires: 200,
    };
    for (now, expected) in [
        (100, CredentialStep::Keep),
        (149, CredentialStep::Keep),
        (150, CredentialStep::Request),
        (500, CredentialStep::Request),
        (50, CredentialStep::Request),
    ] {
        assert_eq!(
            credential_step(SourceKind::Gardener, Some(known), now),
            expected,
            "{now}"
        );
    }
    assert_eq!(
        credential_step(SourceKind::Gardener, None, 0),
        CredentialStep::Request
    );
    assert_eq!(credential_step(SourceKind::Kkp, None, 0), CredentialStep::Copy);
}

/// Which clusters exist, with which condition, and which UserClusters, by whom.
fn world() -> impl Strategy<Value = (Vec<SourceCluster>, Vec<ExistingCluster>, usize)> {
    let cluster = (0..12_u8, 0..4_u8).prop_map(|(number, condition)| {
        let more = match condition {
            0 => json!({ "pause": true }),
            1 => json!({ "deletionTimestamp": "t" }),
            2 => json!({ "cloud": { "aws": {} } }),
            _ => json!({}),
        };
        kkp(&format!("c{number}"), &more)
    });
    let existing = (0..16_u8, 0..3_u8, any::<bool>()).prop_map(|(number, source, is_deleting)| {
        let source = [None, Some("seed"), Some("other")][usize::from(source)];
        ExistingCluster {
            is_deleting,
            ..made(&format!("c{number}"), source)
        }
    });
    let unique = |all: Vec<SourceCluster>| {
        let all: BTreeMap<_, _> = all.into_iter().map(|one| (one.name.clone(), one)).collect();
        all.into_values().collect::<Vec<_>>()
    };
    let existing = prop::collection::vec(existing, 0..16).prop_map(|all| {
        let all: BTreeMap<_, _> = all.into_iter().map(|one| (one.name.clone(), one)).collect();
        all.into_values().collect::<Vec<_>>()
    });
    (
        prop::collection::vec(cluster, 0..12).prop_map(unique),
        existing,
        0..12_usize,
    )
}

proptest! {
    #[test]
    fn plans_touch_only_their_own((found, existing, max_clusters) in world()) {
        let rules = SourceRules { max_clusters, ..rules() };
        let planned = plan(&rules, &found, &existing);
        let by_name: BTreeMap<&str, &ExistingCluster> =
            existing.iter().map(|one| (one.name.as_str(), one)).collect();
        let there: BTreeSet<&str> = found.iter().map(|one| one.name.as_str()).collect();
        prop_assert!(planned.keep.len() <= max_clusters);
        for wanted in &planned.keep {
            let owner = by_name.get(wanted.name.as_str()).map(|one| one.source.as_deref());
            prop_assert!(matches!(owner, None | Some(Some("seed"))), "{wanted:?}");
        }
        for name in &planned.remove {
            prop_assert_eq!(by_name[name.as_str()].source.as_deref(), Some("seed"));
            prop_assert!(!there.contains(name.as_str()));
        }
        let kept: BTreeSet<_> = planned.keep.iter().map(|one| one.name.as_str()).collect();
        prop_assert_eq!(kept.len(), planned.keep.len());
        prop_assert_eq!(planned.selected, planned.keep.len() + planned.skipped.len());
        // A second run with what the first one made is the same.
        let mut after: Vec<ExistingCluster> =
            existing.iter().filter(|one| !planned.remove.contains(&one.name)).cloned().collect();
        for wanted in &planned.keep {
            if !by_name.contains_key(wanted.name.as_str()) {
                after.push(made(&wanted.name, Some("seed")));
            }
        }
        let again = plan(&rules, &found, &after);
        prop_assert_eq!(names(&again), names(&planned));
        prop_assert!(again.remove.is_empty());
    }
}
