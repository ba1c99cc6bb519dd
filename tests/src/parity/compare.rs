//! Compares two pages of the same moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use virtfleet_wire::exposition::MetricType;

use super::page::{Key, Page};

/// Prefixes of node_exporter's families about itself and its runtime.
const OF_ITSELF: [&str; 3] = ["go_", "process_", "promhttp_"];
/// Families that must exist and whose content is not compared.
const ONLY_THERE: [&str; 1] = ["node_exporter_build_info"];
/// Families whose values depend on the exporter itself; only their series are compared.
const OWN_VALUES: [&str; 1] = ["node_scrape_collector_duration_seconds"];
/// Families whose values change within a packet or a time slice: sockets, which are read from the
/// running kernel for all roots, and running tasks.
const INSTANTS: [&str; 5] = [
    "node_processes_state",
    "node_processes_threads_state",
    "node_procs_blocked",
    "node_procs_running",
    "node_tcp_connection_states",
];

/// Maximum number of series shown per family whose values differ.
const SHOWN: usize = 4;

/// One round: the agent's page, between two pages of node_exporter.
#[derive(Debug, Clone)]
pub struct Round {
    /// node_exporter's page.
    pub before: Page,
    /// The agent's page.
    pub ours: Page,
    /// node_exporter's page again.
    pub after: Page,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The agent has no such family.
    Missing,
    /// Another type.
    Type,
    /// Other series: different labels or label values.
    Labels,
    /// A series has a different value.
    Value,
}

impl What {
    /// The name, for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Type => "type",
            Self::Labels => "labels",
            Self::Value => "value",
        }
    }
}

/// A difference that occurred in every round.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The family.
    pub family: String,
    /// What differs.
    pub what: What,
    /// Description.
    pub detail: String,
    /// Series that only node_exporter has; for [`What::Value`] those that differ.
    pub theirs: BTreeSet<Key>,
    /// Series that only the agent has.
    pub ours: BTreeSet<Key>,
}

/// Families about mounts that are read from this machine's running kernel for all roots: the
/// machine changes meanwhile.
const ALWAYS_LIVE: [&str; 3] = [
    "node_filesystem_avail_bytes",
    "node_filesystem_files_free",
    "node_filesystem_free_bytes",
];

/// All differences, by family. `live`: the machine changes meanwhile, so a gauge that was constant
/// on all of node_exporter's pages may differ in a few rounds.
pub fn compare(rounds: &[Round], live: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    for family in families(rounds) {
        let live = live || ALWAYS_LIVE.contains(&family);
        let both: Vec<&Round> = rounds
            .iter()
            .filter(|round| round.before.0.contains_key(family) && round.after.0.contains_key(family))
            .collect();
        let steady = both.len() == rounds.len();
        let has = |round: &&&Round| round.ours.0.contains_key(family);
        let lacking = both.iter().filter(|round| !has(round)).count();
        let last = both.iter().rfind(has);
        let Some(last) = last.filter(|_| lacking < enough(family, steady, live, both.len())) else {
            let theirs = keys(&both.last().map_or(&rounds[0], |round| *round).before, family);
            let (series, all) = (theirs.len(), both.len());
            let detail = format!(
                "{series} series, e.g. {}, in {lacking} of {all} rounds",
                first(&theirs)
            );
            found.push(difference(family, What::Missing, detail, theirs, BTreeSet::new()));
            continue;
        };
        if ONLY_THERE.contains(&family) {
            continue;
        }
        let (kind, own) = (last.before.0[family].kind, last.ours.0[family].kind);
        if kind != own {
            let detail = format!("theirs is a {}, ours a {}", kind.as_str(), own.as_str());
            found.push(difference(
                family,
                What::Type,
                detail,
                BTreeSet::new(),
                BTreeSet::new(),
            ));
        }
        found.extend(labels(family, &both, steady, live));
        if !OWN_VALUES.contains(&family) {
            found.extend(values(family, kind, &both, live));
        }
    }
    found
}

/// Number of rounds in which something must be wrong to count as a difference. `steady`:
/// node_exporter's values do not change.
fn enough(family: &str, steady: bool, live: bool, rounds: usize) -> usize {
    if !steady || INSTANTS.contains(&family) {
        rounds
    } else if live {
        rounds.div_ceil(2)
    } else {
        1
    }
}

/// Families that node_exporter had on both pages of some round.
fn families(rounds: &[Round]) -> BTreeSet<&str> {
    let steady = |round: &'_ Round, name: &String| round.after.0.contains_key(name);
    rounds
        .iter()
        .flat_map(|round| round.before.0.keys().filter(move |name| steady(round, name)))
        .map(String::as_str)
        .filter(|name| !OF_ITSELF.iter().any(|start| name.starts_with(start)))
        .collect()
}

fn difference(
    family: &str,
    what: What,
    detail: String,
    theirs: BTreeSet<Key>,
    ours: BTreeSet<Key>,
) -> Difference {
    Difference {
        family: family.to_owned(),
        what,
        detail,
        theirs,
        ours,
    }
}

fn keys(page: &Page, family: &str) -> BTreeSet<Key> {
    let family = page.0.get(family);
    family
        .map(|family| family.series.keys().cloned().collect())
        .unwrap_or_default()
}

