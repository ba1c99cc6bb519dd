//! `cpu`: time of each CPU by mode, from `/proc/stat`, and online, isolated and throttled CPUs,
//! from sysfs.
//!
//! Counters in `/proc/stat` sometimes decrease (steal, idle and iowait are estimates), which
//! Prometheus would interpret as a reset. So each field keeps its maximum. If a CPU's idle time
//! decreases by 3 seconds or more, the CPU was unplugged and plugged again, and all its fields
//! restart. Offline CPUs are not on the page. A CPU whose line is malformed is not on the page
//! either, and keeps its values.

use virtfleet_agent_core::procfs::stat::{self, CpuTimes, TICKS_PER_SECOND};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::{cpu_info::CpuInfos, cpu_sysfs::CpuSysfs};
use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Decrease of the idle time in ticks that indicates a new CPU.
const NEW_CPU_IDLE_DECREASE: u64 = 300;
/// The columns of `node_cpu_seconds_total` in order.
const MODES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];
/// The following columns, of `node_cpu_guest_seconds_total`.
const GUEST_MODES: [&str; 2] = ["user", "nice"];

struct Cpu {
    stat: Reread,
    info: Option<CpuInfos>,
    /// Whether the time spent on virtual CPUs is exported.
    guest: bool,
    sysfs: CpuSysfs,
    /// The values just read; a reused buffer.
    fresh: Vec<(u32, CpuTimes)>,
    /// CPUs of the malformed lines; `None` if a number is malformed. A reused buffer.
    damaged: Vec<Option<u32>>,
    /// The exported values by CPU number.
    known: Vec<ExportedCpu>,
}

struct ExportedCpu {
    id: u32,
    label: String,
    times: CpuTimes,
    /// Whether the last text has its line.
    listed: bool,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.cpu;
    Ok(Box::new(Cpu {
        info: CpuInfos::new(context)?,
        guest: settings.guest.unwrap_or(true),
        stat: Reread::new(context.roots.proc("stat")).single_record(),
        sysfs: CpuSysfs::new(context.roots.sys("devices/system/cpu")),
        fresh: Vec::new(),
        damaged: Vec::new(),
        known: Vec::new(),
    }))
}

impl Collector for Cpu {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut skipped = Skipped::default();
        if let Some(info) = &mut self.info {
            let written = info.write(page, &mut skipped);
            skipped.take(written);
        }
        let path = self.stat.path().to_owned();
        let text = self.stat.text()?;
        self.fresh.clear();
        self.damaged.clear();
        // Errors are in the order of their lines.
        let mut numbered = (1..).zip(text.lines());
        let lines = stat::cpus(&text).inspect(|line| {
            if let Err(error) = line {
                let found = numbered.find(|(number, _)| *number == error.line);
                self.damaged
                    .push(found.and_then(|(_, line)| stat::cpu_number(line)));
            }
        });
        self.fresh.extend(skipped.valid(&path, lines));
        if self.fresh.is_empty() {
            skipped.end()?;
            return Err(CollectError::failed(format!("{} lists no CPU", path.display())));
        }
        let changed = update(&mut self.known, &self.fresh, &self.damaged);
        let listed = || self.known.iter().filter(|cpu| cpu.listed);
        let mut family = page.family(
            "node_cpu_seconds_total",
            "Seconds the CPUs spent in each mode.",
            MetricType::Counter,
        );
        for cpu in listed() {
            for (mode, ticks) in MODES.iter().zip(cpu.times.columns()) {
                let seconds = ticks as f64 / TICKS_PER_SECOND;
                family.sample(&[("cpu", &cpu.label), ("mode", mode)], seconds);
            }
        }
        let mut family = page.family(
            "node_cpu_guest_seconds_total",
            "Seconds the CPUs spent running virtual CPUs, by mode; included in node_cpu_seconds_total.",
            MetricType::Counter,
        );
        for cpu in listed().filter(|_| self.guest) {
            for (mode, ticks) in GUEST_MODES.iter().zip(&cpu.times.columns()[MODES.len()..]) {
                let seconds = *ticks as f64 / TICKS_PER_SECOND;
                family.sample(&[("cpu", &cpu.label), ("mode", mode)], seconds);
            }
        }
        self.sysfs.write(page, changed);
        skipped.end()
    }
}

