//! The part of `cpu` from `/sys/devices/system/cpu`.
//!
//! The directories are listed again only when a CPU was added or removed; three small files
//! indicate that at each scrape.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::cpulist;
use virtfleet_agent_host::{Reread, exists, read_directory, value_once};
use virtfleet_wire::exposition::{MetricType, Page};

pub(super) struct CpuSysfs {
    dir: PathBuf,
    isolated: Reread,
    online: Reread,
    present: Reread,
    /// Content of `present` when the directories were listed.
    listed: Option<String>,
    /// CPUs with a directory, in order, with their labels.
    cpus: Vec<(u32, String)>,
    /// Whether each CPU has a file with its online state.
    has_online_file: bool,
    /// Package, core, file.
    cores: Vec<(String, String, PathBuf)>,
    /// Package, file.
    packages: Vec<(String, PathBuf)>,
    buffer: Vec<u8>,
}

impl CpuSysfs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            isolated: Reread::new(dir.join("isolated")).single_record(),
            online: Reread::new(dir.join("online")).single_record(),
            present: Reread::new(dir.join("present")).single_record(),
            listed: None,
            cpus: Vec::new(),
            has_online_file: false,
            cores: Vec::new(),
            packages: Vec::new(),
            buffer: Vec::new(),
            dir,
        }
    }

    /// Writes the available values. `changed`: a CPU went online or offline.
    pub(super) fn write(&mut self, page: &mut Page, changed: bool) {
        let present = self.present.text().unwrap_or_default();
        if changed || self.listed.as_deref() != Some(&*present) {
            self.listed = Some(present.into_owned());
            self.list();
        }
        self.write_isolated(page);
        self.write_throttles(page);
        self.write_online(page);
    }

    fn write_isolated(&mut self, page: &mut Page) {
        let mut family = page.family(
            "node_cpu_isolated",
            "CPUs that are isolated from the scheduler, from /sys/devices/system/cpu/isolated.",
            MetricType::Gauge,
        );
        for cpu in cpus(&mut self.isolated) {
            family.sample(&[("cpu", &cpu.to_string())], 1.0);
        }
    }

    fn write_throttles(&mut self, page: &mut Page) {
        let buffer = &mut self.buffer;
        let mut family = page.family(
            "node_cpu_package_throttles_total",
            "Number of times that this CPU package was throttled.",
            MetricType::Counter,
        );
        for (package, path) in &self.packages {
            if let Some(count) = value_once::<u64>(path, buffer) {
                family.sample(&[("package", package)], count as f64);
            }
        }
        let mut family = page.family(
            "node_cpu_core_throttles_total",
            "Number of times that this CPU core was throttled.",
            MetricType::Counter,
        );
        for (package, core, path) in &self.cores {
            if let Some(count) = value_once::<u64>(path, buffer) {
                family.sample(&[("package", package), ("core", core)], count as f64);
            }
        }
    }

    fn write_online(&mut self, page: &mut Page) {
        if !self.has_online_file {
            return;
        }
        let online = cpus(&mut self.online);
        let mut family = page.family(
            "node_cpu_online",
            "Whether this CPU is online.",
            MetricType::Gauge,
        );
        for (cpu, label) in &self.cpus {
            let online = f64::from(u8::from(online.contains(cpu)));
            family.sample(&[("cpu", label)], online);
        }
    }

    fn list(&mut self) {
        self.cpus.clear();
        self.cores.clear();
        self.packages.clear();
        let entries = read_directory(&self.dir).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            if let Some(id) = digits.and_then(|digits| digits.parse().ok()) {
                self.cpus.push((id, id.to_string()));
            }
        }
        self.cpus.sort_unstable();
        let first = self.cpus.first().map(|(id, _)| *id);
        self.has_online_file = first.is_some_and(|id| exists(&file_of(&self.dir, id, "online")));
        for (id, _) in &self.cpus {
            let mut topology =
                |file: &str| value_once::<u64>(&file_of(&self.dir, *id, file), &mut self.buffer);
            let (Some(package), Some(core)) = (
                topology("topology/physical_package_id"),
                topology("topology/core_id"),
            ) else {
                continue;
            };
            let (package, core) = (package.to_string(), core.to_string());
            // Each package and core is counted once, independent of its number of CPUs.
            let counter = file_of(&self.dir, *id, "thermal_throttle/package_throttle_count");
            if !self.packages.iter().any(|known| known.0 == package) && exists(&counter) {
                self.packages.push((package.clone(), counter));
            }
            let counter = file_of(&self.dir, *id, "thermal_throttle/core_throttle_count");
            let known = self
                .cores
                .iter()
                .any(|known| known.0 == package && known.1 == core);
            if !known && exists(&counter) {
                self.cores.push((package, core, counter));
            }
        }
    }
}

fn file_of(dir: &Path, cpu: u32, name: &str) -> PathBuf {
    dir.join(format!("cpu{cpu}")).join(name)
}

/// The CPUs of a list file. Empty if it is missing or malformed.
fn cpus(file: &mut Reread) -> Vec<u32> {
    match file.text().map(|text| cpulist::cpus(&text)) {
        Ok(Ok(cpus)) => cpus,
        Ok(Err(error)) => {
            tracing::debug!(path = %file.path().display(), %error, "cannot read a list of CPUs");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
