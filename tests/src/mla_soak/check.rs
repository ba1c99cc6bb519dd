//! Compares what a receiver stored of a tenant with what the collector counted and with itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::stored::{Labels, Samples};

/// Series that the collector adds to each page.
const SYNTHETIC: u32 = 5;
/// Series of a page whose value is the number of the page's own samples.
const PAGE_SAMPLES: &str = "scrape_samples_post_metric_relabeling";
/// Maximum number of problems of one kind that are described.
const MAX_DESCRIBED: usize = 3;

/// Counters of a tenant's stream, over all lives of the collector. Each life has those of the last
/// poll before its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Samples that survive a power loss, or were delivered or refused.
    pub(super) accepted: u64,
    /// Samples that the collector dropped.
    pub(super) dropped: u64,
    /// Samples that the receiver refused.
    pub(super) refused: u64,
}

impl Counted {
    /// Adds the counters of a further life.
    pub(super) fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.dropped += other.dropped;
        self.refused += other.refused;
    }

    /// Samples that were accepted, but neither dropped nor refused, and are not among the stored
    /// ones.
    pub(super) fn missing(self, stored: u64) -> u64 {
        self.accepted.saturating_sub(stored + self.dropped + self.refused)
    }
}

/// What is expected of a tenant.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Its user cluster.
    pub(super) cluster: String,
    /// Names of its VMs.
    pub(super) vms: BTreeSet<String>,
    /// Counters of its stream.
    pub(super) counted: Counted,
    /// Maximum time between two pages of a VM, in milliseconds.
    pub(super) max_gap_ms: i64,
    /// Times in which pages may be missing or incomplete, in milliseconds since 1970.
    pub(super) outages: Vec<(i64, i64)>,
    /// Number of samples since a time, in milliseconds since 1970; none: kills cost some.
    pub(super) exact: Option<(i64, u64)>,
    /// VMs that were deleted, and by when their series must have ended.
    pub(super) deleted: BTreeMap<String, i64>,
    /// VMs that moved to another infra node.
    pub(super) migrated: BTreeSet<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Series.
    pub(super) series: usize,
    /// Samples with stale markers, each series and timestamp once.
    pub(super) samples: u64,
    /// Samples that are stored more than once, with equal values.
    pub(super) repeated: u64,
    /// Pages of VMs.
    pub(super) pages: u64,
    /// Incomplete pages in outages.
    pub(super) partial: u64,
    /// Longest time between two pages of a VM outside of outages, in milliseconds.
    pub(super) longest_gap_ms: i64,
    /// Violations.
    pub(super) violations: Vec<String>,
}

/// A page of a VM as stored.
#[derive(Debug, Default)]
struct StoredPage {
    samples: u32,
    /// Number of samples that the collector wrote from the VM's page.
    expected: Option<f64>,
}

/// Checks everything that is stored of a tenant.
pub(super) fn check(expected: &Expected, stored: &HashMap<Labels, Samples>) -> Found {
    let mut found = Found {
        series: stored.len(),
        ..Found::default()
    };
    let mut pages: BTreeMap<(&str, i64), StoredPage> = BTreeMap::new();
    let mut ups: BTreeMap<&str, Vec<&Samples>> = BTreeMap::new();
    let mut problems = Problems::default();
    let mut recent = 0;
    for (labels, samples) in stored {
        let label = |name: &str| labels.get(name).map_or("", String::as_str);
        if label("tenant") != expected.cluster || label("namespace") != expected.cluster {
            problems.add("series with labels of another tenant", format!("{labels:?}"));
        }
        let name = label("name");
        if !expected.vms.contains(name) {
            problems.add(
                "series of a VM that the tenant does not have",
                format!("{labels:?}"),
            );
        }
        let mut last = None;
        for (at, value) in samples {
            if let Some((last_at, last_value)) = last
                && last_at == *at
            {
                found.repeated += 1;
                if f64::to_bits(last_value) != value.to_bits() {
                    problems.add(
                        "two values at one time",
                        format!("{labels:?} at {at}: {last_value} and {value}"),
                    );
                }
                continue;
            }
            last = Some((*at, *value));
            found.samples += 1;
            recent += u64::from(expected.exact.is_some_and(|(since, _)| *at >= since));
            if label("job") == "node" && !value.is_nan() {
                let page = pages.entry((name, *at)).or_default();
                page.samples += 1;
                if label("__name__") == PAGE_SAMPLES {
                    page.expected = Some(*value);
                }
            }
        }
        if label("__name__") == "up" {
            ups.entry(name).or_default().push(samples);
        }
    }
    for ((name, at), page) in &pages {
        found.pages += 1;
        if page.expected != Some(f64::from(page.samples.saturating_sub(SYNTHETIC))) {
            if expected.is_outage(*at, *at) {
                found.partial += 1;
            } else {
                let text = format!(
                    "{name} at {at}: {} samples, page of {:?}",
                    page.samples, page.expected
                );
                problems.add("incomplete page", text);
            }
        }
    }
    for name in &expected.vms {
        let series = ups.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let [samples] = series else {
            problems.add("not exactly one series up", format!("{name}: {}", series.len()));
            continue;
        };
        check_up(expected, name, samples, &mut found, &mut problems);
    }
    for name in &expected.migrated {
        let placed = |labels: &&Labels| {
            is_label(labels, "__name__", "virtfleet_vm_placement_info") && is_label(labels, "name", name)
        };
        let count = stored.keys().filter(placed).count();
        if count < 2 {
            problems.add(
                "migration not seen in virtfleet_vm_placement_info",
                format!("{name}: {count}"),
            );
        }
    }
    check_counts(expected, found.samples, recent, &mut problems);
    found.violations = problems.describe();
    found
}

