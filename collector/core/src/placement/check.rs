//! Whether the fleet obeys the rules that its VMIs state. Kubernetes applies them when it schedules
//! a pod, and not again: a changed label of an infra node breaks them later.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{Namespace, NodeName, VmName};

use super::{
    fit::{closed, unmet_node_rules},
    fleet::{PlacedVm, PlacementFleet},
    occupancy::{Occupancy, VmGroup},
    pools::{PoolSpread, pools},
};
use crate::scheduling::{PodTerm, SpreadConstraint};

/// The rule of node selectors and node affinity.
pub(super) const RULE_NODE_AFFINITY: &str = "node affinity";
/// Maximum problems in a report.
const MAX_PROBLEMS: usize = 1000;

/// How binding a rule is that is not obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementLevel {
    /// A required rule is not obeyed.
    Violated,
    /// A preference is not met.
    Preference,
}

impl PlacementLevel {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Violated => "violated",
            Self::Preference => "preference",
        }
    }
}

/// A rule that is not obeyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementProblem {
    /// How binding the rule is.
    pub level: PlacementLevel,
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM; of a spread constraint the first one that it applies to.
    pub name: VmName,
    /// Number of VMs with this problem.
    pub vms: usize,
    /// Its infra node.
    pub infra_node: Option<NodeName>,
    /// The kind of the rule: `node affinity`, `pod affinity`, `pod anti-affinity`, `spread`.
    pub rule: String,
    /// One sentence.
    pub message: String,
}

/// Placement of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementReport {
    /// VMs that run on an infra node.
    pub vms: usize,
    /// Rules that are not obeyed, required ones first; at most 1000.
    pub problems: Vec<PlacementProblem>,
    /// Number of these rules.
    pub problems_total: usize,
    /// Of these, required ones.
    pub violated: usize,
    /// Pools of VMs, and how each is spread.
    pub pools: Vec<PoolSpread>,
    /// What could not be checked.
    pub not_checked: Vec<String>,
}

pub fn check(fleet: &PlacementFleet) -> PlacementReport {
    let occupancy = Occupancy::new(fleet);
    let mut checker = Checker {
        fleet,
        occupancy: &occupancy,
        problems: Vec::new(),
        unknown_hosts: 0,
        cut: 0,
        partial_rules: 0,
    };
    let groups = occupancy.groups();
    for group in &groups {
        checker.group(group);
    }
    let mut report = PlacementReport {
        vms: fleet.vms.iter().filter(|vm| vm.host().is_some()).count(),
        problems_total: checker.problems.len(),
        not_checked: checker.not_checked(),
        pools: pools(fleet),
        ..PlacementReport::default()
    };
    let mut problems = checker.problems;
    problems.sort_by(|a, b| {
        let key = |one: &PlacementProblem| (one.level, one.namespace.clone(), one.name.clone());
        key(a).cmp(&key(b)).then_with(|| a.rule.cmp(&b.rule))
    });
    let is_violated = |one: &&PlacementProblem| one.level == PlacementLevel::Violated;
    report.violated = problems.iter().filter(is_violated).count();
    problems.truncate(MAX_PROBLEMS);
    report.problems = problems;
    report
}

struct Checker<'a> {
    fleet: &'a PlacementFleet,
    occupancy: &'a Occupancy<'a>,
    problems: Vec<PlacementProblem>,
    /// VMs on infra nodes that the inventory lacks.
    unknown_hosts: usize,
    /// VMs with more rules than are kept.
    cut: usize,
    /// Rules with parts that are not evaluated.
    partial_rules: usize,
}

impl<'a> Checker<'a> {
    fn group(&mut self, group: &VmGroup<'a>) {
        let is_on_host = |at: &&usize| self.fleet.vms.get(**at).is_some_and(|vm| vm.host().is_some());
        let running: Vec<usize> = group.members.iter().filter(is_on_host).copied().collect();
        if group.rules.is_cut {
            self.cut += running.len();
            return;
        }
        for &at in &running {
            self.node_rules(at);
        }
        let rules = group.rules;
        for term in &rules.required_apart {
            self.apart(group, &running, term, PlacementLevel::Violated);
        }
        for one in &rules.preferred_apart {
            self.apart(group, &running, &one.term, PlacementLevel::Preference);
        }
        for term in &rules.required_near {
            self.near(group, &running, term, PlacementLevel::Violated);
        }
        for one in &rules.preferred_near {
            self.near(group, &running, &one.term, PlacementLevel::Preference);
        }
        for constraint in &rules.spread {
            self.spread(group, &running, constraint);
        }
    }