fn first(keys: &BTreeSet<Key>) -> String {
    keys.first().map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// Series that only one of the two programs has: in every round, or in [`enough`] rounds if all of
/// node_exporter's pages have it, or none. Series that appeared or disappeared during a round are
/// ignored.
fn labels(family: &str, rounds: &[&Round], steady: bool, live: bool) -> Option<Difference> {
    let pages = rounds.iter().flat_map(|round| [&round.before, &round.after]);
    let pages: Vec<BTreeSet<Key>> = pages.map(|page| keys(page, family)).collect();
    let (mut missed, mut added) = (BTreeMap::<Key, usize>::new(), BTreeMap::<Key, usize>::new());
    for round in rounds {
        let (before, after) = (keys(&round.before, family), keys(&round.after, family));
        let ours = keys(&round.ours, family);
        let missing = before.intersection(&after).filter(|key| !ours.contains(key));
        let extra = ours
            .iter()
            .filter(|key| !before.contains(key) && !after.contains(key));
        for key in missing {
            *missed.entry(key.clone()).or_default() += 1;
        }
        for key in extra {
            *added.entry(key.clone()).or_default() += 1;
        }
    }
    let enough = |steady| enough(family, steady, live, rounds.len());
    let theirs: BTreeSet<Key> = missed
        .into_iter()
        .filter(|(key, count)| *count >= enough(steady && pages.iter().all(|page| page.contains(key))))
        .map(|(key, _)| key)
        .collect();
    let ours: BTreeSet<Key> = added
        .into_iter()
        .filter(|(key, count)| *count >= enough(!pages.iter().any(|page| page.contains(key))))
        .map(|(key, _)| key)
        .collect();
    if theirs.is_empty() && ours.is_empty() {
        return None;
    }
    let detail = format!(
        "{} only theirs, e.g. {}; {} only ours, e.g. {}",
        theirs.len(),
        first(&theirs),
        ours.len(),
        first(&ours)
    );
    Some(difference(family, What::Labels, detail, theirs, ours))
}

/// Series with a changing value that fits in no round, and series with a constant value that does
/// not fit in all rounds.
fn values(family: &str, kind: MetricType, rounds: &[&Round], live: bool) -> Option<Difference> {
    // The range of node_exporter's values of each series over the whole run.
    let mut range: BTreeMap<&Key, (f64, f64)> = BTreeMap::new();
    for page in rounds.iter().flat_map(|round| [&round.before, &round.after]) {
        for (key, value) in page.0.get(family).into_iter().flat_map(|family| &family.series) {
            let (low, high) = range.entry(key).or_insert((*value, *value));
            (*low, *high) = (low.min(*value), high.max(*value));
        }
    }
    let mut detail = String::new();
    let mut off = BTreeSet::new();
    for (key, range) in range {
        let triples: Vec<[f64; 3]> = rounds
            .iter()
            .filter_map(|round| {
                let of = |page: &Page| page.value(family, key);
                Some([of(&round.before)?, of(&round.ours)?, of(&round.after)?])
            })
            .collect();
        let counts = matches!(
            kind,
            MetricType::Counter | MetricType::Histogram | MetricType::Summary
        );
        let steady = range.0.to_bits() == range.1.to_bits();
        let most = enough(family, steady, live && !counts, triples.len());
        let wrong: Vec<_> = triples
            .iter()
            .filter(|triple| !fits(kind, **triple, range))
            .collect();
        if let Some([before, ours, after]) = wrong.last()
            && wrong.len() >= most
        {
            if off.len() < SHOWN {
                let gap = if off.is_empty() { "" } else { "; " };
                write!(detail, "{gap}{key}: ours {ours}, theirs {before} and {after}").ok()?;
            }
            off.insert(key.clone());
        }
    }
    if off.len() > 1 {
        detail = format!("{} series, e.g. {detail}", off.len());
    }
    (!off.is_empty()).then(|| difference(family, What::Value, detail, off, BTreeSet::new()))
}

/// Whether the agent's value is possible between `before` and `after`. `range` is the range of the
/// value over the whole run.
fn fits(kind: MetricType, [before, ours, after]: [f64; 3], range: (f64, f64)) -> bool {
    if before.is_nan() || after.is_nan() {
        return ours.is_nan();
    }
    if ours.is_nan() {
        return false;
    }
    let (low, high) = (before.min(after), before.max(after));
    // Sums of fractions differ in their last digits with the order of the additions.
    let dust = 1e-9 * low.abs().max(high.abs());
    let slack = match kind {
        _ if range.0.to_bits() == range.1.to_bits() => dust,
        // A counter only grows: its value lies between the two.
        MetricType::Counter | MetricType::Histogram | MetricType::Summary => dust,
        // A gauge may have had any value near the two.
        MetricType::Gauge | MetricType::Untyped => {
            (range.1 - range.0) + 0.02 * range.0.abs().max(range.1.abs())
        }
    };
    // Infinite values on both sides are equal, and have no distance.
    ours.to_bits() == before.to_bits() || (low - slack <= ours && ours <= high + slack)
}

/// Number of node_exporter's families and series that were compared.
pub(super) fn extent(rounds: &[Round]) -> (usize, usize) {
    let names = families(rounds);
    let Some(last) = rounds.last() else {
        return (0, 0);
    };
    let series = names.iter().map(|name| keys(&last.before, name).len()).sum();
    (names.len(), series)
}

/// Families that only the agent has, with node_exporter's prefix.
pub(super) fn notes(rounds: &[Round]) -> Vec<String> {
    let Some(last) = rounds.last() else {
        return Vec::new();
    };
    let theirs = families(rounds);
    let ours = last.ours.0.keys().map(String::as_str);
    let beyond: Vec<&str> = ours
        .filter(|name| name.starts_with("node_") && !theirs.contains(name))
        .collect();
    if beyond.is_empty() {
        return Vec::new();
    }
    vec![format!("families that only ours has: {}", beyond.join(" "))]
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
