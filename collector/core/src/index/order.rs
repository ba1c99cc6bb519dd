//! Property: equal facts give equal snapshots, in any order of events.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{prelude::*, sample::Index, strategy::ValueTree as _, test_runner::TestRunner};
use virtfleet_wire::{identity::Sourced, ids::Uuid};

use super::{tests::answer, *};
use crate::{
    facts::{Fact, Labels, Migration, Phase, Selector, VmiMove},
    keys::NodeMatch,
    labels::policy::{LabelPolicy, Rule, Source},
    machine::tests::machine_of_name,
    namespace::InfraNamespace,
    node_conditions::NodeConditionKind,
    store::tests::{cluster, infra_node, key, labels, launcher, machine, user_node, vm, vmi},
};

/// SmallSet names, so that everything collides with everything.
fn small() -> impl Strategy<Value = usize> {
    0..3usize
}

/// The UUID of the machine of each VM: mostly its own, or the one that KubeVirt before 1.5 makes
/// from its name; or one that several have, or none.
fn uuids(name: fn(usize) -> &'static str) -> impl Strategy<Value = [Option<Uuid>; 3]> {
    let uuid = move |kind, vm| match kind {
        0..4 => Some(machine(name(vm))),
        4..7 => Some(machine_of_name(name(vm))),
        7 => Some(Uuid::from_u128(7)),
        _ => None,
    };
    (0..9usize).prop_map(move |kind| [0, 1, 2].map(|vm| uuid(kind, vm)))
}

pub(super) fn facts() -> impl Strategy<Value = Fact> {
    let ns = |i: usize| ["ns", "shared"][i % 2];
    let name: fn(usize) -> &'static str = |i| ["a", "b", "h"][i];
    let node = |i: usize| ["a", "h", "x"][i];
    prop_oneof![
            4 => (small(), small(), small(), small(), any::<bool>(), any::<bool>(), uuids(name)).prop_map(move |(n, v, host, tag, running, uid, uuids)| {
                let mut fact = vmi(ns(n), name(v));
                fact.firmware_uuid = uuids[v];
                fact.labels.insert("t".into(), tag.to_string());
                // The cluster in its label: one that may exist, or one that never does.
                let labelled_cluster = [None, Some("c0"), Some("c9")][tag];
                fact.labels.extend(labelled_cluster.map(|cluster| ("mcm.gardener.cloud/cluster", cluster)));
                fact.node = (host < 2).then(|| ["n0", "n1"][host].parse().unwrap());
                fact.phase = if running { Phase::Running } else { Phase::Pending };
                fact.uid = Some(if uid { "u1" } else { "u2" }.parse().unwrap());
                fact.migration = (tag > 0).then(|| Migration {
                    source: Some(["n0", "n1"][tag - 1].parse().unwrap()),
                    target: None,
                    completed: true,
                    failed: false,
                    start: None,
                    end: None,
                    mode: None,
                    failure_reason: None,
    ..Migration::default()
                });
                Fact::Vmi(Box::new(fact))
            }),
            1 => (small(), small(), uuids(name)).prop_map(move |(n, v, uuids)| {
                let mut fact = vm(ns(n), name(v));
                fact.firmware_uuid = uuids[v];
                fact.labels = labels(&[("cluster.x-k8s.io/cluster-name", ["c1", "c8"][n % 2])]);
                Fact::Vm(fact)
            }),
            1 => (0..2usize, small()).prop_map(|(n, z)| Fact::InfraNode(infra_node(["n0", "n1"][n], ["z0", "z1", "z2"][z]))),
            2 => (0..2usize, small(), 0..6usize).prop_map(move |(c, n, tag)| {
                let tag = tag.to_string();
                let select: &[(&str, &str)] = if tag.as_str() >= "3" { &[] } else { &[("t", &tag)] };
                let mut fact = cluster(["c0", "c1"][c], ns(n), select);
                fact.labels = labels(&[("tier", &tag)]);
                fact.suspend = tag == "5";
                fact.node_conditions = [NodeConditionKind::DisksReady].into();
                fact.node_authorities = Some("PEM".into());
                Fact::UserCluster(fact)
            }),
            3 => (0..2usize, small(), 0..8usize, small(), uuids(name)).prop_map(move |(c, n, provider, vm, uuids)| {
                let provider = ["kubevirt://a", "kubevirt://b", "aws://x"].get(provider).copied();
                let mut fact = user_node(["c0", "c1"][c], node(n), provider);
                fact.system_uuid = uuids[vm];
                // Some Nodes of one cluster, or of both, have one UID.
                let uid = if vm == 0 && n < 2 { "node".to_owned() } else { format!("node-{c}-{n}") };
                fact.uid = Some(uid.parse().unwrap());
                Fact::UserNode(fact)
            }),
            1 => (small(), small(), 0..3usize).prop_map(move |(n, v, from)| Fact::VmiMove(VmiMove {
                source: ["n0", "n1"].get(v).map(|node| node.parse().unwrap()),
                ..VmiMove::new(["m0", "m1", "m2"][v], key(ns(n), name(from)))
            })),
            2 => (small(), small(), 0..3usize, any::<bool>()).prop_map(move |(n, p, v, running)| {
                let mut pod = launcher(ns(n), name(v), &[["10.0.0.1", "10.0.0.7", "fd00::7"][p]]);
                pod.name = ["p0", "p1", "p2"][p].into();
                pod.vmi_uid = ["u1", "u2"].get(v).map(|uid| uid.parse().unwrap());
                pod.node = ["n0", "n1"].get(p).map(|node| node.parse().unwrap());
                pod.running = running;
                Fact::LauncherPod(pod)
            }),
            1 => (0..2usize, 0..7usize, any::<bool>()).prop_map(|(p, tag, dry_run)| Fact::Policy(Box::new(LabelPolicy {
                name: ["p0", "p1"][p].into(),
                uid: None,
                generation: 1,
                clusters: Selector {
                    match_labels: if tag == 6 { Labels::new() } else { labels(&[("tier", &tag.to_string())]) },
                    match_expressions: Vec::new(),
                },
                dry_run,
                rules: vec![Rule {
                    source: Source::Prefix("topology.kubernetes.io/".into()),
                    target: None,
                    mode: None,
                    takeover: None,
                }],
            }))),
            1 => (small(), any::<bool>()).prop_map(move |(n, is_ignored)| Fact::Namespace(InfraNamespace {
                name: ns(n).parse().unwrap(),
                is_ignored,
            })),
        ]
}

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all acts are objects, as in production"
)]
enum Act {
    Apply(Fact),
    /// One of the known facts.
    Delete(Index),
    /// A full read in which only these of the known facts are applied again.
    FullRead(Vec<bool>),
    Pull(Box<PullResult>),
}

