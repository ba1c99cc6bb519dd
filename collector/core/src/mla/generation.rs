//! What becomes of each series under one set of rules and stamped labels.

use std::{
    hash::{BuildHasher as _, Hash as _, Hasher, RandomState},
    sync::Arc,
};

use virtfleet_wire::exposition::{Line, is_metric_name, parse_line};

use super::{
    family_table::MetricMeta,
    guest_labels::GuestLabels,
    outcomes::{KeptOrNot, OutcomeLabel, OutcomeMeta, OutcomeValue, OutcomeWriter},
    relabel::{CompiledRules, LabelValue, RelabelVerdict, WorkingLabels},
    stamp::StampLabels,
    symbols::{SymbolId, SymbolPool},
};

/// Symbols that a generation may always have; long ones count more here and below.
const MIN_SYMBOLS: usize = 64 << 10;
/// Symbols that a source may always add to a generation.
const MIN_SOURCE_SYMBOLS: usize = 1024;

/// The values of the labels that differ from VM to VM, in the order of [`StampLabels::per_vm`]; an
/// empty or missing value means that the VM has no such label.
pub type TargetValues = Arc<[Arc<str>]>;

/// The source of a series, as far as outcomes depend on it.
#[derive(Debug)]
pub(super) struct OutcomeSource {
    /// True for the platform's own series.
    pub(super) platform: bool,
    pub(super) targets: TargetValues,
    /// Symbols of `targets`, in the pool of the generation that made this.
    symbols: Vec<SymbolId>,
}

impl OutcomeSource {
    /// The labels with their texts' symbols, into `out`.
    #[inline]
    pub(super) fn resolve(&self, labels: &[OutcomeLabel], out: &mut Vec<(SymbolId, SymbolId)>) {
        out.clear();
        out.extend(labels.iter().map(|&(name, value)| match value {
            OutcomeValue::Symbol(id) => (name, id),
            OutcomeValue::Target(index) => (
                name,
                self.symbols.get(usize::from(index)).copied().unwrap_or_default(),
            ),
        }));
    }
}

/// One set of rules and stamped labels.
#[derive(Debug)]
pub(super) struct RuleGeneration {
    /// Number of the settings; several generations may have the same.
    pub(super) version: u64,
    /// One source alone uses it, which adds too many symbols to those of all.
    pub(super) is_own: bool,
    pub(super) symbols: SymbolPool,
    stamp: Arc<StampLabels>,
    rules: CompiledRules,
}

impl RuleGeneration {
    pub(super) fn new(number: u64, version: u64, stamp: Arc<StampLabels>, rules: CompiledRules) -> Self {
        Self {
            version,
            is_own: false,
            symbols: SymbolPool::new(number),
            stamp,
            rules,
        }
    }

    /// An empty generation with the same settings.
    pub(super) fn renewed(&self, number: u64) -> Self {
        Self::new(number, self.version, Arc::clone(&self.stamp), self.rules.clone())
    }

    /// Symbols that a source with this number of series may add, if its earlier pages added
    /// `spent`; and what counts as spent of these.
    pub(super) fn room(&self, series: usize, spent: usize) -> (usize, usize) {
        // A shared generation is renewed at some time, so a few new symbols on each page are fine.
        let free = if self.is_own { 0 } else { series / 64 + 16 };
        let spent = spent.saturating_sub(free);
        let room = (4 * series + MIN_SOURCE_SYMBOLS).saturating_sub(spent);
        (room, spent)
    }

    /// Whether most of what is kept is of series that have gone; `live` is the number of series of
    /// all sources.
    pub(super) fn is_overgrown(&self, live: usize) -> bool {
        self.symbols.cost() > 16 * live + MIN_SYMBOLS
    }

    pub(super) fn source(&mut self, platform: bool, targets: TargetValues) -> OutcomeSource {
        let values = targets.iter().take(self.stamp.per_vm.len());
        let symbols: Vec<_> = values.map(|text| self.symbols.id(text)).collect();
        OutcomeSource {
            platform,
            targets,
            symbols,
        }
    }

    /// Appends what becomes of a series of `source` to `out`. `text` is its name and labels as on
    /// the page.
    pub(super) fn evaluate(
        &mut self,
        text: &str,
        meta: &MetricMeta,
        source: &OutcomeSource,
        out: &mut OutcomeWriter,
    ) {
        let line = format!("{text} 0");
        let labels = match parse_line(&line) {
            Ok(Line::Sample(sample)) => GuestLabels::of(&sample).ok(),
            _ => None,
        };
        // The page reader has rejected malformed ones.
        let Some(labels) = labels else {
            return out.not_kept(KeptOrNot::Dropped);
        };
        // Most rules do not read the target's labels, so that these need no symbols of their own.
        let evaluated = self
            .apply(&labels, source, false)
            .or_else(|()| self.apply(&labels, source, true));
        match evaluated {
            Ok(Ok(labels)) => {
                let help = self.symbols.id(meta.help());
                out.kept(&labels, OutcomeMeta::new(meta, help));
            }
            Ok(Err(why)) => out.not_kept(why),
            Err(()) => out.not_kept(KeptOrNot::Dropped),
        }
    }

    /// The final labels, or why the series is not written. An error if that depends on the values
    /// of the target's labels, and `read` does not allow to read them.
    fn apply(
        &mut self,
        labels: &GuestLabels<'_>,
        source: &OutcomeSource,
        read: bool,
    ) -> Result<Result<Vec<OutcomeLabel>, KeptOrNot>, ()> {
        let target = |index: usize| {
            let text = source.targets.get(index).filter(|text| !text.is_empty())?;
            Some(if read {
                LabelValue::Text(Arc::clone(text))
            } else {
                LabelValue::Target(u8::try_from(index).unwrap_or(u8::MAX))
            })
        };
        let mut working = if source.platform {
            self.stamp.platform(labels)
        } else {
            self.stamp.vm(labels, target)
        };
        match self.rules.apply(&mut working) {
            RelabelVerdict::Kept => {}
            RelabelVerdict::Dropped => return Ok(Err(KeptOrNot::Dropped)),
            RelabelVerdict::OverLimit => return Ok(Err(KeptOrNot::OverLimit)),
            RelabelVerdict::DependsOnTarget => return Err(()),
        }
        match working.get("__name__") {
            Some(LabelValue::Text(name)) if is_metric_name(name) => Ok(Ok(self.with_symbols(working))),
            Some(LabelValue::Target(_)) => Err(()),
            _ => Ok(Err(KeptOrNot::Dropped)),
        }
    }

    fn with_symbols(&mut self, labels: WorkingLabels) -> Vec<OutcomeLabel> {
        let pairs = labels.into_sorted().into_iter().map(|(name, value)| {
            let value = match value {
                LabelValue::Text(text) => OutcomeValue::Symbol(self.symbols.id(&text)),
                LabelValue::Target(index) => OutcomeValue::Target(index),
            };
            (self.symbols.id(&name), value)
        });
        pairs.collect()
    }

    /// Hash of the texts of labels, equal in all generations of the stream.
    pub(super) fn hash(&self, labels: &[(SymbolId, SymbolId)], keys: &RandomState) -> u64 {
        let mut hasher = keys.build_hasher();
        for (name, value) in labels {
            self.symbols.text(*name).hash(&mut hasher);
            self.symbols.text(*value).hash(&mut hasher);
        }
        hasher.finish()
    }
}
