//! The series of one stream: which were written last for each VM, and what to write for its next
//! page. Pure: the caller passes pages, settings and time, and gets samples.
//!
//! A series that is not written again gets a staleness marker: it has gone from the page, the page
//! failed, the VM has gone, or its labels have changed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::RandomState,
    sync::Arc,
};

use virtfleet_wire::ids::VmKey;

use super::{
    family_table::FamilyTable,
    generation::{OutcomeSource, RuleGeneration},
    outcomes::{KeptOrNot, KnownOutcomes, OutcomeCursor, OutcomeWriter, PageOutcomes},
    page_layout::{PageLayout, PageSeries},
    page_reader::{GuestPage, SeriesOrigins},
    page_writer::{PageWriter, SeenLabels},
    relabel::CompiledRules,
    synthetic::{self, PullFigures},
};
pub use super::{
    generation::TargetValues,
    page_writer::{OutSeries, STALE_NAN, SampleSink, StreamPageResult},
    stamp::{MAX_TARGET_LABELS, StampLabels},
};

/// Source of series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceKey {
    /// A VM's page; its series are stamped.
    Vm(VmKey),
    /// Series of the platform itself about VMs; they get external labels only.
    Platform,
}

/// One pull of a source, as far as its series depend on it.
#[derive(Debug, Clone, Copy)]
pub struct PullTime {
    /// When the pull of the page began, in milliseconds since 1970.
    pub at_ms: i64,
    /// Duration, in seconds.
    pub seconds: f64,
}

/// All series of a stream.
#[derive(Debug)]
pub struct StreamSeries {
    generations: BTreeMap<u64, RuleGeneration>,
    /// Key of the current generation.
    current: u64,
    stamp: Arc<StampLabels>,
    sources: HashMap<SourceKey, SourceState>,
    synthetic: PageSeries,
    /// Number of series of all sources.
    live: usize,
    next_number: u64,
    hash_keys: RandomState,
}

/// What was written last for a source.
#[derive(Debug)]
struct SourceState {
    last_ms: i64,
    /// RuleGeneration that wrote it.
    generation: u64,
    source: OutcomeSource,
    series: PageSeries,
    /// What became of `series`, and of the synthetic series after them.
    outcomes: PageOutcomes,
    /// Indices of series that are not written, because an earlier one has the same labels. Those
    /// of the synthetic series follow those of `series`.
    collided: Vec<usize>,
}

/// The series of a page with their values.
#[derive(Debug, Clone, Copy)]
struct PageContent<'a> {
    series: &'a PageSeries,
    values: &'a [f64],
    origins: Option<&'a SeriesOrigins>,
}

impl StreamSeries {
    /// A stream without series.
    pub fn new(table: &FamilyTable, stamp: StampLabels, rules: CompiledRules) -> Self {
        let stamp = Arc::new(stamp.unique());
        let first = RuleGeneration::new(0, 0, Arc::clone(&stamp), rules);
        Self {
            generations: BTreeMap::from([(0, first)]),
            current: 0,
            stamp,
            sources: HashMap::new(),
            synthetic: synthetic::series(table),
            live: 0,
            next_number: 1,
            hash_keys: RandomState::new(),
        }
    }

    /// Uses other labels and rules from each source's next page on.
    pub fn configure(&mut self, stamp: StampLabels, rules: CompiledRules) {
        let number = self.number();
        self.stamp = Arc::new(stamp.unique());
        let next = RuleGeneration::new(number, number, Arc::clone(&self.stamp), rules);
        self.generations.insert(number, next);
        self.current = number;
        self.remove_unused_generations();
    }

    /// Names of the labels that differ from VM to VM, in the order of [`TargetValues`].
    pub fn per_vm_labels(&self) -> &[Arc<str>] {
        &self.stamp.per_vm
    }

    /// The sources that have series.
    pub fn sources(&self) -> impl Iterator<Item = &SourceKey> {
        self.sources.keys()
    }

    /// Number of series of all sources, before the rules.
    pub fn live_series(&self) -> usize {
        self.live
    }

