//! Plans the UserClusters of one source.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};
use strum::{IntoStaticStr, VariantArray};
use virtfleet_wire::ids::{ClusterName, Namespace};

use super::found::{ClusterCondition, SourceCluster};
use crate::facts::Selector;

/// Maximum memory of a compiled name pattern, bytes.
const MAX_PATTERN_MEMORY: usize = 64 << 10;
/// So many removals at once are always carried out.
const MAX_SMALL_REMOVAL: usize = 2;

/// A regular expression for names, which must match as a whole.
#[derive(Debug, Clone)]
pub struct NamePattern(Regex);

impl NamePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let whole = RegexBuilder::new(&format!("^(?:{text})$"))
            .size_limit(MAX_PATTERN_MEMORY)
            .build();
        whole.map(Self).map_err(|error| {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().to_owned()
        })
    }

    fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

#[derive(Debug, Clone)]
pub struct SourceRules {
    pub name: String,
    /// Selects clusters by label.
    pub selector: Selector,
    /// Selects clusters by name; none: all.
    pub pattern: Option<NamePattern>,
    /// Maximum UserClusters.
    pub max_clusters: usize,
    /// The namespace of VMs, in place of that which the source says.
    pub vm_namespace: Option<String>,
    /// Removes any number of UserClusters at once.
    pub allow_removal: bool,
    /// UserClusters are neither made, changed nor removed.
    pub is_suspended: bool,
}

/// A UserCluster of the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingCluster {
    pub name: String,
    /// The `ClusterSource` that made it; none: a person did.
    pub source: Option<String>,
    /// The key of its cluster in the source.
    pub source_key: String,
    /// The UID of its cluster in the source.
    pub source_uid: String,
    pub is_deleting: bool,
    /// Its label says that its cluster hibernates.
    pub hibernates: bool,
}

impl ExistingCluster {
    /// Whether it was made for another cluster of its source than `cluster`. One that is made again
    /// under its name has another UID and the same key.
    fn is_of_another(&self, cluster: &SourceCluster) -> bool {
        !self.source_key.is_empty() && self.source_key != cluster.key && self.source_uid != cluster.uid
    }

    /// Whether it was made for `cluster`, also if that was made again.
    fn is_of(&self, cluster: &SourceCluster) -> bool {
        self.source_key == cluster.key || self.source_uid == cluster.uid
    }
}

/// A UserCluster as the source requests it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCluster {
    pub name: String,
    pub cluster: SourceCluster,
    /// The namespace of its VMs.
    pub vm_namespace: String,
    /// Nothing is written to it.
    pub is_suspended: bool,
}

/// A cluster of the source that gets no UserCluster, whose UserCluster stays as it is, or whose
/// account fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedCluster {
    pub key: String,
    pub reason: SkipReason,
    /// Details, if the reason needs any.
    pub message: Option<String>,
}

/// Why a cluster gets no UserCluster, why its UserCluster stays as it is, or that its account
/// fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
pub enum SkipReason {
    /// Its name is not valid for a UserCluster.
    InvalidName,
    /// The namespace of its VMs is unknown or invalid.
    NoNamespace,
    /// A UserCluster of that name was made by a person, by another source, or for another cluster
    /// of this source.
    NameTaken,
    /// The source has more clusters than `maxClusters`.
    OverLimit,
    /// It is paused: its UserCluster is neither made nor changed.
    Paused,
    /// The source is suspended: its UserCluster is neither made nor changed.
    SourceSuspended,
    /// It is being deleted, and has no UserCluster.
    Deleting,
    UserClusterDeleting,
    /// Removals wait for a person: the source may be another one, so nothing new is made.
    RemovalHeld,
    /// The collector's account in it cannot be made, brought up to date or renewed.
    AccountFailed,
}

impl SkipReason {
    /// The name in a status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether an admin has to do something about it.
    pub fn is_problem(self) -> bool {
        !matches!(
            self,
            Self::Paused
                | Self::SourceSuspended
                | Self::Deleting
                | Self::UserClusterDeleting
                | Self::RemovalHeld
        )
    }
}

