//! Properties over random histories: policies are added, changed and removed, the VM moves, hosts
//! are relabelled, other writers set and remove labels, the kubelet imposes one, the Node is
//! recreated, patches are lost, evidence is missing or forbids the change.
//!
//! Other writers use one value that no host has, and always write both names of a zone, as cloud
//! controllers do; takeover is fixed for each source. So the end state is a function of the last
//! facts: each key's policy, the last host's value, and the last action of other writers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    tests::{BETA, RESTRICTED, ZONE, input, patched, pod, policy, rule},
    *,
};
use crate::labels::policy::{Mode, Rule, Source, Takeover};

/// Value written by other writers.
const FOREIGN: &str = "others";
const ROW: &str = "virtfleet.io/a";
const SHELF: &str = "virtfleet.io/b";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Keys that other writers set together, and whether a kubelet may impose them here.
const WRITTEN: [(&[&str], bool); 6] = [
    (&["rack"], true),
    (&[ROW], false),
    (&[ZONE, BETA], true),
    (&[RESTRICTED], false),
    (&["mine"], false),
    (&[HOSTNAME], false),
];
/// Label keys of the infra nodes.
const SOURCES: [&str; 6] = ["rack", "other", "loc/a", "loc/b", ZONE, RESTRICTED];

#[derive(Debug, Clone)]
enum Event {
    Policy(usize, Option<Vec<(usize, Mode)>>),
    Move(Option<usize>),
    Relabel(usize, usize, Option<u8>),
    Others(usize, bool),
    Kubelet(usize),
    Recreate,
    /// Plan with this evidence; the flag tells whether the patch arrives.
    Plan(EvidenceCase, bool),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EvidenceCase {
    Missing,
    Safe,
    Unsafe,
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Follow),
        2 => Just(Mode::FollowIfSafe),
        1 => Just(Mode::InitialOnly),
        1 => Just(Mode::ReportDrift),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let rules = prop::collection::vec((0..6usize, modes()), 0..5);
    prop_oneof![
        3 => (0..3usize, prop::option::weighted(0.7, rules)).prop_map(|(slot, rules)| Event::Policy(slot, rules)),
        2 => prop::option::weighted(0.9, 0..3usize).prop_map(Event::Move),
        2 => (0..3usize, 0..SOURCES.len(), prop::option::weighted(0.7, 0..3u8)).prop_map(|(h, k, v)| Event::Relabel(h, k, v)),
        3 => (0..WRITTEN.len(), any::<bool>()).prop_map(|(key, set)| Event::Others(key, set)),
        1 => (0..WRITTEN.len()).prop_map(Event::Kubelet),
        1 => Just(Event::Recreate),
        8 => (prop_oneof![Just(EvidenceCase::Missing), Just(EvidenceCase::Safe), Just(EvidenceCase::Unsafe)], prop::bool::weighted(0.8))
            .prop_map(|(evidence_case, arrives)| Event::Plan(evidence_case, arrives)),
    ]
}

fn rule_of((which, mode): &(usize, Mode)) -> Rule {
    let key = |source| rule(source, *mode, Takeover::Always);
    match which {
        0 => key("rack"),
        1 => Rule {
            target: Some("rack".into()),
            ..key("other")
        },
        2 => Rule {
            source: Source::Prefix("loc/".into()),
            target: Some("virtfleet.io/".into()),
            ..rule("", *mode, Takeover::Never)
        },
        3 => rule(ZONE, *mode, Takeover::IfPlacementMatches),
        4 => key(RESTRICTED),
        _ => Rule {
            target: Some(HOSTNAME.into()),
            ..key("rack")
        },
    }
}

struct History {
    now: LabelInput,
    hosts: [Labels; 3],
    at: Option<usize>,
    stood: BTreeSet<usize>,
    /// The labels as they would be without the collector: the last action of other writers.
    foreign: Labels,
    /// Labels whose value the collector wrote last.
    ours: BTreeSet<String>,
}

impl History {
    fn new() -> Self {
        let hosts = [0, 1, 2].map(|host| {
            let label = |key: &&str| ((*key).to_owned(), format!("{host}"));
            SOURCES.iter().map(label).collect()
        });
        let mut now = input(&[], &[], &Owned::new(), &[]);
        now.policies.clear();
        Self {
            now,
            hosts,
            at: Some(0),
            stood: BTreeSet::new(),
            foreign: Labels::new(),
            ours: BTreeSet::new(),
        }
    }