fn pulls() -> impl Strategy<Value = PullResult> {
    (small(), small(), 0..4usize, any::<u8>()).prop_map(|(n, v, word, at)| {
        let vm = key(["ns", "shared"][n % 2], ["a", "b", "h"][v]);
        let mut pull = answer(&vm, |report| {
            report.identity.hostname = ["x", "h", "x"]
                .get(word)
                .map(|name| Sourced::new((*name).to_owned(), "x"));
            report.boot_id = if word == 0 { "boot".into() } else { format!("{vm}") };
            let machine_id = machine(["a", "x"][word % 2]).to_string();
            report.identity.machine_id = Some(Sourced::new(machine_id, "x"));
        });
        pull.at = at.into();
        if word == 3 {
            pull.outcome = Err(Failure::new(FailureClass::Timeout, "slow"));
        }
        pull
    })
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => facts().prop_map(Act::Apply),
        3 => any::<Index>().prop_map(Act::Delete),
        1 => prop::collection::vec(any::<bool>(), 24).prop_map(Act::FullRead),
        4 => pulls().prop_map(|pull| Act::Pull(Box::new(pull))),
    ]
}

/// Expected state: facts by key, and pulls of each current incarnation.
#[derive(Default)]
struct Model {
    facts: BTreeMap<FactKey, Fact>,
    pulls: BTreeMap<VmKey, Vec<PullResult>>,
}

impl Model {
    fn set(&mut self, key: &FactKey, new: Option<Fact>) {
        let uid = |fact: &Fact| match fact {
            Fact::Vmi(vmi) => vmi.uid.clone(),
            _ => None,
        };
        if let FactKey::Vmi(vm) = key
            && self.facts.get(key).map(uid) != new.as_ref().map(uid)
        {
            self.pulls.remove(vm);
        }
        match new {
            Some(fact) => self.facts.insert(key.clone(), fact),
            None => self.facts.remove(key),
        };
    }
}

/// Everything that the index returns once every change of health is shown, without the revision
/// and the times of these changes.
fn all(index: &mut FleetIndex, days: &mut u64) -> String {
    // One to show what was pending, one for states that have lasted too long meanwhile.
    for _ in 0..2 {
        *days += 1;
        index.set_time(String::new(), *days * 86_400_000);
        index.settle();
    }
    let mut snapshot = index.snapshot();
    snapshot.revision = 0;
    for vm in snapshot.vms.values_mut() {
        Arc::make_mut(vm).health.since_ms = 0;
    }
    let mut details: Vec<_> = snapshot.vms.keys().map(|key| index.detail(key)).collect();
    for detail in details.iter_mut().flatten() {
        // History depends on the order of events.
        detail.timeline.clear();
        detail.migrations.clear();
        detail.timeline_since_ms = None;
        detail.vm.health.since_ms = 0;
        detail.conditions.iter_mut().for_each(|one| one.since_ms = 0);
    }
    let written = |key| {
        let mut conditions = index.node_condition_input(key);
        for one in conditions.iter_mut().flat_map(|input| &mut input.health) {
            one.since_ms = 0;
        }
        (index.label_input(key), conditions, index.expected_node(key))
    };
    let written: Vec<_> = snapshot.vms.keys().map(written).collect();
    format!("{snapshot:?} {details:?} {written:?} {:?}", index.targets())
}