/// Removals that are not carried out, because they are too many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRemoval {
    /// UserClusters that would be removed.
    pub removals: usize,
    /// UserClusters of the source.
    pub of: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePlan {
    /// UserClusters to make, or to change if they differ, by name.
    pub keep: Vec<WantedCluster>,
    /// UserClusters that stay as they are, by name: their cluster or the source is paused. Their
    /// credentials are renewed, or the collector would lose its access during a long pause.
    pub renew: Vec<WantedCluster>,
    /// UserClusters to remove, by name: their clusters do not exist any more.
    pub remove: Vec<String>,
    /// UserClusters of which only the label is removed that says that they hibernate, by name:
    /// they are not changed otherwise, and their clusters do not hibernate.
    pub awake: Vec<String>,
    /// Clusters that selector and pattern select and whose UserCluster is not made or not changed.
    pub skipped: Vec<SkippedCluster>,
    /// Number of clusters that selector and pattern select.
    pub selected: usize,
    /// Removals that wait for a person.
    pub held: Option<HeldRemoval>,
}

/// Plans the UserClusters of one source. `found` is a complete list of its clusters; without one
/// there is nothing to plan.
pub fn plan(rules: &SourceRules, found: &[SourceCluster], existing: &[ExistingCluster]) -> SourcePlan {
    let by_name: BTreeMap<&str, &ExistingCluster> =
        existing.iter().map(|one| (one.name.as_str(), one)).collect();
    let is_ours = |one: &&ExistingCluster| one.source.as_deref() == Some(rules.name.as_str());
    let mut selected: Vec<&SourceCluster> = found.iter().filter(|one| rules.selects(one)).collect();
    // The cluster that has its UserCluster already comes first: another one of the same name must
    // not take it over, and a limit must not drop it.
    let has_its_own = |one: &SourceCluster| {
        let existing = by_name.get(one.user_cluster.as_str()).copied();
        existing
            .filter(is_ours)
            .is_some_and(|existing| existing.source_uid == one.uid)
    };
    selected.sort_by_cached_key(|one| (!has_its_own(one), one.key.clone()));
    let mut plan = SourcePlan {
        selected: selected.len(),
        ..SourcePlan::default()
    };
    let mut names = BTreeSet::new();
    for cluster in selected {
        let existing = by_name.get(cluster.user_cluster.as_str()).copied();
        let decided = rules.decide(cluster, existing, !names.contains(cluster.user_cluster.as_str()));
        match decided {
            Ok(_) if plan.keep.len() >= rules.max_clusters => {
                plan.skip(cluster, SkipReason::OverLimit);
            }
            Ok(wanted) => {
                names.insert(cluster.user_cluster.as_str());
                plan.keep.push(wanted);
            }
            Err(reason) => {
                if matches!(reason, SkipReason::Paused | SkipReason::UserClusterDeleting) {
                    names.insert(cluster.user_cluster.as_str());
                }
                if reason == SkipReason::Paused && has_its_own(cluster) {
                    plan.renew.extend(rules.wanted(cluster));
                }
                plan.skip(cluster, reason);
            }
        }
    }
    plan.keep.sort_by(|a, b| a.name.cmp(&b.name));
    plan.skipped.sort_by(|a, b| a.key.cmp(&b.key));
    let (uids, keys): (BTreeSet<&str>, BTreeSet<&str>) = found
        .iter()
        .map(|one| (one.uid.as_str(), one.key.as_str()))
        .unzip();
    let ours: Vec<&ExistingCluster> = existing.iter().filter(is_ours).collect();
    let is_gone = |one: &&&ExistingCluster| {
        let is_there = uids.contains(one.source_uid.as_str()) || keys.contains(one.source_key.as_str());
        !is_there && !one.is_deleting
    };
    let gone: Vec<String> = ours.iter().filter(is_gone).map(|one| one.name.clone()).collect();
    // A source that suddenly lacks most of its clusters is more likely another source, or one that
    // lost its data, than an admin who removed them all.
    let is_mass = gone.len() > MAX_SMALL_REMOVAL && gone.len() * 2 > ours.len();
    if rules.is_suspended {
        plan.suspend(has_its_own);
    } else if is_mass && !rules.allow_removal {
        plan.held = Some(HeldRemoval {
            removals: gone.len(),
            of: ours.len(),
        });
        // New UserClusters would make the removals a smaller part of all in the next cycle.
        let (old, new): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.keep)
            .into_iter()
            .partition(|wanted| by_name.contains_key(wanted.name.as_str()));
        plan.keep = old;
        for wanted in new {
            plan.skip(&wanted.cluster, SkipReason::RemovalHeld);
        }
        plan.skipped.sort_by(|a, b| a.key.cmp(&b.key));
    } else {
        plan.remove = gone;
    }
    plan.renew.sort_by(|a, b| a.name.cmp(&b.name));
    plan.awake = awake(found, &ours, &plan.keep);
    plan
}

