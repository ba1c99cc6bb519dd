//! Runs the enabled collectors in sequence, and isolates one that fails, hangs or writes too many
//! series.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use virtfleet_agent_core::settings::{check_names, deadline};
use virtfleet_agent_host::Roots;
use virtfleet_wire::{
    exposition::{MetricType, Page},
    settings::{MetricsSettings, REMOVED_COLLECTORS},
};

use super::{
    COLLECTORS, CollectError, Context, Entry, Filter, FilterError, RegistryError, runner::Runner,
    series_limit::limit, slot::Slot,
};

/// The enabled collectors. Owned by one thread, which scrapes for all clients.
pub struct Registry {
    table: &'static [Entry],
    context: Context,
    slots: Vec<Slot>,
    runner: Runner,
    deadline: Duration,
    outcomes: Vec<Line>,
}

/// Data about a collector in the current scrape.
struct Line {
    index: usize,
    seconds: f64,
    success: bool,
    dropped: usize,
}

impl Registry {
    /// Creates the registry with the collectors of [`COLLECTORS`] that are enabled by default, by
    /// `settings.collectors`, or by `overrides` (the command line), which has precedence.
    ///
    /// # Errors
    /// A setting of a collector is invalid, or a name is unknown.
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

    /// The same with another table or kernel.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn with_table(
        table: &'static [Entry],
        context: Context,
        overrides: &BTreeMap<String, bool>,
    ) -> Result<Self, RegistryError> {
        let known: Vec<&'static str> = table.iter().map(|entry| entry.name).collect();
        check_names(&known, &context.settings, overrides)?;
        let deadline = deadline(&context.settings)?;
        let switched = &context.settings.collectors;
        let mut slots = Vec::new();
        for entry in table {
            // Disabled collectors are built too, so that their settings are always checked.
            // Building reads and starts nothing.
            let collector = (entry.build)(&context)?;
            let on = overrides.get(entry.name).or_else(|| switched.get(entry.name));
            if on.copied().unwrap_or(entry.runs_in(context.settings.profile)) {
                slots.push(Slot::new(entry, collector, limit(&context.settings, entry.name)));
            }
        }
        Ok(Self {
            table,
            context,
            slots,
            runner: Runner::new(),
            deadline,
            outcomes: Vec::new(),
        })
    }

    /// Names of all collectors, on or off, in the order of the page.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.table.iter().map(|entry| entry.name)
    }

    /// Names of the enabled collectors in the order of the page.
    pub fn enabled(&self) -> impl Iterator<Item = &'static str> {
        self.slots.iter().map(|slot| slot.entry.name)
    }

    /// Why the last scrape of a collector failed. `None` if it succeeded or had no data.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.slots
            .iter()
            .find(|slot| slot.entry.name == name)?
            .failing
            .as_deref()
    }

    /// Appends one scrape to `page`: the families of the collectors that `filter` selects, then for
    /// each of them `node_scrape_collector_duration_seconds` and `node_scrape_collector_success`. A
    /// collector that fails or panics leaves only its success 0; one that left malformed entries
    /// out also leaves its families. The caller clears the page.
    ///
    /// # Errors
    /// The filter is invalid; the page is unchanged.
    pub fn scrape(&mut self, filter: &Filter, page: &mut Page) -> Result<(), FilterError> {
        self.check(filter)?;
        for (index, collector) in self.runner.late() {
            self.slots[index].back(collector);
        }
        self.outcomes.clear();
        let mut jobs = VecDeque::with_capacity(self.slots.len());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if filter.asks_for(slot.entry.name) {
                match slot.job(index, &self.context) {
                    Ok(job) => jobs.push_back(job),
                    Err(error) => {
                        slot.record_failure(&error);
                        self.outcomes.push(Line::failed(index, Duration::ZERO));
                    }
                }
            }
        }
        let round = self.runner.run(jobs, self.deadline, page);
        for (index, waited) in round.hung {
            let text = format!(
                "no result within {:?}; the page is sent without it",
                self.deadline
            );
            self.slots[index].record_failure(&CollectError::failed(text));
            self.outcomes.push(Line::failed(index, waited));
        }
        for finished in round.finished {
            let (index, seconds) = (finished.index, finished.took.as_secs_f64());
            let dropped = finished.dropped;
            let success = self.slots[index].settle(finished);
            self.outcomes.push(Line {
                index,
                seconds,
                success,
                dropped,
            });
        }
        self.outcomes.sort_unstable_by_key(|line| line.index);
        self.write_collector_metrics(page);
        Ok(())
    }

    /// Appends the metrics about the collectors.
    fn write_collector_metrics(&self, page: &mut Page) {
        let name = |line: &Line| self.slots[line.index].entry.name;
        let mut family = page.family(
            "node_scrape_collector_duration_seconds",
            "Duration of a collector in this scrape.",
            MetricType::Gauge,
        );
        for line in &self.outcomes {
            family.sample(&[("collector", name(line))], line.seconds);
        }
        let mut family = page.family(
            "node_scrape_collector_success",
            "Whether a collector succeeded in this scrape.",
            MetricType::Gauge,
        );
        for line in &self.outcomes {
            family.sample(&[("collector", name(line))], f64::from(u8::from(line.success)));
        }
        let mut family = page.family(
            "virtfleet_agent_series_dropped",
            "Series of a collector that were dropped in this scrape because they exceed its limit.",
            MetricType::Gauge,
        );
        for line in self.outcomes.iter().filter(|line| line.dropped > 0) {
            family.sample(&[("collector", name(line))], line.dropped as f64);
        }
        let mut family = page.family(
            "virtfleet_agent_collector_failed",
            "A collector that failed in this scrape, always 1. A collector without data on this guest has not failed.",
            MetricType::Gauge,
        );
        for line in &self.outcomes {
            if self.slots[line.index].failing.is_some() {
                family.sample(&[("collector", name(line))], 1.0);
            }
        }
    }

    fn check(&self, filter: &Filter) -> Result<(), FilterError> {
        if !filter.collect.is_empty() && !filter.exclude.is_empty() {
            return Err(FilterError::Both);
        }
        // Prometheus may still be set up to request a collector that earlier versions had.
        let is_current = |name: &&String| !REMOVED_COLLECTORS.contains(&name.as_str());
        for name in filter.collect.iter().filter(is_current) {
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

impl Line {
    fn failed(index: usize, took: Duration) -> Self {
        Self {
            index,
            seconds: took.as_secs_f64(),
            success: false,
            dropped: 0,
        }
    }
}
