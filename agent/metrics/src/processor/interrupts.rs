//! `interrupts`: `/proc/interrupts`. A guest with many CPUs and queues has thousands of counters
//! there, so the counters of a device are summed, and CPUs that never served it are left out.
//! `perInterrupt` exports node_exporter's series.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::interrupts::{Interrupt, table};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::{
    interrupt_groups::{Group, device, single},
    labels::CpuLabels,
};
use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

/// Maximum size in bytes; sufficient for 512 CPUs with 2000 interrupts.
const MAX_INTERRUPTS_BYTES: usize = 16 << 20;

struct Interrupts {
    file: Reread,
    filter: NameFilter,
    per_interrupt: bool,
    include_zeros: Option<bool>,
    labels: CpuLabels,
    /// The lines at the last scrape, which are usually unchanged.
    known: Vec<KnownLine>,
    groups: Vec<Group>,
    /// Counts of all lines in sequence, and of one line. Reused buffers.
    counts: Vec<u64>,
    line: Vec<u64>,
    sums: Vec<u64>,
}

struct KnownLine {
    name: String,
    about: String,
    group: Option<usize>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.interrupts;
    Ok(Box::new(Interrupts {
        file: Reread::with_limit(context.roots.proc("interrupts"), MAX_INTERRUPTS_BYTES),
        filter: filters::interrupts(settings)?,
        per_interrupt: settings.per_interrupt,
        include_zeros: settings.include_zeros,
        labels: CpuLabels::default(),
        known: Vec::new(),
        groups: Vec::new(),
        counts: Vec::new(),
        line: Vec::new(),
        sums: Vec::new(),
    }))
}

impl Collector for Interrupts {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut skipped = Skipped::default();
        let cpus = self.read(&mut skipped)?;
        self.sums.clear();
        self.sums.resize(self.groups.len() * cpus.len(), 0);
        for (known, counts) in self.known.iter().zip(self.counts.chunks_exact(cpus.len())) {
            let Some(group) = known.group else { continue };
            let sums = &mut self.sums[group * cpus.len()..][..cpus.len()];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.saturating_add(*count);
            }
        }
        let mut family = page.family(
            "node_interrupts_total",
            "Served interrupts by CPU and device.",
            MetricType::Counter,
        );
        for (group, sums) in self.groups.iter().zip(self.sums.chunks_exact(cpus.len())) {
            let zeros = self.include_zeros.unwrap_or(!group.grouped);
            for (cpu, sum) in cpus.iter().zip(sums).filter(|(_, sum)| zeros || **sum > 0) {
                let labels = [
                    ("cpu", self.labels.get(*cpu)),
                    ("type", &group.kind),
                    ("info", &group.info),
                    ("devices", &group.devices),
                ];
                family.sample(&labels, *sum as f64);
            }
        }
        skipped.end()
    }
}

impl Interrupts {
    /// Reads the counts, and the groups if the lines have changed. Returns the CPUs of the columns.
    fn read(&mut self, skipped: &mut Skipped) -> Result<Vec<u32>, CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let table = table(&text).map_err(CollectError::parse(&path))?;
        let (known, all) = (&mut self.known, &mut self.counts);
        all.clear();
        let (mut at, mut changed) = (0, false);
        let (mut bad, mut skip) = (None, skipped.of(&path));
        let note = |error| {
            if self.per_interrupt {
                skip(error);
            } else {
                bad.get_or_insert(error);
            }
        };
        table.rows(&mut self.line, note, |interrupt, counts| {
            let same = known
                .get(at)
                .is_some_and(|known| known.name == interrupt.name && known.about == interrupt.about);
            if !same {
                changed = true;
                known.truncate(at);
                known.push(KnownLine {
                    name: interrupt.name.to_owned(),
                    about: interrupt.about.to_owned(),
                    group: None,
                });
            }
            at += 1;
            all.extend_from_slice(counts);
        });
        if let Some(error) = bad {
            // The sum of a device's other lines would be wrong.
            known.clear();
            return Err(CollectError::parse(&path)(error));
        }
        changed |= known.len() != at;
        known.truncate(at);
        let cpus = table.cpus;
        if changed {
            self.regroup();
        }
        Ok(cpus)
    }

    fn regroup(&mut self) {
        self.groups.clear();
        let mut seen = HashSet::new();
        for known in &mut self.known {
            let interrupt = Interrupt {
                name: &known.name,
                about: &known.about,
            };
            let alone = single(interrupt);
            let name = format!("{};{};{}", alone.kind, alone.info, alone.devices);
            known.group = None;
            if !self.filter.takes(&name) || !seen.insert(known.name.clone()) {
                continue;
            }
            let group = if self.per_interrupt {
                alone
            } else {
                device(interrupt)
            };
            let same = |other: &Group| other.grouped == group.grouped && other.kind == group.kind;
            let place = self.groups.iter().position(same).unwrap_or(self.groups.len());
            known.group = Some(place);
            match self.groups.get_mut(place) {
                Some(other) if other.info != group.info => other.info.clear(),
                Some(_) => {}
                None => self.groups.push(group),
            }
        }
    }
}
