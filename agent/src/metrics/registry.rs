//! Runs the collectors that are on, one after the other, and keeps a failing one from hurting the page.

use std::{
    collections::BTreeMap,
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use virtfleet_wire::{
    exposition::{MetricType, Page},
    settings::MetricsSettings,
};

use super::{COLLECTORS, CollectError, Collector, Context, Entry};
use crate::host::Roots;

/// Settings that no registry can be built from.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is no such collector.
    #[error("{place}: there is no collector {name:?}{}", did_you_mean(*.nearest))]
    Unknown {
        /// Where it was named: `metrics.collectors` or the command line.
        place: &'static str,
        /// The name.
        name: String,
        /// The known name that is nearest, when one is near.
        nearest: Option<&'static str>,
    },
    /// What to take and what to leave out exclude each other.
    #[error("{exclude} and {include} are both set; keep one of them")]
    Both {
        /// The key of what to leave out.
        exclude: &'static str,
        /// The key of what to take.
        include: &'static str,
    },
    /// A pattern that does not compile.
    #[error("{key}: {pattern:?} is no regular expression")]
    Pattern {
        /// The key it stands under.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: regex_lite::Error,
    },
    /// A value that cannot work.
    #[error("{key}: {reason}")]
    Value {
        /// The key it stands under.
        key: &'static str,
        /// Why it cannot work.
        reason: &'static str,
    },
}

impl RegistryError {
    /// The key of the settings that is wrong, e.g. `metrics.netdev.deviceExclude`.
    pub fn key(&self) -> String {
        match self {
            Self::Unknown { place, name, .. } => format!("{place}.{name}"),
            Self::Both { include: key, .. } | Self::Pattern { key, .. } | Self::Value { key, .. } => {
                (*key).to_owned()
            }
        }
    }

    /// What is wrong, for a line that begins with the key already.
    pub(crate) fn message(&self) -> String {
        let text = chain(self);
        let place = match self {
            Self::Unknown { place: key, .. }
            | Self::Both { include: key, .. }
            | Self::Pattern { key, .. }
            | Self::Value { key, .. } => key,
        };
        let rest = text.strip_prefix(place).and_then(|rest| rest.strip_prefix(": "));
        rest.unwrap_or(&text).to_owned()
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `virtfleet-agent metrics --help` lists them".to_owned(),
        |name| format!("; did you mean {name:?}?"),
    )
}

/// Which collectors a request asks for, of those that are on. Empty: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `collect[]=`: only these.
    pub collect: Vec<String>,
    /// `exclude[]=`: all but these; names that are not on are passed over.
    pub exclude: Vec<String>,
}

/// A request that cannot be answered; HTTP status 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Both kinds at once.
    #[error("collect[] and exclude[] cannot be combined; use one of them")]
    Both,
    /// There is no such collector.
    #[error("there is no collector {0:?}")]
    Missing(String),
    /// The collector is off.
    #[error("collector {0:?} is disabled on this machine; its settings or --collector.{0} enable it")]
    Disabled(String),
}

/// The collectors that are on. It is owned by one thread, which scrapes for everyone.
pub struct Registry {
    table: &'static [Entry],
    context: Context,
    slots: Vec<Slot>,
    /// Collector, seconds, success: of the scrape under way.
    outcomes: Vec<(&'static str, f64, bool)>,
}

struct Slot {
    entry: &'static Entry,
    /// `None` after a panic, until it could be built again.
    collector: Option<Box<dyn Collector>>,
    /// Why the last scrape failed, so that a lasting failure is logged once.
    failing: Option<String>,
}

impl Registry {
    /// The collectors of [`COLLECTORS`] that are on: by default, by `settings.collectors`, or, which wins, by `overrides`
    /// (the command line).
    pub fn new(
        roots: &Roots,
        settings: &MetricsSettings,
        overrides: &BTreeMap<String, bool>,
    ) -> Result<Self, RegistryError> {
        Self::with_table(
            COLLECTORS,
            Context::new(roots.clone(), settings.clone()),
            overrides,
        )
    }

    /// The same with another table or another kernel.
    pub fn with_table(
        table: &'static [Entry],
        context: Context,
        overrides: &BTreeMap<String, bool>,
    ) -> Result<Self, RegistryError> {
        let settings = &context.settings.collectors;
        for (place, names) in [
            ("metrics.collectors", settings),
            ("--[no-]collector.NAME", overrides),
        ] {
            for name in names.keys() {
                if !table.iter().any(|entry| entry.name == name) {
                    return Err(RegistryError::Unknown {
                        place,
                        name: name.clone(),
                        nearest: nearest(table, name),
                    });
                }
            }
        }
        let mut slots = Vec::new();
        for entry in table {
            let on = overrides.get(entry.name).or_else(|| settings.get(entry.name));
            // A collector that is off is built, too, so that its settings are checked when they are written and not
            // when somebody turns it on. Building reads nothing and starts nothing.
            let collector = (entry.build)(&context)?;
            if on.copied().unwrap_or(entry.runs_in(context.settings.profile)) {
                slots.push(Slot {
                    entry,
                    collector: Some(collector),
                    failing: None,
                });
            }
        }
        Ok(Self {
            table,
            context,
            slots,
            outcomes: Vec::new(),
        })
    }