    /// Writes a complete page.
    pub fn page(
        &mut self,
        source: &SourceKey,
        targets: &TargetValues,
        page: &GuestPage,
        time: PullTime,
        sink: &mut impl SampleSink,
    ) -> StreamPageResult {
        let pull = PullFigures {
            up: true,
            seconds: time.seconds,
            scraped: page.samples,
            kept: 0,
            added: 0,
        };
        let content = PageContent {
            series: &page.series,
            values: &page.values,
            origins: page.origins.as_ref(),
        };
        self.write(source, targets, content, pull, time.at_ms, sink)
    }

    /// Writes that a pull failed: `up` is 0, and all series of the last page end.
    pub fn failed(
        &mut self,
        source: &SourceKey,
        targets: &TargetValues,
        time: PullTime,
        sink: &mut impl SampleSink,
    ) -> StreamPageResult {
        let pull = PullFigures {
            up: false,
            seconds: time.seconds,
            scraped: 0,
            kept: 0,
            added: 0,
        };
        let none = PageContent {
            series: &PageSeries::default(),
            values: &[],
            origins: None,
        };
        self.write(source, targets, none, pull, time.at_ms, sink)
    }

    /// Ends all series of a source that has gone. Returns the number of staleness markers.
    pub fn gone(&mut self, source: &SourceKey, at_ms: i64, sink: &mut impl SampleSink) -> u64 {
        let Some(last) = self.sources.remove(source) else {
            return 0;
        };
        self.live -= last.series.len();
        let mut writer = PageWriter::new(at_ms.max(last.last_ms + 1), sink);
        let old = self.hashes(&last);
        if let Some(generation) = self.generations.get(&last.generation) {
            writer.end(generation, (&last.source, &last.outcomes), &old, &HashSet::new());
        }
        let stale = writer.result.stale;
        self.remove_unused_generations();
        stale
    }

    /// Forgets what was written, without ending it: another process writes the same series now.
    pub fn forget(&mut self) {
        self.sources.clear();
        self.live = 0;
        self.remove_unused_generations();
    }

    fn write(
        &mut self,
        key: &SourceKey,
        targets: &TargetValues,
        content: PageContent<'_>,
        mut pull: PullFigures,
        at_ms: i64,
        sink: &mut impl SampleSink,
    ) -> StreamPageResult {
        let mut writer = PageWriter::new(at_ms, sink);
        if self.sources.get(key).is_some_and(|last| at_ms <= last.last_ms) {
            writer.result.not_later = true;
            return writer.result;
        }
        self.renew_if_overgrown();
        let last = self.sources.remove(key);
        self.live += content.series.len();
        self.live -= last.as_ref().map_or(0, |last| last.series.len());
        let version = |number| self.generations.get(number).map(|one| one.version);
        let is_same = last.as_ref().is_some_and(|last| {
            Arc::ptr_eq(&last.series, content.series)
                && last.source.targets == *targets
                && version(&last.generation) == version(&self.current)
        });
        let old = last.as_ref().filter(|_| !is_same).map(|last| self.hashes(last));
        let old = old.unwrap_or_default();
        let mut seen = match &last {
            Some(last) if is_same => SeenLabels::Same(last.collided.clone()),
            _ => SeenLabels::Compared {
                old: old.iter().map(|(hash, _)| *hash).collect(),
                new: HashSet::with_capacity(content.series.len()),
                collided: Vec::new(),
                keys: self.hash_keys.clone(),
            },
        };
        // Of a source whose series are the same, what became of them is kept.
        let (source, outcomes, last) = match last {
            Some(last) if is_same && last.generation == self.current => (last.source, last.outcomes, None),
            last => {
                let Some((source, outcomes)) = self.evaluate(key, targets, content, last.as_ref()) else {
                    return writer.result;
                };
                (source, outcomes, last)
            }
        };
        let Some(generation) = self.generations.get(&self.current) else {
            return writer.result;
        };
        let mut cursor = OutcomeCursor::new(&outcomes);
        writer.samples(generation, &source, &mut cursor, (content.values, 0), &mut seen);
        (pull.kept, pull.added) = (writer.result.written, writer.result.added);
        if !source.platform {
            let values = (&pull.values()[..], content.series.len());
            writer.samples(generation, &source, &mut cursor, values, &mut seen);
        }
        writer.result.added = pull.added;
        let collided = match seen {
            SeenLabels::Same(collided) => collided,
            SeenLabels::Compared { new, collided, .. } => {
                if let Some(last) = &last
                    && let Some(generation) = self.generations.get(&last.generation)
                {
                    writer.end(generation, (&last.source, &last.outcomes), &old, &new);
                }
                collided
            }
        };
        let result = writer.result;
        let next = SourceState {
            last_ms: at_ms,
            generation: self.current,
            source,
            series: Arc::clone(content.series),
            outcomes,
            collided,
        };
        self.sources.insert(key.clone(), next);
        if last.is_some_and(|last| last.generation != self.current) {
            self.remove_unused_generations();
        }
        result
    }