    fn vm(&self, at: usize) -> Option<&'a PlacedVm> {
        self.fleet.vms.get(at)
    }

    fn add(&mut self, at: usize, vms: usize, level: PlacementLevel, rule: &str, message: String) {
        if let Some(vm) = self.vm(at) {
            self.problems.push(PlacementProblem {
                level,
                namespace: vm.view.namespace.clone(),
                name: vm.view.name.clone(),
                vms,
                infra_node: vm.host().cloned(),
                rule: rule.to_owned(),
                message,
            });
        }
    }

    fn node_rules(&mut self, at: usize) {
        let host = self
            .occupancy
            .host_at(at)
            .and_then(|host| self.fleet.hosts.get(host));
        let (Some(vm), Some(host)) = (self.vm(at), host) else {
            self.unknown_hosts += 1;
            return;
        };
        if let Some(rule) = unmet_node_rules(&vm.scheduling, host) {
            let message = format!("{} does not match {rule}", host.name);
            self.add(at, 1, PlacementLevel::Violated, RULE_NODE_AFFINITY, message);
        }
        for preferred in &vm.scheduling.preferred_nodes {
            let term = &preferred.term;
            if term.0.is_empty() || term.matches(host.traits()) {
                continue;
            }
            let better = self.fleet.hosts.iter().find(|other| {
                term.matches(other.traits())
                    && closed(other).is_none()
                    && unmet_node_rules(&vm.scheduling, other).is_none()
            });
            if let (Some(better), Some(unmet)) = (better, term.unmet(host.traits())) {
                let message = format!(
                    "{} does not match its preferred node affinity ({unmet}), and {} does",
                    host.name, better.name
                );
                self.add(at, 1, PlacementLevel::Preference, RULE_NODE_AFFINITY, message);
            }
        }
    }

    /// Counts the VMs that a term matches by domain.
    fn domains(
        &mut self,
        group: &VmGroup<'a>,
        term: &PodTerm,
    ) -> Option<(Vec<usize>, super::occupancy::Domains<'a>)> {
        if term.is_partial {
            self.partial_rules += 1;
            return None;
        }
        let matching = self.occupancy.matching_term(term, group.namespace);
        let domains = self.occupancy.count(&matching, &term.topology_key);
        Some((matching, domains))
    }

    fn apart(&mut self, group: &VmGroup<'a>, running: &[usize], term: &PodTerm, level: PlacementLevel) {
        let Some((matching, domains)) = self.domains(group, term) else {
            return;
        };
        for &at in running {
            let Some(domain) = self.occupancy.domain_of(at, &term.topology_key) else {
                continue;
            };
            let own = usize::from(matching.binary_search(&at).is_ok());
            let others = domains
                .get(domain)
                .copied()
                .unwrap_or_default()
                .saturating_sub(own);
            if others > 0 {
                let message = format!(
                    "other VMs in {}={domain} that its anti-affinity excludes: {others}",
                    term.topology_key
                );
                self.add(at, 1, level, "pod anti-affinity", message);
            }
        }
    }

    fn near(&mut self, group: &VmGroup<'a>, running: &[usize], term: &PodTerm, level: PlacementLevel) {
        let Some((matching, domains)) = self.domains(group, term) else {
            return;
        };
        for &at in running {
            let Some(domain) = self.occupancy.domain_of(at, &term.topology_key) else {
                continue;
            };
            let is_own = matching.binary_search(&at).is_ok();
            let there = domains.get(domain).copied().unwrap_or_default();
            // The first VM of a set that attracts itself has no other.
            if there == 0 || is_own && there == 1 && domains.values().sum::<usize>() > 1 {
                let message = format!(
                    "no other VM that its affinity requires is in {}={domain}",
                    term.topology_key
                );
                self.add(at, 1, level, "pod affinity", message);
            }
        }
    }

    fn spread(&mut self, group: &VmGroup<'a>, running: &[usize], constraint: &SpreadConstraint) {
        if constraint.is_partial {
            self.partial_rules += 1;
            return;
        }
        let matching = self
            .occupancy
            .matching_in(group.namespace, constraint.selector.as_ref());
        let counted = self.occupancy.count(&matching, &constraint.topology_key);
        let hosts = self.fleet.hosts.iter();
        let eligible = hosts.filter(|host| unmet_node_rules(group.rules, host).is_none());
        let domains = eligible.filter_map(|host| host.labels.get(&constraint.topology_key));
        let mut counts: Vec<(usize, &str)> = domains
            .map(|domain| (counted.get(domain).copied().unwrap_or_default(), domain))
            .collect();
        counts.sort_unstable();
        let (Some((least, least_in)), Some((most, most_in))) = (counts.first(), counts.last()) else {
            return;
        };
        if most - least <= constraint.max_skew as usize {
            return;
        }
        let level = if constraint.is_required {
            PlacementLevel::Violated
        } else {
            PlacementLevel::Preference
        };
        let message = format!(
            "{most} VMs in {key}={most_in} and {least} in {key}={least_in}: more than maxSkew {}",
            constraint.max_skew,
            key = constraint.topology_key,
        );
        if let Some(&first) = running.first() {
            self.add(first, running.len(), level, "spread", message);
        }
    }

    fn not_checked(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, text: &str| {
            if count > 0 {
                notes.push(format!("{text}: {count}"));
            }
        };
        note(self.unknown_hosts, "VMs on infra nodes that the inventory lacks");
        note(self.cut, "VMs with more rules than the collector keeps");
        note(
            self.partial_rules,
            "rules with namespaceSelector, matchLabelKeys, minDomains or a node policy, which are not evaluated",
        );
        if self.occupancy.is_exhausted() {
            notes
                .push("selectors without matchLabels match too many VMs; some rules were skipped".to_owned());
        }
        if self.fleet.partial {
            notes.push("the inventory is incomplete: VMs may be missing".to_owned());
        }
        notes
    }
}
