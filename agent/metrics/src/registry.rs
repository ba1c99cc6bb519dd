//! Runs the collectors that are on, one after the other, and keeps one that fails, hangs or says too much from hurting the
//! page.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use virtfleet_agent_core::settings::{check_names, deadline};
use virtfleet_agent_host::Roots;
use virtfleet_wire::{
    exposition::{MetricType, Page},
    settings::MetricsSettings,
};

use super::{
    COLLECTORS, CollectError, Context, Entry, Filter, FilterError, RegistryError, runner::Runner, slot::Slot,
};

/// Series that a collector may write, unless the settings say otherwise.
const MAX_SERIES: usize = 10_000;

/// The collectors that are on. It is owned by one thread, which scrapes for everyone.
pub struct Registry {
    table: &'static [Entry],
    context: Context,
    slots: Vec<Slot>,
    runner: Runner,
    deadline: Duration,
    outcomes: Vec<Line>,
}

/// What the page says of a collector in the scrape under way.
struct Line {
    index: usize,
    seconds: f64,
    success: bool,
    dropped: usize,
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
        mut context: Context,
        overrides: &BTreeMap<String, bool>,
    ) -> Result<Self, RegistryError> {
        let known: Vec<&'static str> = table.iter().map(|entry| entry.name).collect();
        check_names(&known, &context.settings, overrides)?;
        let deadline = deadline(&context.settings)?;
        // Settled before any is built: what one writes may hang on another.
        let profile = context.settings.profile;
        let switched = &mut context.settings.collectors;
        for entry in table {
            let on = overrides.get(entry.name).or_else(|| switched.get(entry.name));
            let on = on.copied().unwrap_or(entry.runs_in(profile));
            switched.insert(entry.name.to_owned(), on);
        }
        let mut slots = Vec::new();
        for entry in table {
            // A collector that is off is built, too, so that its settings are checked when they are written and not
            // when somebody turns it on. Building reads nothing and starts nothing.
            let collector = (entry.build)(&context)?;
            if context.settings.collectors[entry.name] {
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
                        slot.fails(&error);
                        self.outcomes.push(Line::failed(index, Duration::ZERO));
                    }
                }
            }
        }
        let round = self.runner.play(jobs, self.deadline, page);
        for (index, waited) in round.hung {
            let text = format!(
                "no answer within {:?}; the page goes out without it",
                self.deadline
            );
            self.slots[index].fails(&CollectError::failed(text));
            self.outcomes.push(Line::failed(index, waited));
        }
        for played in round.played {
            let (index, seconds) = (played.index, played.took.as_secs_f64());
            let dropped = played.dropped;
            let success = self.slots[index].settle(played);
            self.outcomes.push(Line {
                index,
                seconds,
                success,
                dropped,
            });
        }
        self.outcomes.sort_unstable_by_key(|line| line.index);
        self.tell(page);
        Ok(())
    }

    /// Appends what the page says of the collectors themselves.
    fn tell(&self, page: &mut Page) {
        let name = |line: &Line| self.slots[line.index].entry.name;
        let mut family = page.family(
            "node_scrape_collector_duration_seconds",
            "How long a collector took in this scrape.",
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
            "Series of a collector that this scrape left out, because there are more than it may write.",
            MetricType::Gauge,
        );
        for line in self.outcomes.iter().filter(|line| line.dropped > 0) {
            family.sample(&[("collector", name(line))], line.dropped as f64);
        }
        let mut family = page.family(
            "virtfleet_agent_collector_failed",
            "A collector that failed in this scrape, always 1. One that has nothing to tell on this guest has not.",
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

/// Series that a collector may write.
pub(super) fn limit(settings: &MetricsSettings, name: &str) -> usize {
    let set = settings.max_series_of.get(name).copied();
    set.or(settings.max_series)
        .map_or(MAX_SERIES, |limit| limit as usize)
}