/// Compares the number of stored samples, and of those since [`Expected::exact`], with the
/// counters.
fn check_counts(expected: &Expected, stored: u64, recent: u64, problems: &mut Problems) {
    let Counted {
        accepted,
        dropped,
        refused,
    } = expected.counted;
    if expected.counted.missing(stored) > 0 {
        let text = format!("{accepted} accepted, {dropped} dropped, {refused} refused, {stored} stored");
        problems.add("accepted samples are missing", text);
    }
    if let Some((since, kept)) = expected.exact
        && recent != kept
    {
        let text = format!("{recent} since {since}, expected {kept}");
        problems.add("not exactly the samples that were not dropped", text);
    }
}

fn is_label(labels: &Labels, name: &str, value: &str) -> bool {
    labels.get(name).is_some_and(|found| found == value)
}

/// Checks the times of a VM's pages, and that they end.
fn check_up(expected: &Expected, name: &str, samples: &Samples, found: &mut Found, problems: &mut Problems) {
    let mut last = None;
    for (at, value) in samples {
        if let Some(last) = last {
            let gap = at - last;
            if !expected.is_outage(last, *at) {
                found.longest_gap_ms = found.longest_gap_ms.max(gap);
                if gap > expected.max_gap_ms {
                    problems.add("pages are missing", format!("{name}: {gap} ms from {last}"));
                }
            }
        }
        last = (!value.is_nan()).then_some(*at);
    }
    if expected.migrated.contains(name) {
        let mut pairs = samples.iter().zip(samples.iter().skip(1));
        let resumed = pairs.find(|((at, value), (next, next_value))| {
            value.is_nan() && !next_value.is_nan() && !expected.is_outage(*at, *next)
        });
        if let Some(((at, _), _)) = resumed {
            problems.add(
                "series of a migrated VM ends and begins again",
                format!("up of {name} at {at}"),
            );
        }
    }
    let Some((at, value)) = samples.last() else { return };
    if !value.is_nan() {
        problems.add(
            "series does not end with a stale marker",
            format!("up of {name}, last at {at}"),
        );
    }
    if let Some(until) = expected.deleted.get(name)
        && at > until
    {
        problems.add(
            "series of a deleted VM ends late",
            format!("{name}: {} ms late", at - until),
        );
    }
}

impl Expected {
    /// Whether an outage overlaps the time.
    fn is_outage(&self, from: i64, until: i64) -> bool {
        self.outages
            .iter()
            .any(|(begin, end)| from <= *end && *begin <= until)
    }
}