    /// What becomes of the series of a page under the present rules. Those that `last` had are not
    /// evaluated again.
    fn evaluate(
        &mut self,
        key: &SourceKey,
        targets: &TargetValues,
        content: PageContent<'_>,
        last: Option<&SourceState>,
    ) -> Option<(OutcomeSource, PageOutcomes)> {
        let current = self.current;
        let generation = self.generations.get_mut(&current)?;
        let source = generation.source(*key == SourceKey::Platform, Arc::clone(targets));
        let mut out = OutcomeWriter::default();
        let known = content.origins.zip(last).filter(|(origins, last)| {
            last.generation == current
                && last.source.targets == *targets
                && Arc::ptr_eq(&origins.last, &last.series)
        });
        let mut known = known.map(|(origins, last)| KnownOutcomes::new(&origins.indices, &last.outcomes));
        content.series.each(|text, meta| {
            let is_known = known.as_mut().is_some_and(|known| known.copy_next(&mut out));
            if !is_known {
                generation.evaluate(text, meta, &source, &mut out);
            }
        });
        if !source.platform {
            self.synthetic
                .each(|text, meta| generation.evaluate(text, meta, &source, &mut out));
        }
        Some((source, out.finish()))
    }

    /// Hash of the labels of each series that was written for a source, with its index.
    fn hashes(&self, last: &SourceState) -> Vec<(u64, usize)> {
        let Some(generation) = self.generations.get(&last.generation) else {
            return Vec::new();
        };
        let mut labels = Vec::new();
        let mut hashes = Vec::with_capacity(last.outcome_count(&self.synthetic));
        let mut cursor = OutcomeCursor::new(&last.outcomes);
        for index in 0..last.outcome_count(&self.synthetic) {
            if cursor.read() == KeptOrNot::Kept && last.collided.binary_search(&index).is_err() {
                last.source.resolve(cursor.labels(), &mut labels);
                hashes.push((generation.hash(&labels, &self.hash_keys), index));
            }
        }
        hashes
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn renew_if_overgrown(&mut self) {
        let Some(generation) = self.generations.get(&self.current) else {
            return;
        };
        if generation.is_overgrown(self.live + self.sources.len()) {
            let number = self.next_number + 1;
            let renewed = generation.renewed(number);
            self.next_number = number;
            self.generations.insert(number, renewed);
            self.current = number;
        }
    }

    /// Removes the generations that wrote nothing which may still have to end.
    fn remove_unused_generations(&mut self) {
        if self.generations.len() > 1 {
            let used: HashSet<_> = self.sources.values().map(|source| source.generation).collect();
            self.generations
                .retain(|number, _| *number == self.current || used.contains(number));
        }
    }
}

impl SourceState {
    /// Number of `outcomes`.
    fn outcome_count(&self, synthetic: &PageLayout) -> usize {
        let synthetic = if self.source.platform { 0 } else { synthetic.len() };
        self.series.len() + synthetic
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