/// Those of `ours` whose label is wrong: with it, an outage of their API server is no finding, so
/// it must not outlast a pause or a change of the selector. Those in `keep` are changed anyway.
fn awake(found: &[SourceCluster], ours: &[&ExistingCluster], keep: &[WantedCluster]) -> Vec<String> {
    let is_wrong = |one: &&&ExistingCluster| {
        let is_awake = |cluster: &SourceCluster| cluster.condition != ClusterCondition::Hibernated;
        one.hibernates
            && !one.is_deleting
            && !keep.iter().any(|wanted| wanted.name == one.name)
            && found
                .iter()
                .any(|cluster| one.is_of(cluster) && is_awake(cluster))
    };
    let mut names: Vec<String> = ours.iter().filter(is_wrong).map(|one| one.name.clone()).collect();
    names.sort();
    names
}

impl SourcePlan {
    fn skip(&mut self, cluster: &SourceCluster, reason: SkipReason) {
        self.skipped.push(SkippedCluster {
            key: cluster.key.clone(),
            reason,
            message: None,
        });
    }

    /// Leaves all UserClusters as they are.
    fn suspend(&mut self, has_its_own: impl Fn(&SourceCluster) -> bool) {
        for wanted in std::mem::take(&mut self.keep) {
            self.skip(&wanted.cluster, SkipReason::SourceSuspended);
            if has_its_own(&wanted.cluster) {
                self.renew.push(wanted);
            }
        }
        self.skipped.sort_by(|a, b| a.key.cmp(&b.key));
    }
}

impl SourceRules {
    fn selects(&self, cluster: &SourceCluster) -> bool {
        let pattern = self.pattern.as_ref();
        cluster.is_on_kubevirt
            && self.selector.matches(&cluster.labels)
            && pattern.is_none_or(|pattern| pattern.matches(&cluster.name))
    }

    fn decide(
        &self,
        cluster: &SourceCluster,
        existing: Option<&ExistingCluster>,
        is_free: bool,
    ) -> Result<WantedCluster, SkipReason> {
        let name: Result<ClusterName, _> = cluster.user_cluster.parse();
        name.map_err(|_| SkipReason::InvalidName)?;
        let foreign = existing.is_some_and(|one| one.source.as_deref() != Some(self.name.as_str()));
        if foreign || !is_free {
            return Err(SkipReason::NameTaken);
        }
        if existing.is_some_and(|one| one.is_deleting) {
            return Err(SkipReason::UserClusterDeleting);
        }
        // Its kubeconfig leads to the other cluster. It is removed when that one is gone.
        if existing.is_some_and(|one| one.is_of_another(cluster)) {
            return Err(SkipReason::NameTaken);
        }
        match cluster.condition {
            ClusterCondition::Paused => return Err(SkipReason::Paused),
            ClusterCondition::Deleting if existing.is_none() => return Err(SkipReason::Deleting),
            _ => {}
        }
        self.wanted(cluster)
    }

    fn wanted(&self, cluster: &SourceCluster) -> Result<WantedCluster, SkipReason> {
        let namespace = self.vm_namespace.as_ref().or(cluster.vm_namespace.as_ref());
        let namespace = namespace.ok_or(SkipReason::NoNamespace)?;
        let valid: Result<Namespace, _> = namespace.parse();
        valid.map_err(|_| SkipReason::NoNamespace)?;
        Ok(WantedCluster {
            name: cluster.user_cluster.clone(),
            vm_namespace: namespace.clone(),
            is_suspended: matches!(
                cluster.condition,
                ClusterCondition::Hibernated | ClusterCondition::Deleting
            ),
            cluster: cluster.clone(),
        })
    }
}
