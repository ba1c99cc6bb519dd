//! `cpufreq`: frequencies and governors, from `/sys/devices/system/cpu/cpu*/cpufreq`. Most guests
//! have none, because the host controls the frequency.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::{cpulist, single};
use virtfleet_agent_host::{Reread, exists, is_readable, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum size of a file in bytes: a page.
const MAX_FILE_BYTES: usize = 4096;

/// A file in kHz, its family in Hz, and the HELP.
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
    /// Content of `online` when the CPUs were listed.
    listed: Vec<u8>,
    /// CPUs with a frequency, by label.
    cpus: Vec<(String, PathBuf)>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let dir = context.roots.sys("devices/system/cpu");
    Ok(Box::new(Cpufreq {
        online: Reread::new(dir.join("online")).single_record(),
        dir,
        buffer: Vec::new(),
        listed: Vec::new(),
        cpus: Vec::new(),
    }))
}

fn is_driven(cpus: &Path) -> bool {
    exists(&cpus.join("cpu0/cpufreq"))
}

/// True if this collector writes `node_cpu_frequency_hertz`: the driver reports the frequency, and
/// the agent can read it.
pub(super) fn exports_frequency(cpus: &Path) -> bool {
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
        let mut skipped = Skipped::default();
        for (file, name, help) in FREQUENCIES {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (cpu, dir) in &self.cpus {
                let read = frequency(&dir.join(file), &mut self.buffer);
                if let Some(kilohertz) = skipped.take(read).flatten() {
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
            let Ok(current) = read_once(&dir.join("scaling_governor"), &mut self.buffer, MAX_FILE_BYTES)
            else {
                continue;
            };
            let current = String::from_utf8_lossy(current).trim().to_owned();
            let file = dir.join("scaling_available_governors");
            let available = read_once(&file, &mut governors, MAX_FILE_BYTES).unwrap_or_default();
            let available = String::from_utf8_lossy(available);
            let mut names: Vec<_> = available.split_ascii_whitespace().collect();
            // A governor that is not listed is shown too.
            names.push(&current);
            names.sort_unstable();
            names.dedup();
            for name in names.into_iter().filter(|_| !current.is_empty()) {
                let is_current = f64::from(u8::from(name == current));
                family.sample(&[("cpu", cpu), ("governor", name)], is_current);
            }
        }
        skipped.end()
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

/// The value of a file in kHz. `None` if it is missing, readable only by root, `<unknown>`, or if
/// the CPU was removed meanwhile.
fn frequency(path: &Path, buffer: &mut Vec<u8>) -> Result<Option<u64>, CollectError> {
    let Ok(bytes) = read_once(path, buffer, MAX_FILE_BYTES) else {
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
