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
    family_table::TableShare,
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
    series_limits::{ExceededLimit, SeriesLimits},
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
    limits: SeriesLimits,
    /// Number of series of all VMs that the rules keep; it is limited.
    kept: usize,
    next_number: u64,
    hash_keys: RandomState,
}

/// What was written last for a source.
#[derive(Debug)]
struct SourceState {
    last_ms: i64,
    series: PageSeries,
    page: EvaluatedPage,
    /// Indices of series that are not written, because an earlier one has the same labels. Those
    /// of the synthetic series follow those of `series`.
    collided: Vec<usize>,
}

/// What becomes of a page under one set of rules.
#[derive(Debug)]
struct EvaluatedPage {
    generation: u64,
    source: OutcomeSource,
    /// What becomes of its series, and of the synthetic series after them.
    outcomes: PageOutcomes,
    /// Number of series that the rules keep; 0 for the platform.
    kept: usize,
    /// Symbols that the source has added to the generation, as far as they count.
    spent: usize,
}

/// The series of a page with their values.
#[derive(Debug, Clone, Copy)]
struct PageContent<'a> {
    series: &'a PageSeries,
    values: &'a [f64],
    origins: Option<&'a SeriesOrigins>,
}

impl StreamSeries {
    pub fn new(table: &TableShare, stamp: StampLabels, rules: CompiledRules) -> Self {
        let stamp = Arc::new(stamp.unique());
        let first = RuleGeneration::new(0, 0, Arc::clone(&stamp), rules);
        Self {
            generations: BTreeMap::from([(0, first)]),
            current: 0,
            stamp,
            sources: HashMap::new(),
            synthetic: synthetic::series(table),
            live: 0,
            limits: SeriesLimits::default(),
            kept: 0,
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

    /// Limits the series from each source's next changed page on. With [`StreamSeries::configure`],
    /// each page counts as changed.
    pub fn set_limits(&mut self, limits: SeriesLimits) {
        self.limits = limits;
    }

    /// Names of the labels that differ from VM to VM, in the order of [`TargetValues`].
    pub fn per_vm_labels(&self) -> &[Arc<str>] {
        &self.stamp.per_vm
    }

    pub fn sources(&self) -> impl Iterator<Item = &SourceKey> {
        self.sources.keys()
    }

    /// When the last page of a source was written, in milliseconds since 1970.
    pub fn last_ms(&self, source: &SourceKey) -> Option<i64> {
        self.sources.get(source).map(|source| source.last_ms)
    }

    /// Number of series of all sources, before the rules.
    pub fn live_series(&self) -> usize {
        self.live
    }

    /// Writes a complete page. One that exceeds a limit is not written, and counts as failed.
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
        let written = self.write(source, targets, content, pull, time.at_ms, sink);
        if written.exceeded.is_none() {
            return written;
        }
        StreamPageResult {
            exceeded: written.exceeded,
            over_limit: page.values.len() as u64,
            ..self.failed(source, targets, time, sink)
        }
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
        self.kept -= last.page.kept;
        let mut writer = PageWriter::new(at_ms.max(last.last_ms + 1), sink);
        let old = self.hashes(&last);
        if let Some(generation) = self.generations.get(&last.page.generation) {
            let page = (&last.page.source, &last.page.outcomes);
            writer.end(generation, page, &old, &HashSet::new());
        }
        let stale = writer.result.stale;
        self.remove_unused_generations();
        stale
    }

    /// Forgets what was written, without ending it: another process writes the same series now.
    pub fn forget(&mut self) {
        self.sources.clear();
        (self.live, self.kept) = (0, 0);
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
        let mut result = StreamPageResult::default();
        if self.sources.get(key).is_some_and(|last| at_ms <= last.last_ms) {
            result.not_later = content.values.len() as u64;
            return result;
        }
        self.renew_if_overgrown();
        let last = self.sources.remove(key);
        let (had_live, had_kept) = last
            .as_ref()
            .map_or((0, 0), |last| (last.series.len(), last.page.kept));
        let version = |number| self.generations.get(number).map(|one| one.version);
        let is_same = last.as_ref().is_some_and(|last| {
            Arc::ptr_eq(&last.series, content.series)
                && last.page.source.targets == *targets
                && version(&last.page.generation) == version(&self.current)
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
        let (page, last) = match last {
            Some(last) if is_same && self.is_usable(last.page.generation) => (last.page, None),
            last => {
                let Some(page) = self.evaluate(key, targets, content, last.as_ref()) else {
                    return result;
                };
                if let Err(exceeded) = self.limits.check(page.kept, self.kept - had_kept) {
                    result.exceeded = Some(exceeded);
                    self.refuse(key, page, last);
                    return result;
                }
                (page, last)
            }
        };
        self.live = self.live + content.series.len() - had_live;
        self.kept = self.kept + page.kept - had_kept;
        let Some(generation) = self.generations.get(&page.generation) else {
            return result;
        };
        let mut writer = PageWriter::new(at_ms, sink);
        let mut cursor = OutcomeCursor::new(&page.outcomes);
        writer.samples(
            generation,
            &page.source,
            &mut cursor,
            (content.values, 0),
            &mut seen,
        );
        (pull.kept, pull.added) = (writer.result.written, writer.result.added);
        if !page.source.platform {
            let values = (&pull.values()[..], content.series.len());
            writer.samples(generation, &page.source, &mut cursor, values, &mut seen);
        }
        writer.result.added = pull.added;
        let collided = match seen {
            SeenLabels::Same(collided) => collided,
            SeenLabels::Compared { new, collided, .. } => {
                if let Some(last) = &last
                    && let Some(generation) = self.generations.get(&last.page.generation)
                {
                    writer.end(generation, (&last.page.source, &last.page.outcomes), &old, &new);
                }
                collided
            }
        };
        result = writer.result;
        let is_other = last.is_some_and(|last| last.page.generation != page.generation);
        let next = SourceState {
            last_ms: at_ms,
            series: Arc::clone(content.series),
            page,
            collided,
        };
        self.sources.insert(key.clone(), next);
        if is_other {
            self.remove_unused_generations();
        }
        result
    }

    /// Keeps what was written for a source whose page exceeds a limit. The symbols of that page
    /// count, too.
    fn refuse(&mut self, key: &SourceKey, page: EvaluatedPage, last: Option<SourceState>) {
        if let Some(mut last) = last {
            last.page.spent = if last.page.generation == page.generation {
                page.spent
            } else {
                usize::MAX
            };
            self.sources.insert(key.clone(), last);
        }
        if page.generation != self.current {
            self.remove_unused_generations();
        }
    }

    /// Whether a source that has this generation uses it for its next page, too: the rules are the
    /// present ones, and it was not renewed.
    fn is_usable(&self, number: u64) -> bool {
        let version = |number| self.generations.get(number).map(|one| one.version);
        let is_own = self.generations.get(&number).is_some_and(|one| one.is_own);
        number == self.current || is_own && version(&number) == version(&self.current)
    }

    /// What becomes of the series of a page under the present rules.
    ///
    /// A source that adds too many symbols for its series gets a generation of its own. When a
    /// shared one is renewed, the pages of all sources are evaluated again.
    fn evaluate(
        &mut self,
        key: &SourceKey,
        targets: &TargetValues,
        content: PageContent<'_>,
        last: Option<&SourceState>,
    ) -> Option<EvaluatedPage> {
        let used = last.map(|last| &last.page);
        let used = used.filter(|page| self.is_usable(page.generation));
        let (number, spent) = used.map_or((self.current, 0), |page| (page.generation, page.spent));
        let generation = self.generations.get(&number)?;
        let (room, spent) = generation.room(content.series.len(), spent);
        if let Some(page) = self.evaluate_in(number, room, key, targets, content, last) {
            let spent = spent.saturating_add(page.spent);
            return Some(EvaluatedPage { spent, ..page });
        }
        let number = self.number();
        let mut own = self.generations.get(&self.current)?.renewed(number);
        own.is_own = true;
        self.generations.insert(number, own);
        let page = self.evaluate_in(number, usize::MAX, key, targets, content, last)?;
        Some(EvaluatedPage { spent: 0, ..page })
    }

    /// As [`StreamSeries::evaluate`], in one generation; none if the page adds more symbols than
    /// there is `room` for. Series that `last` had are not evaluated again, those beyond a limit
    /// not at all.
    fn evaluate_in(
        &mut self,
        number: u64,
        room: usize,
        key: &SourceKey,
        targets: &TargetValues,
        content: PageContent<'_>,
        last: Option<&SourceState>,
    ) -> Option<EvaluatedPage> {
        let (limits, others) = (self.limits, self.kept - last.map_or(0, |last| last.page.kept));
        let generation = self.generations.get_mut(&number)?;
        let before = generation.symbols.cost();
        let source = generation.source(*key == SourceKey::Platform, Arc::clone(targets));
        let mut out = OutcomeWriter::default();
        let known = content.origins.zip(last).filter(|(origins, last)| {
            last.page.generation == number
                && last.page.source.targets == *targets
                && Arc::ptr_eq(&origins.last, &last.series)
        });
        let mut known =
            known.map(|(origins, last)| KnownOutcomes::new(&origins.indices, &last.page.outcomes));
        content.series.each(|text, meta| {
            // A page that is dropped as a whole must not cost the stream more than a usual one.
            let is_over = !source.platform && limits.check(out.kept_series(), others).is_err();
            if is_over || generation.symbols.cost() - before > room {
                return;
            }
            let is_known = known.as_mut().is_some_and(|known| known.copy_next(&mut out));
            if !is_known {
                generation.evaluate(text, meta, &source, &mut out);
            }
        });
        let kept = if source.platform { 0 } else { out.kept_series() };
        if !source.platform {
            self.synthetic
                .each(|text, meta| generation.evaluate(text, meta, &source, &mut out));
        }
        let spent = generation.symbols.cost() - before;
        (spent <= room).then(|| EvaluatedPage {
            generation: number,
            source,
            outcomes: out.finish(),
            kept,
            spent,
        })
    }

    /// Hash of the labels of each series that was written for a source, with its index.
    fn hashes(&self, last: &SourceState) -> Vec<(u64, usize)> {
        let Some(generation) = self.generations.get(&last.page.generation) else {
            return Vec::new();
        };
        let mut labels = Vec::new();
        let mut hashes = Vec::with_capacity(last.outcome_count(&self.synthetic));
        let mut cursor = OutcomeCursor::new(&last.page.outcomes);
        for index in 0..last.outcome_count(&self.synthetic) {
            if cursor.read() == KeptOrNot::Kept && last.collided.binary_search(&index).is_err() {
                last.page.source.resolve(cursor.labels(), &mut labels);
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
            let used: HashSet<_> = self.sources.values().map(|one| one.page.generation).collect();
            self.generations
                .retain(|number, _| *number == self.current || used.contains(number));
        }
    }
}

impl SourceState {
    fn outcome_count(&self, synthetic: &PageLayout) -> usize {
        let synthetic = if self.page.source.platform {
            0
        } else {
            synthetic.len()
        };
        self.series.len() + synthetic
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
