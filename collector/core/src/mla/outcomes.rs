//! What becomes of each series of a page in one stream, in a compact form: of each series only the
//! labels that differ from those of the series before it.

use virtfleet_wire::exposition::MetricType;

use super::{
    family_table::{MetricMeta, MetricTypeCode},
    page_layout::NO_ORIGIN,
    symbols::SymbolId,
    varint,
};

/// A rule drops the series, or it has no valid name after the rules.
const DROPPED: u64 = 0;
/// The rules make the series too large.
const OVER_LIMIT: u64 = 1;
/// All labels follow.
const COMPLETE: u64 = 2;
/// From here on, the number minus this is a set of bits: 1 if type and help text follow, and
/// `2 << i` if the value of the label `i` follows. All others are those of the last series.
const DIFFERENT: u64 = 3;
/// Maximum number of labels of a series that is compared with the one before it.
const MAX_COMPARED: usize = 60;

/// A label of a series: name, and value or target label.
pub(super) type OutcomeLabel = (SymbolId, OutcomeValue);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutcomeValue {
    /// A symbol.
    Symbol(SymbolId),
    /// The value of the target label with this index.
    Target(u8),
}

/// Type and help text of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OutcomeMeta {
    kind: u64,
    pub(super) help: SymbolId,
}

impl OutcomeMeta {
    pub(super) fn new(meta: &MetricMeta, help: SymbolId) -> Self {
        let kind = MetricTypeCode::to_number(meta.kind);
        Self { kind, help }
    }

    /// The type, if it is known.
    pub(super) fn kind(self) -> Option<MetricType> {
        MetricTypeCode::from_number(self.kind)
    }
}

/// Whether a series is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptOrNot {
    Kept,
    Dropped,
    OverLimit,
}

/// The outcomes of all series of a page, in its order.
#[derive(Debug, Default)]
pub(super) struct PageOutcomes(Box<[u8]>);

#[derive(Debug, Default)]
pub(super) struct OutcomeWriter {
    bytes: Vec<u8>,
    kept_series: usize,
    labels: Vec<OutcomeLabel>,
    meta: OutcomeMeta,
}

impl OutcomeWriter {
    /// Appends a series that is not written.
    pub(super) fn not_kept(&mut self, why: KeptOrNot) {
        let number = if why == KeptOrNot::OverLimit {
            OVER_LIMIT
        } else {
            DROPPED
        };
        varint::put(&mut self.bytes, number);
    }

    /// Appends a series with its labels, sorted by name.
    pub(super) fn kept(&mut self, labels: &[OutcomeLabel], meta: OutcomeMeta) {
        self.kept_series += 1;
        let pairs = self.labels.iter().zip(labels);
        let has_same_names = self.labels.len() == labels.len()
            && labels.len() <= MAX_COMPARED
            && pairs.clone().all(|(last, label)| last.0 == label.0);
        if has_same_names {
            let differs = |set, (index, (last, label)): (usize, (&OutcomeLabel, &OutcomeLabel))| {
                set | (u64::from(last != label) << (index + 1))
            };
            let different = pairs.enumerate().fold(u64::from(self.meta != meta), differs);
            varint::put(&mut self.bytes, DIFFERENT + different);
            if self.meta != meta {
                self.put_meta(meta);
            }
            for (index, (_, value)) in labels.iter().enumerate() {
                if self.labels[index].1 != *value {
                    put_value(&mut self.bytes, *value);
                }
            }
        } else {
            varint::put(&mut self.bytes, COMPLETE);
            varint::put(&mut self.bytes, labels.len() as u64);
            self.put_meta(meta);
            for (name, value) in labels {
                varint::put(&mut self.bytes, u64::from(name.0));
                put_value(&mut self.bytes, *value);
            }
        }
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.meta = meta;
    }

    fn put_meta(&mut self, meta: OutcomeMeta) {
        varint::put(&mut self.bytes, meta.kind);
        varint::put(&mut self.bytes, u64::from(meta.help.0));
    }

    /// Number of series that are written, so far.
    pub(super) fn kept_series(&self) -> usize {
        self.kept_series
    }

    pub(super) fn finish(self) -> PageOutcomes {
        PageOutcomes(self.bytes.into())
    }
}

fn put_value(bytes: &mut Vec<u8>, value: OutcomeValue) {
    let number = match value {
        OutcomeValue::Symbol(id) => u64::from(id.0) << 1,
        OutcomeValue::Target(index) => u64::from(index) << 1 | 1,
    };
    varint::put(bytes, number);
}

/// Reads outcomes one after the other.
#[derive(Debug)]
pub(super) struct OutcomeCursor<'a> {
    bytes: &'a [u8],
    at: usize,
    labels: Vec<OutcomeLabel>,
    meta: OutcomeMeta,
}

impl<'a> OutcomeCursor<'a> {
    /// A cursor before the first series.
    pub(super) fn new(outcomes: &'a PageOutcomes) -> Self {
        Self {
            bytes: &outcomes.0,
            at: 0,
            labels: Vec::new(),
            meta: OutcomeMeta::default(),
        }
    }

