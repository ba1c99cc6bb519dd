//! The part of `cpu` that comes from `/sys/devices/system/cpu`.
//!
//! The directories are listed again only when a CPU came or went: at each scrape, three small files tell.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::cpulist;
use virtfleet_agent_host::{Reread, exists, read_directory, slurp};
use virtfleet_wire::exposition::{MetricType, Page};

/// Files of one number.
const NUMBER_LIMIT: usize = 4096;

pub(super) struct CpuSysfs {
    dir: PathBuf,
    isolated: Reread,
    online: Reread,
    present: Reread,
    /// What `present` said when the directories were listed.
    listed: Option<String>,
    /// The CPUs that have a directory, in order, with their labels.
    cpus: Vec<(u32, String)>,
    /// Whether the kernel says of a single CPU whether it is online.
    says_online: bool,
    /// Package, core, file.
    cores: Vec<(String, String, PathBuf)>,
    /// Package, file.
    packages: Vec<(String, PathBuf)>,
    buffer: Vec<u8>,
}

impl CpuSysfs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            isolated: Reread::new(dir.join("isolated")).made_at_once(),
            online: Reread::new(dir.join("online")).made_at_once(),
            present: Reread::new(dir.join("present")).made_at_once(),
            listed: None,
            cpus: Vec::new(),
            says_online: false,
            cores: Vec::new(),
            packages: Vec::new(),
            buffer: Vec::new(),
            dir,
        }
    }

    /// Writes what there is; a guest may have none of it. `changed`: CPUs came or went online.
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
            "How often this CPU package was throttled.",
            MetricType::Counter,
        );
        for (package, path) in &self.packages {
            if let Some(count) = number(path, buffer) {
                family.sample(&[("package", package)], count as f64);
            }
        }
        let mut family = page.family(
            "node_cpu_core_throttles_total",
            "How often this CPU core was throttled.",
            MetricType::Counter,
        );
        for (package, core, path) in &self.cores {
            if let Some(count) = number(path, buffer) {
                family.sample(&[("package", package), ("core", core)], count as f64);
            }
        }
    }

    fn write_online(&mut self, page: &mut Page) {
        if !self.says_online {
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
        self.says_online = first.is_some_and(|id| exists(&file_of(&self.dir, id, "online")));
        for (id, _) in &self.cpus {
            let mut topology = |file: &str| number(&file_of(&self.dir, *id, file), &mut self.buffer);
            let (Some(package), Some(core)) = (
                topology("topology/physical_package_id"),
                topology("topology/core_id"),
            ) else {
                continue;
            };
            let (package, core) = (package.to_string(), core.to_string());
            // Each package and each core counts once, however many CPUs it has.
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

/// The CPUs of a list file; none when it is missing or nonsense.
fn cpus(file: &mut Reread) -> Vec<u32> {
    match file.text().map(|text| cpulist::cpus(&text)) {
        Ok(Ok(cpus)) => cpus,
        Ok(Err(error)) => {
            tracing::debug!(path = %file.path().display(), %error, "no list of CPUs");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

fn number(path: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    let text = str::from_utf8(slurp(path, buffer, NUMBER_LIMIT).ok()?).ok()?;
    text.trim().parse().ok()
}