/// Updates `known`, and keeps the values of `damaged` CPUs, whose lines are malformed. Returns true
/// if a CPU was added or removed.
fn update(known: &mut Vec<ExportedCpu>, fresh: &[(u32, CpuTimes)], damaged: &[Option<u32>]) -> bool {
    let before = known.len();
    known.retain_mut(|cpu| {
        cpu.listed = fresh.iter().any(|(id, _)| *id == cpu.id);
        cpu.listed || damaged.iter().any(|id| id.is_none_or(|id| id == cpu.id))
    });
    let mut changed = known.len() != before;
    for (id, new) in fresh {
        match known.binary_search_by_key(id, |cpu| cpu.id) {
            Ok(at) => known[at].times = clamp(known[at].times, *new),
            Err(at) => {
                changed = true;
                known.insert(
                    at,
                    ExportedCpu {
                        id: *id,
                        label: id.to_string(),
                        times: *new,
                        listed: true,
                    },
                );
            }
        }
    }
    changed
}

fn clamp(old: CpuTimes, new: CpuTimes) -> CpuTimes {
    if old.idle.saturating_sub(new.idle) >= NEW_CPU_IDLE_DECREASE {
        return new;
    }
    let mut columns = new.columns();
    for (new, old) in columns.iter_mut().zip(old.columns()) {
        *new = old.max(*new);
    }
    CpuTimes::from_columns(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(user: u64, idle: u64, steal: u64) -> CpuTimes {
        CpuTimes {
            user,
            idle,
            steal,
            ..CpuTimes::default()
        }
    }

    /// Updates without malformed lines.
    fn update(known: &mut Vec<ExportedCpu>, fresh: &[(u32, CpuTimes)]) -> bool {
        super::update(known, fresh, &[])
    }

    #[test]
    fn a_cpu_with_a_malformed_line_keeps_its_values() {
        for damaged in [Some(2), None] {
            let mut known = Vec::new();
            update(&mut known, &[(0, times(9, 9, 9)), (2, times(9, 9, 9))]);
            assert!(!super::update(&mut known, &[(0, times(9, 9, 9))], &[damaged]));
            assert_eq!(
                known.iter().map(|cpu| cpu.listed).collect::<Vec<_>>(),
                [true, false]
            );
            assert!(!update(&mut known, &[(0, times(9, 9, 9)), (2, times(9, 9, 8))]));
            assert!(known[1].listed);
            assert_eq!(known[1].times, times(9, 9, 9), "its counters do not decrease");
            // Another one's malformed line keeps no CPU that is offline.
            assert!(super::update(&mut known, &[(0, times(9, 9, 9))], &[Some(3)]));
            assert_eq!(known.len(), 1);
        }
    }

    #[test]
    fn each_field_is_clamped_separately() {
        let mut known = Vec::new();
        assert!(update(&mut known, &[(0, times(10, 1000, 50))]));
        assert!(!update(&mut known, &[(0, times(11, 999, 40))]));
        assert_eq!(known[0].times, times(11, 1000, 50));
        update(&mut known, &[(0, times(12, 701, 51))]);
        assert_eq!(known[0].times, times(12, 1000, 51), "a decrease of less than 3 s");
        update(&mut known, &[(0, times(1, 700, 0))]);
        assert_eq!(
            known[0].times,
            times(1, 700, 0),
            "a decrease of 3 s restarts the fields"
        );
    }

    #[test]
    fn cpus_are_added_and_removed() {
        let mut known = Vec::new();
        let one = times(1, 1, 1);
        update(&mut known, &[(0, one), (2, one), (10, one)]);
        assert!(update(&mut known, &[(0, one), (1, one), (10, one)]));
        assert_eq!(
            known.iter().map(|cpu| cpu.label.as_str()).collect::<Vec<_>>(),
            ["0", "1", "10"]
        );
        update(&mut known, &[(0, one)]);
        update(&mut known, &[(0, one), (1, times(0, 0, 0))]);
        assert_eq!(
            known[1].times,
            times(0, 0, 0),
            "values of an offline CPU are dropped"
        );
    }
}
