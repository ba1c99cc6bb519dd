//! Writes the samples of one page of a stream, and staleness markers for what has gone.

use std::{collections::HashSet, hash::RandomState};

use virtfleet_wire::exposition::MetricType;

use super::{
    generation::{OutcomeSource, RuleGeneration},
    outcomes::{KeptOrNot, OutcomeCursor, OutcomeMeta, PageOutcomes},
    series_limits::ExceededLimit,
    symbols::{SymbolId, SymbolPool},
};

/// Bits of the NaN that ends a series: Prometheus' staleness marker.
pub const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

#[derive(Debug)]
pub struct OutSeries<'a> {
    /// Name and value of each label, sorted by name, with `__name__`.
    pub labels: &'a [(SymbolId, SymbolId)],
    /// Type of the family, if known.
    pub kind: Option<MetricType>,
    /// Help text of the family.
    pub help: SymbolId,
    /// The texts of all symbols.
    pub symbols: &'a SymbolPool,
}

pub trait SampleSink {
    /// Writes one sample. A staleness marker has the bits [`STALE_NAN`].
    fn sample(&mut self, series: &OutSeries<'_>, timestamp_ms: i64, value: f64);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamPageResult {
    /// Samples written, those about the pull included, without staleness markers.
    pub written: u64,
    /// Staleness markers written.
    pub stale: u64,
    /// Samples that the rules dropped.
    pub dropped: u64,
    /// Samples that the rules made too large, and those of a page that exceeds a limit.
    pub over_limit: u64,
    /// Samples whose labels equal those of an earlier sample after the rules.
    pub collided: u64,
    /// Series that the last page did not have.
    pub added: u64,
    /// Samples that were not written: their time is not after that of the source's last page.
    pub not_later: u64,
    /// The page was not written: it counts as failed.
    pub exceeded: Option<ExceededLimit>,
}

/// Which labels were written in this page.
pub(super) enum SeenLabels {
    /// Those of the last page, without the series of these indices.
    Same(Vec<usize>),
    /// They are compared with those of the last page, by their hashes.
    Compared {
        old: HashSet<u64>,
        new: HashSet<u64>,
        collided: Vec<usize>,
        keys: RandomState,
    },
}

/// Writes the samples of one page.
pub(super) struct PageWriter<'a, S> {
    at_ms: i64,
    sink: &'a mut S,
    labels: Vec<(SymbolId, SymbolId)>,
    pub(super) result: StreamPageResult,
}

impl<'a, S: SampleSink> PageWriter<'a, S> {
    pub(super) fn new(at_ms: i64, sink: &'a mut S) -> Self {
        Self {
            at_ms,
            sink,
            labels: Vec::new(),
            result: StreamPageResult::default(),
        }
    }

    /// Writes the values of the next series of `outcomes`; `first` is the index of the first one in
    /// the page.
    pub(super) fn samples(
        &mut self,
        generation: &RuleGeneration,
        source: &OutcomeSource,
        outcomes: &mut OutcomeCursor<'_>,
        (values, first): (&[f64], usize),
        seen: &mut SeenLabels,
    ) {
        for (offset, value) in values.iter().enumerate() {
            match outcomes.read() {
                KeptOrNot::Kept => source.resolve(outcomes.labels(), &mut self.labels),
                KeptOrNot::Dropped => {
                    self.result.dropped += 1;
                    continue;
                }
                KeptOrNot::OverLimit => {
                    self.result.over_limit += 1;
                    continue;
                }
            }
            let is_written = match seen {
                SeenLabels::Same(collided) => {
                    collided.is_empty() || collided.binary_search(&(first + offset)).is_err()
                }
                SeenLabels::Compared {
                    old,
                    new,
                    collided,
                    keys,
                } => {
                    let hash = generation.hash(&self.labels, keys);
                    let is_first = new.insert(hash);
                    if is_first {
                        self.result.added += u64::from(!old.contains(&hash));
                    } else {
                        collided.push(first + offset);
                    }
                    is_first
                }
            };
            if is_written {
                self.result.written += 1;
                self.put(generation, outcomes.meta(), *value);
            } else {
                self.result.collided += 1;
            }
        }
    }

    /// Ends the series of the last page that are not among the labels `kept`. `old` has their
    /// hashes and indices, in order.
    pub(super) fn end(
        &mut self,
        generation: &RuleGeneration,
        (source, outcomes): (&OutcomeSource, &PageOutcomes),
        old: &[(u64, usize)],
        kept: &HashSet<u64>,
    ) {
        let mut cursor = OutcomeCursor::new(outcomes);
        let mut next = 0;
        for (_, index) in old.iter().filter(|(hash, _)| !kept.contains(hash)) {
            let mut outcome = KeptOrNot::Dropped;
            while next <= *index {
                outcome = cursor.read();
                next += 1;
            }
            if outcome == KeptOrNot::Kept {
                source.resolve(cursor.labels(), &mut self.labels);
                self.result.stale += 1;
                self.put(generation, cursor.meta(), f64::from_bits(STALE_NAN));
            }
        }
    }

    #[inline]
    fn put(&mut self, generation: &RuleGeneration, meta: OutcomeMeta, value: f64) {
        let series = OutSeries {
            labels: &self.labels,
            kind: meta.kind(),
            help: meta.help,
            symbols: &generation.symbols,
        };
        self.sink.sample(&series, self.at_ms, value);
    }
}