    /// The names of all collectors, on or off, in the order of the page.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.table.iter().map(|entry| entry.name)
    }

    /// The names of the collectors that are on, in the order of the page.
    pub fn enabled(&self) -> impl Iterator<Item = &'static str> {
        self.slots.iter().map(|slot| slot.entry.name)
    }

    /// Why the last scrape of a collector failed; none when it succeeded or had no data to give.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.slots
            .iter()
            .find(|slot| slot.entry.name == name)?
            .failing
            .as_deref()
    }

    /// Appends one scrape to `page`: the families of the collectors that `filter` asks for, then for each of them
    /// `node_scrape_collector_duration_seconds` and `node_scrape_collector_success`. A collector that fails or panics
    /// leaves nothing but its success 0. The page is the caller's to clear.
    ///
    /// Errors: the filter asks for what cannot be; the page is as it was.
    pub fn scrape(&mut self, filter: &Filter, page: &mut Page) -> Result<(), FilterError> {
        self.check(filter)?;
        let asked = |name: &str| {
            (filter.collect.is_empty() || filter.collect.iter().any(|other| other == name))
                && !filter.exclude.iter().any(|other| other == name)
        };
        self.outcomes.clear();
        for slot in &mut self.slots {
            let name = slot.entry.name;
            if asked(name) {
                let start = Instant::now();
                let success = slot.collect(&self.context, page);
                self.outcomes.push((name, start.elapsed().as_secs_f64(), success));
            }
        }
        let mut family = page.family(
            "node_scrape_collector_duration_seconds",
            "How long a collector took in this scrape.",
            MetricType::Gauge,
        );
        for (name, seconds, _) in &self.outcomes {
            family.sample(&[("collector", name)], *seconds);
        }
        let mut family = page.family(
            "node_scrape_collector_success",
            "Whether a collector succeeded in this scrape.",
            MetricType::Gauge,
        );
        for (name, _, success) in &self.outcomes {
            family.sample(&[("collector", name)], f64::from(u8::from(*success)));
        }
        Ok(())
    }

    fn check(&self, filter: &Filter) -> Result<(), FilterError> {
        if !filter.collect.is_empty() && !filter.exclude.is_empty() {
            return Err(FilterError::Both);
        }
        for name in &filter.collect {
            if !self.names().any(|known| known == name) {
                return Err(FilterError::Missing(name.clone()));
            }
            if !self.enabled().any(|enabled| enabled == name) {
                return Err(FilterError::Disabled(name.clone()));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.enabled()).finish()
    }
}

impl Slot {
    fn collect(&mut self, context: &Context, page: &mut Page) -> bool {
        let mark = page.mark();
        let result = match &mut self.collector {
            Some(collector) => catch_unwind(AssertUnwindSafe(|| collector.collect(page))),
            None => Ok(Err(CollectError::failed(
                "it panicked before and cannot be built again",
            ))),
        };
        let panicked = result.is_err();
        let result = result.unwrap_or_else(|_| Err(CollectError::failed("it panicked")));
        if result.is_err() {
            page.rollback(mark);
        }
        if panicked || self.collector.is_none() {
            // What a panic leaves behind is not trusted.
            self.collector = catch_unwind(AssertUnwindSafe(|| (self.entry.build)(context).ok()))
                .ok()
                .flatten();
        }
        self.log(result.as_ref().err());
        result.is_ok()
    }

    /// A failure is worth a warning when it begins or changes; that it lasts shows in the success series.
    fn log(&mut self, error: Option<&CollectError>) {
        let collector = self.entry.name;
        match error {
            None => {
                if self.failing.take().is_some() {
                    tracing::info!(collector, "collector works again");
                }
            }
            Some(CollectError::NoData(reason)) => tracing::debug!(collector, %reason, "no data"),
            Some(error) => {
                let text = chain(error);
                if self.failing.as_ref() == Some(&text) {
                    tracing::debug!(collector, error = text, "collector still fails");
                } else {
                    tracing::warn!(collector, error = text, "collector fails");
                    self.failing = Some(text);
                }
            }
        }
    }
}

/// An error with what led to it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

fn nearest(table: &[Entry], name: &str) -> Option<&'static str> {
    table
        .iter()
        .map(|entry| (strsim::damerau_levenshtein(entry.name, name), entry.name))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3))
        .min()
        .map(|(_, known)| known)
}