    /// The input as the index would build it.
    fn seen(&mut self) -> LabelInput {
        let mut host = input(&[], &[], &Owned::new(), &[]).host;
        if let (Some(host), Some(at)) = (&mut host, self.at) {
            host.labels.clone_from(&self.hosts[at]);
        }
        self.now.host = host.filter(|_| self.at.is_some());
        self.now.stood_on = self.stood.iter().map(|host| self.hosts[*host].clone()).collect();
        self.now.clone()
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Policy(slot, rules) => {
                let name = ["p", "q", "dry"][*slot];
                self.now.policies.retain(|policy| policy.name != name);
                if let Some(rules) = rules {
                    let rules: Vec<_> = rules.iter().map(rule_of).collect();
                    let mut new = policy(name, &rules);
                    new.dry_run = *slot == 2;
                    self.now.policies.push(new);
                    self.now.policies.sort_by(|a, b| a.name.cmp(&b.name));
                }
            }
            Event::Move(to) => {
                self.stood.extend(self.at.filter(|_| to.is_some()));
                self.at = *to;
            }
            Event::Relabel(host, key, value) => {
                let (labels, key) = (&mut self.hosts[*host], SOURCES[*key].to_owned());
                match value {
                    Some(value) => labels.insert(key, format!("{host}-{value}")),
                    None => labels.remove(&key),
                };
            }
            Event::Others(which, set) => self.others(*which, *set, false),
            Event::Kubelet(which) if WRITTEN[*which].1 => self.others(*which, true, true),
            Event::Kubelet(_) => {}
            Event::Recreate => {
                self.now.labels = Labels::new();
                self.now.kubelet_labels.clear();
                self.now.owned = None;
                self.foreign = Labels::new();
                self.ours.clear();
            }
            Event::Plan(evidence_case, arrives) => self.plan(*evidence_case, *arrives),
        }
    }

    fn others(&mut self, which: usize, set: bool, kubelet: bool) {
        for key in WRITTEN[which].0.iter().map(|key| (*key).to_owned()) {
            self.ours.remove(&key);
            self.now.kubelet_labels.remove(&key);
            for labels in [&mut self.now.labels, &mut self.foreign] {
                if set {
                    labels.insert(key.clone(), FOREIGN.to_owned());
                } else {
                    labels.remove(&key);
                }
            }
            if kubelet {
                self.now.kubelet_labels.insert(key);
            }
        }
    }

    fn evidence(&self, evidence_case: EvidenceCase) -> Option<Evidence> {
        let bound: Vec<_> = self.now.labels.iter().collect();
        match evidence_case {
            EvidenceCase::Missing => None,
            EvidenceCase::Safe => Some(Evidence::default()),
            EvidenceCase::Unsafe => Some(pod(&bound)),
        }
    }

    /// Plans and applies the patch if it arrives. Checks that only owned labels change, and that
    /// planning again gives no patch.
    fn plan(&mut self, evidence_case: EvidenceCase, arrives: bool) {
        let seen = self.seen();
        let evidence = self.evidence(evidence_case);
        let plan = plan(&seen, evidence.as_ref());
        Self::frozen(&seen);
        let Some(patch) = &plan.patch else { return };
        for (key, value) in &patch.labels {
            self.allowed(&seen, &plan, key, value.as_deref());
        }
        if !arrives {
            return;
        }
        self.now = patched(&seen, patch);
        for (key, value) in &patch.labels {
            // A restored value belongs to the other writers again.
            let theirs = value.is_none() || value == &self.foreign.get(key).map(str::to_owned);
            if theirs {
                self.ours.remove(key);
            } else {
                self.ours.insert(key.clone());
                self.now.kubelet_labels.remove(key);
            }
        }
        let again = super::plan(&self.seen(), evidence.as_ref());
        // An object that requires all present labels does not match any more after one changed.
        if evidence_case != EvidenceCase::Unsafe || patch.labels.is_empty() {
            assert_eq!(again.patch, None, "after {patch:?}");
        }
        assert_eq!(
            self.now.labels.get(ZONE),
            self.now.labels.get(BETA),
            "both members of the pair are equal"
        );
    }

    fn allowed(&self, seen: &LabelInput, plan: &NodePlan, key: &str, value: Option<&str>) {
        let mut real = plan
            .decisions
            .iter()
            .filter(|decision| !decision.dry_run && decision.key == key);
        let decision = real.next().expect("every change has a decision");
        assert!(
            matches!(decision.action, Action::Set | Action::Remove | Action::Restore),
            "{decision:?}"
        );
        assert!(key != HOSTNAME && key != "mine", "{decision:?}");
        if value.is_none() {
            assert!(
                self.ours.contains(key) && key != RESTRICTED,
                "removed: {decision:?}"
            );
        }
        if decision.action == Action::Restore {
            assert_eq!(value, Some(FOREIGN), "{decision:?}");
        }
        if seen.labels.contains_key(key) && !self.ours.contains(key) {
            assert_eq!(decision.reason, Reason::TakenOver, "{decision:?}");
            assert!(["rack", RESTRICTED].contains(&key), "{decision:?}");
            assert!(
                key == "rack" || !seen.kubelet_labels.contains(key),
                "a kubelet that registered the Node with it does not write it again: {decision:?}"
            );
        }
        if decision.reason == Reason::TakenOver && key != RESTRICTED {
            assert!(!self.ours.contains(key), "{decision:?}");
        }
    }

    /// Without placement, with a broken annotation, with a conflict about every key, in a suspended
    /// cluster: no patch.
    fn frozen(seen: &LabelInput) {
        let free = Evidence::default();
        let none = |input: LabelInput| assert_eq!(plan(&input, Some(&free)).patch, None, "{input:?}");
        none(LabelInput {
            host: None,
            ..seen.clone()
        });
        none(LabelInput {
            owned: Some("{".into()),
            ..seen.clone()
        });
        none(LabelInput {
            suspended: true,
            ..seen.clone()
        });
        let conflict = |source: &str| {
            let catch_all = Rule {
                source: Source::Prefix(source.into()),
                target: Some(String::new()),
                ..rule("", Mode::Follow, Takeover::Always)
            };
            policy(&format!("conflict-{}", source.len()), &[catch_all])
        };
        if let Some(host) = &seen.host {
            let owned = owned::read(seen.owned.as_deref()).expect("the annotation can be read");
            let mut host = host.clone();
            for key in owned.keys() {
                host.labels.insert(format!("x/{key}"), "v".into());
                host.labels.insert(format!("yy/{key}"), "v".into());
            }
            let policies = vec![conflict("x/"), conflict("yy/")];
            let host = Some(host);
            none(LabelInput {
                host,
                policies,
                ..seen.clone()
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_end_state_follows_from_the_last_facts(events in prop::collection::vec(events(), 0..60), end in 0..3usize) {
        let mut history = History::new();
        for event in &events {
            history.event(event);
        }
        history.event(&Event::Move(Some(end)));
        history.plan(EvidenceCase::Safe, true);
        let after = history.seen();
        let last = plan(&after, Some(&Evidence::default()));
        prop_assert_eq!(&last.patch, &None);

        let mut fresh = History::new();
        fresh.now = LabelInput {
            labels: history.foreign.clone(),
            owned: None,
            ..after.clone()
        };
        (fresh.hosts, fresh.at, fresh.stood) = (history.hosts, history.at, history.stood);
        fresh.foreign = history.foreign;
        fresh.plan(EvidenceCase::Safe, true);

        for key in ["rack", ROW, SHELF, ZONE, BETA, "mine", HOSTNAME] {
            // The beta name is selected by the other name.
            let requested = if key == BETA { ZONE } else { key };
            let mut real = last.decisions.iter().filter(|decision| !decision.dry_run && decision.key == requested);
            let decision = real.next();
            let depends_on_history = decision.is_some_and(|decision| {
                decision.reason == Reason::Conflict
                    || matches!(decision.mode, Some(Mode::InitialOnly | Mode::ReportDrift))
            });
            if !depends_on_history {
                prop_assert_eq!(after.labels.get(key), fresh.now.labels.get(key), "{}: {:?}", key, decision);
            }
        }
    }
}
