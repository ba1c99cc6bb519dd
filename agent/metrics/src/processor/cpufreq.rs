//! `cpufreq`: frequencies and governors, from `/sys/devices/system/cpu/cpu*/cpufreq`. Guests mostly have none, because the
//! host decides.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::{cpulist, single};
use virtfleet_agent_host::{Reread, exists, is_readable, slurp};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// sysfs writes at most a page.
const LIMIT: usize = 4096;

/// A file in kHz, and its family in Hz.
static FREQUENCIES: [(&str, &str, &str); 7] = [
    (
        "cpuinfo_cur_freq",
        "node_cpu_frequency_hertz",
        "Current CPU thread frequency in hertz.",
    ),
    (
        "cpuinfo_avg_freq",
        "node_cpu_frequency_avg_hertz",
        "Average CPU thread frequency in hertz.",
    ),
    (
        "cpuinfo_min_freq",
        "node_cpu_frequency_min_hertz",
        "Minimum CPU thread frequency in hertz.",
    ),
    (
        "cpuinfo_max_freq",
        "node_cpu_frequency_max_hertz",
        "Maximum CPU thread frequency in hertz.",
    ),
    (
        "scaling_cur_freq",
        "node_cpu_scaling_frequency_hertz",
        "Current scaled CPU thread frequency in hertz.",
    ),
    (
        "scaling_min_freq",
        "node_cpu_scaling_frequency_min_hertz",
        "Minimum scaled CPU thread frequency in hertz.",
    ),
    (
        "scaling_max_freq",
        "node_cpu_scaling_frequency_max_hertz",
        "Maximum scaled CPU thread frequency in hertz.",
    ),
];

struct Cpufreq {
    dir: PathBuf,
    online: Reread,
    buffer: Vec<u8>,
    /// What `online` said when the CPUs were looked up.
    listed: Vec<u8>,
    /// The CPUs that have a frequency, by label.
    cpus: Vec<(String, PathBuf)>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let dir = context.roots.sys("devices/system/cpu");
    Ok(Box::new(Cpufreq {
        online: Reread::new(dir.join("online")).made_at_once(),
        dir,
        buffer: Vec::new(),
        listed: Vec::new(),
        cpus: Vec::new(),
    }))
}

fn is_driven(cpus: &Path) -> bool {
    exists(&cpus.join("cpu0/cpufreq"))
}

/// Whether `node_cpu_frequency_hertz` is written by this collector: the driver tells the frequency, and to us, too.
pub(super) fn tells_frequency(cpus: &Path) -> bool {
    is_readable(&cpus.join("cpu0/cpufreq/cpuinfo_cur_freq"))
}

impl Collector for Cpufreq {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        self.online.refresh()?;
        // A driver can be loaded at any time.
        let loaded = self.cpus.is_empty() && is_driven(&self.dir);
        if self.listed != self.online.bytes() || loaded {
            self.list()?;
        }
        for (file, name, help) in FREQUENCIES {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (cpu, dir) in &self.cpus {
                if let Some(kilohertz) = frequency(&dir.join(file), &mut self.buffer)? {
                    family.sample(&[("cpu", cpu)], kilohertz as f64 * 1000.0);
                }
            }
        }
        let mut family = page.family(
            "node_cpu_scaling_governor",
            "Current enabled CPU frequency governor.",
            MetricType::Gauge,
        );
        let mut governors = Vec::new();
        for (cpu, dir) in &self.cpus {
            let Ok(current) = slurp(&dir.join("scaling_governor"), &mut self.buffer, LIMIT) else {
                continue;
            };
            let current = String::from_utf8_lossy(current).trim().to_owned();
            let file = dir.join("scaling_available_governors");
            let available = slurp(&file, &mut governors, LIMIT).unwrap_or_default();
            let available = String::from_utf8_lossy(available);
            let mut names: Vec<_> = available.split_ascii_whitespace().collect();
            names.sort_unstable();
            names.dedup();
            for name in names.into_iter().filter(|_| !current.is_empty()) {
                let is_current = f64::from(u8::from(name == current));
                family.sample(&[("cpu", cpu), ("governor", name)], is_current);
            }
        }
        Ok(())
    }
}

impl Cpufreq {
    fn list(&mut self) -> Result<(), CollectError> {
        self.listed = Vec::new();
        let text = String::from_utf8_lossy(self.online.bytes());
        let online = cpulist::cpus(&text).map_err(CollectError::parse(self.online.path()))?;
        let of = |cpu: u32| (cpu.to_string(), self.dir.join(format!("cpu{cpu}/cpufreq")));
        self.cpus = online
            .into_iter()
            .map(of)
            .filter(|(_, dir)| exists(dir))
            .collect();
        self.listed = self.online.bytes().to_owned();
        Ok(())
    }
}

/// What a file says in kHz: none where it is missing or root's alone, where the hardware does not know (`<unknown>`), and
/// where the CPU has just gone.
fn frequency(path: &Path, buffer: &mut Vec<u8>) -> Result<Option<u64>, CollectError> {
    let Ok(bytes) = slurp(path, buffer, LIMIT) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes);
    if text.trim() == "<unknown>" {
        return Ok(None);
    }
    single::unsigned(&text)
        .map(Some)
        .map_err(CollectError::parse(path))
}
