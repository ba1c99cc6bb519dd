//! `cpu`: time of each CPU by mode, from `/proc/stat`, and online, isolated and throttled CPUs,
//! from sysfs.
//!
//! Counters in `/proc/stat` sometimes decrease (steal, idle and iowait are estimates), which
//! Prometheus would interpret as a reset. So each field keeps its maximum. If a CPU's idle time
//! decreases by 3 seconds or more, the CPU was unplugged and plugged again, and all its fields
//! restart. Offline CPUs are not on the page.

use virtfleet_agent_core::procfs::stat::{self, CpuTimes, TICKS_PER_SECOND};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::{cpu_info::CpuInfos, cpu_sysfs::CpuSysfs};
use crate::{CollectError, Collector, Context, RegistryError};

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
    /// The exported values by CPU number.
    known: Vec<ExportedCpu>,
}

struct ExportedCpu {
    id: u32,
    label: String,
    times: CpuTimes,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.cpu;
    Ok(Box::new(Cpu {
        info: CpuInfos::new(context)?,
        guest: settings.guest.unwrap_or(true),
        stat: Reread::new(context.roots.proc("stat")).single_record(),
        sysfs: CpuSysfs::new(context.roots.sys("devices/system/cpu")),
        fresh: Vec::new(),
        known: Vec::new(),
    }))
}

impl Collector for Cpu {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        if let Some(info) = &mut self.info {
            info.write(page)?;
        }
        let path = self.stat.path().to_owned();
        let text = self.stat.text()?;
        self.fresh.clear();
        for cpu in stat::cpus(&text) {
            self.fresh.push(cpu.map_err(CollectError::parse(&path))?);
        }
        if self.fresh.is_empty() {
            return Err(CollectError::failed(format!("{} lists no CPU", path.display())));
        }
        let changed = update(&mut self.known, &self.fresh);
        let mut family = page.family(
            "node_cpu_seconds_total",
            "Seconds the CPUs spent in each mode.",
            MetricType::Counter,
        );
        for cpu in &self.known {
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
        for cpu in self.known.iter().filter(|_| self.guest) {
            for (mode, ticks) in GUEST_MODES.iter().zip(&cpu.times.columns()[MODES.len()..]) {
                let seconds = *ticks as f64 / TICKS_PER_SECOND;
                family.sample(&[("cpu", &cpu.label), ("mode", mode)], seconds);
            }
        }
        self.sysfs.write(page, changed);
        Ok(())
    }
}

/// Updates `known`. Returns true if a CPU was added or removed.
fn update(known: &mut Vec<ExportedCpu>, fresh: &[(u32, CpuTimes)]) -> bool {
    let before = known.len();
    known.retain(|cpu| fresh.iter().any(|(id, _)| *id == cpu.id));
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