/// What the generated facts reach: each result of the rules, and Nodes that are written to or not.
#[test]
fn the_generated_facts_reach_each_kind_of_join() {
    let mut runner = TestRunner::deterministic();
    let histories = prop::collection::vec(facts(), 0..80);
    let mut reached = BTreeSet::new();
    for _ in 0..200 {
        let mut index = FleetIndex::default();
        index.apply(InventoryEvent::Init);
        for fact in histories.new_tree(&mut runner).unwrap().current() {
            index.apply(InventoryEvent::Apply(fact));
        }
        index.apply(InventoryEvent::Synced);
        for (vm, entry) in &index.store.vms {
            let is_written = index.label_input(vm).is_some();
            reached.insert(match (&entry.keys.node_match, is_written) {
                (NodeMatch::Confirmed(_), true) => "confirmed",
                (NodeMatch::Confirmed(_), false) => "a UUID that is no second fact",
                (NodeMatch::Machine(_), true) => "machine",
                (NodeMatch::Machine(_), false) => "a machine with the name of another VM",
                (NodeMatch::Unconfirmed(_), _) => "unconfirmed",
                (NodeMatch::Contradicts(_), _) => "differs",
                (NodeMatch::Refused, _) => "refused",
                (NodeMatch::Ambiguous(_), _) => "ambiguous",
                (NodeMatch::None, _) => "none",
            });
        }
    }
    assert_eq!(reached.len(), 9, "{reached:?}");
}

proptest! {
    #[test]
    fn the_order_of_events_does_not_matter(
        acts in prop::collection::vec(acts(), 0..80),
        order in prop::collection::vec(any::<u32>(), 32),
    ) {
        let mut days = 0;
        let mut index = FleetIndex::new(DialRules::default());
        let mut model = Model::default();
        index.apply(InventoryEvent::Init);
        index.apply(InventoryEvent::Synced);
        for act in acts {
            let (before, revision) = (all(&mut index, &mut days), index.revision());
            match act {
                Act::Apply(fact) => {
                    model.set(&fact.key(), Some(fact.clone()));
                    index.apply(InventoryEvent::Apply(fact));
                }
                Act::Delete(which) if !model.facts.is_empty() => {
                    let key = which.get(&model.facts.keys().cloned().collect::<Vec<_>>()).clone();
                    model.set(&key, None);
                    index.apply(InventoryEvent::Delete(key));
                }
                Act::Delete(_) => {}
                Act::FullRead(kept) => {
                    let facts: Vec<_> = model.facts.values().cloned().collect();
                    index.apply(InventoryEvent::Init);
                    for (fact, kept) in facts.into_iter().zip(kept.into_iter().chain(std::iter::repeat(true))) {
                        if kept {
                            index.apply(InventoryEvent::Apply(fact));
                        } else {
                            model.set(&fact.key(), None);
                        }
                    }
                    prop_assert_eq!(&before, &all(&mut index, &mut days), "nothing is removed during a full read");
                    index.apply(InventoryEvent::Synced);
                }
                Act::Pull(pull) => {
                    let there = model.facts.contains_key(&FactKey::Vmi(pull.vm.clone()));
                    prop_assert_eq!(index.record_pull((*pull).clone()), there);
                    if there {
                        model.pulls.entry(pull.vm.clone()).or_default().push(*pull);
                    }
                }
            }
            let changed = index.revision() > revision;
            prop_assert!(changed || before == all(&mut index, &mut days), "a change without a new revision");
        }

        let mut straight = FleetIndex::new(DialRules::default());
        straight.apply(InventoryEvent::Init);
        let mut facts: Vec<_> = model.facts.into_values().zip(order.into_iter().cycle()).collect();
        facts.sort_by_key(|(_, order)| *order);
        for (fact, _) in facts {
            straight.apply(InventoryEvent::Apply(fact));
        }
        straight.apply(InventoryEvent::Synced);
        for pull in model.pulls.into_values().flatten() {
            prop_assert!(straight.record_pull(pull));
        }
        prop_assert_eq!(all(&mut straight, &mut days), all(&mut index, &mut days));
    }
}