    /// The next series. Its labels and metadata are valid if it is kept.
    #[inline]
    pub(super) fn read(&mut self) -> KeptOrNot {
        match self.take() {
            DROPPED => KeptOrNot::Dropped,
            OVER_LIMIT => KeptOrNot::OverLimit,
            COMPLETE => {
                let count = self.take();
                self.take_meta();
                self.labels.clear();
                for _ in 0..count {
                    let name = symbol(self.take());
                    let value = value(self.take());
                    self.labels.push((name, value));
                }
                KeptOrNot::Kept
            }
            number => {
                let mut different = number - DIFFERENT;
                if different & 1 != 0 {
                    self.take_meta();
                }
                different &= !1;
                while different != 0 {
                    let index = different.trailing_zeros() as usize - 1;
                    let value = value(self.take());
                    if let Some(label) = self.labels.get_mut(index) {
                        label.1 = value;
                    }
                    different &= different - 1;
                }
                KeptOrNot::Kept
            }
        }
    }

    /// Labels of the series, sorted by name.
    pub(super) fn labels(&self) -> &[OutcomeLabel] {
        &self.labels
    }

    pub(super) fn meta(&self) -> OutcomeMeta {
        self.meta
    }

    fn take_meta(&mut self) {
        let kind = self.take();
        let help = symbol(self.take());
        self.meta = OutcomeMeta { kind, help };
    }

    fn take(&mut self) -> u64 {
        varint::take(self.bytes, &mut self.at)
    }
}

/// What became of the series of the last page, for those of a page that it had, too.
pub(super) struct KnownOutcomes<'a> {
    /// Index in the last page of each remaining series.
    origins: std::slice::Iter<'a, u32>,
    cursor: OutcomeCursor<'a>,
    /// Index of the series that the cursor reads next.
    next: u32,
}

impl<'a> KnownOutcomes<'a> {
    pub(super) fn new(origins: &'a [u32], outcomes: &'a PageOutcomes) -> Self {
        Self {
            origins: origins.iter(),
            cursor: OutcomeCursor::new(outcomes),
            next: 0,
        }
    }

    /// Copies what became of the next series of the page. False if the last page did not have it.
    pub(super) fn copy_next(&mut self, out: &mut OutcomeWriter) -> bool {
        let origin = self.origins.next().copied().unwrap_or(NO_ORIGIN);
        if origin == NO_ORIGIN || origin < self.next {
            return false;
        }
        let mut outcome = self.cursor.read();
        while self.next < origin {
            outcome = self.cursor.read();
            self.next += 1;
        }
        self.next += 1;
        match outcome {
            KeptOrNot::Kept => out.kept(self.cursor.labels(), self.cursor.meta()),
            why => out.not_kept(why),
        }
        true
    }
}

fn value(number: u64) -> OutcomeValue {
    match number & 1 {
        0 => OutcomeValue::Symbol(symbol(number >> 1)),
        _ => OutcomeValue::Target(u8::try_from(number >> 1).unwrap_or(u8::MAX)),
    }
}

fn symbol(number: u64) -> SymbolId {
    SymbolId(u32::try_from(number).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Result<(Vec<OutcomeLabel>, OutcomeMeta), KeptOrNot>> {
        let value = prop_oneof![
            3 => prop::sample::select(vec![0, 1, 2, 300, u32::MAX]).prop_map(|id| OutcomeValue::Symbol(SymbolId(id))),
            1 => (0..32_u8).prop_map(OutcomeValue::Target),
        ];
        let labels = prop::collection::vec(((0..3_u32).prop_map(SymbolId), value), 0..4);
        let meta = (0..6_u64, prop::sample::select(vec![0, 5, 1 << 20]));
        let meta = meta.prop_map(|(kind, help)| OutcomeMeta {
            kind,
            help: SymbolId(help),
        });
        prop_oneof![
            4 => (labels, meta).prop_map(Ok),
            1 => Just(Err(KeptOrNot::Dropped)),
            1 => Just(Err(KeptOrNot::OverLimit)),
        ]
    }

    proptest! {
        #[test]
        fn outcomes_are_read_as_they_were_written(all in prop::collection::vec(outcome(), 0..20)) {
            let mut writer = OutcomeWriter::default();
            for one in &all {
                match one {
                    Ok((labels, meta)) => writer.kept(labels, *meta),
                    Err(why) => writer.not_kept(*why),
                }
            }
            let outcomes = writer.finish();
            let mut cursor = OutcomeCursor::new(&outcomes);
            for one in &all {
                let found = match cursor.read() {
                    KeptOrNot::Kept => Ok((cursor.labels().to_vec(), cursor.meta())),
                    why => Err(why),
                };
                prop_assert_eq!(&found, one);
            }
            prop_assert_eq!(cursor.at, outcomes.0.len());
        }
    }

    #[test]
    fn series_of_many_labels_are_kept_complete() {
        let labels = |last: u32| -> Vec<_> {
            let id = |n| (SymbolId(n), OutcomeValue::Symbol(SymbolId(n)));
            (0..70).map(id).chain([id(last)]).collect()
        };
        let mut writer = OutcomeWriter::default();
        writer.kept(&labels(100), OutcomeMeta::default());
        writer.kept(&labels(101), OutcomeMeta::default());
        let outcomes = writer.finish();
        let mut cursor = OutcomeCursor::new(&outcomes);
        for last in [100, 101] {
            assert_eq!(cursor.read(), KeptOrNot::Kept);
            assert_eq!(cursor.labels(), labels(last));
        }
    }
}