/// Problems by kind.
#[derive(Debug, Default)]
struct Problems(BTreeMap<&'static str, Vec<String>>);

impl Problems {
    fn add(&mut self, kind: &'static str, text: String) {
        self.0.entry(kind).or_default().push(text);
    }

    fn describe(self) -> Vec<String> {
        let kinds = self.0.into_iter();
        kinds
            .map(|(kind, texts)| {
                let first = texts.iter().take(MAX_DESCRIBED).cloned().collect::<Vec<_>>();
                format!("{kind} ({}): {}", texts.len(), first.join("; "))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: &str = "worker-0";

    fn labels(name: &str, job: &str) -> Labels {
        let all = [
            ("__name__", name),
            ("cluster", "a"),
            ("job", job),
            ("name", VM),
            ("namespace", "a"),
            ("tenant", "a"),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    /// Three pages of one series, one second apart, and their end.
    fn stored() -> HashMap<Labels, Samples> {
        let names = [
            ("up", 1.0),
            ("scrape_duration_seconds", 0.1),
            ("scrape_samples_scraped", 1.0),
            (PAGE_SAMPLES, 1.0),
            ("scrape_series_added", 0.0),
            ("node_load1", 3.0),
        ];
        let samples = |value| {
            (1..4)
                .map(move |second| (second * 1000, value))
                .chain([(4000, f64::NAN)])
        };
        let series = names.map(|(name, value)| (labels(name, "node"), samples(value).collect()));
        series.into()
    }

    fn expected() -> Expected {
        Expected {
            cluster: "a".to_owned(),
            vms: [VM.to_owned()].into(),
            counted: Counted {
                accepted: 24,
                ..Counted::default()
            },
            max_gap_ms: 2500,
            deleted: [(VM.to_owned(), 4000)].into(),
            ..Expected::default()
        }
    }

    /// The kinds of violations after a change of what is stored.
    fn found(change: impl Fn(&mut HashMap<Labels, Samples>)) -> String {
        let mut stored = stored();
        change(&mut stored);
        check(&expected(), &stored).violations.join("\n")
    }

    #[test]
    fn complete_pages_are_no_violation() {
        let found = check(&expected(), &stored());
        assert_eq!(found.violations, [""; 0]);
        assert_eq!((found.samples, found.pages, found.repeated), (24, 3, 0));
        assert_eq!(found.longest_gap_ms, 1000);
    }

    #[test]
    fn each_violation_is_found() {
        let load = labels("node_load1", "node");
        let up = labels("up", "node");
        let missing = found(|stored| {
            stored.get_mut(&load).unwrap().remove(1);
        });
        assert!(missing.contains("incomplete page (1)"), "{missing}");
        assert!(
            missing.contains("24 accepted, 0 dropped, 0 refused, 23 stored"),
            "{missing}"
        );
        let no_page = found(|stored| {
            for samples in stored.values_mut() {
                samples[1].0 += 5000;
                samples[2].0 += 5000;
                samples[3].0 += 5000;
            }
        });
        assert!(no_page.contains("pages are missing (1)"), "{no_page}");
        assert!(no_page.contains("5000 ms late"), "{no_page}");
        let endless = found(|stored| {
            stored.get_mut(&up).unwrap().pop();
        });
        assert!(endless.contains("does not end with a stale marker"), "{endless}");
        let conflict = found(|stored| stored.get_mut(&load).unwrap().insert(1, (1000, 4.0)));
        assert!(conflict.contains("two values at one time"), "{conflict}");
        let foreign = found(|stored| {
            let mut other = load.clone();
            other.insert("tenant".to_owned(), "b".to_owned());
            stored.insert(other, vec![(1000, f64::NAN)]);
        });
        assert!(foreign.contains("labels of another tenant"), "{foreign}");
        let twice = found(|stored| {
            let mut other = up.clone();
            other.insert("node".to_owned(), "infra-01".to_owned());
            stored.insert(other, vec![(5000, f64::NAN)]);
        });
        assert!(twice.contains("not exactly one series up"), "{twice}");
    }

    #[test]
    fn a_stale_marker_within_the_series_of_a_migrated_vm_is_found() {
        let mut stored = stored();
        stored.get_mut(&labels("up", "node")).unwrap()[1].1 = f64::NAN;
        let mut expected = expected();
        expected.migrated.insert(VM.to_owned());
        for (outages, is_found) in [(vec![], true), (vec![(1500, 2500)], false)] {
            expected.outages = outages;
            let text = check(&expected, &stored).violations.join("\n");
            let found = text.contains("a migrated VM ends and begins again (1): up of worker-0 at 2000");
            assert_eq!(found, is_found, "{text}");
        }
    }

    #[test]
    fn the_samples_since_a_time_are_exactly_those_that_were_kept() {
        for (kept, violations) in [(12, 0), (11, 1), (13, 1)] {
            let expected = Expected {
                exact: Some((3000, kept)),
                ..expected()
            };
            assert_eq!(check(&expected, &stored()).violations.len(), violations, "{kept}");
        }
    }

    #[test]
    fn a_migration_must_be_seen_and_an_equal_sample_is_counted() {
        let mut expected = expected();
        expected.migrated.insert(VM.to_owned());
        let mut stored = stored();
        stored
            .get_mut(&labels("node_load1", "node"))
            .unwrap()
            .insert(1, (1000, 3.0));
        let found = check(&expected, &stored);
        assert_eq!(found.repeated, 1);
        assert!(
            found.violations[0].starts_with("migration not seen"),
            "{:?}",
            found.violations
        );
    }
}
