//! `cpu_vulnerabilities`: `/sys/devices/system/cpu/vulnerabilities`.

use std::path::PathBuf;

use virtfleet_agent_core::procfs::vulnerability;
use virtfleet_agent_host::{list, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum number of files; the kernel has about twenty.
const MAX_VULNERABILITIES: usize = 256;
/// Maximum size of a file in bytes: a page.
const MAX_FILE_BYTES: usize = 4096;

struct Vulnerabilities {
    dir: PathBuf,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Vulnerabilities {
        dir: context.roots.sys("devices/system/cpu/vulnerabilities"),
        buffer: Vec::new(),
    }))
}

impl Collector for Vulnerabilities {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut family = page.family(
            "node_cpu_vulnerabilities_info",
            "State of a CPU vulnerability and its mitigation, always 1.",
            MetricType::Gauge,
        );
        let mut skipped = Skipped::default();
        // The directory is missing if the kernel does not report vulnerabilities.
        for name in list(&self.dir)
            .unwrap_or_default()
            .into_iter()
            .take(MAX_VULNERABILITIES)
        {
            let read = read_once(&self.dir.join(&name), &mut self.buffer, MAX_FILE_BYTES);
            let Some(text) = skipped.take(read) else { continue };
            let text = String::from_utf8_lossy(text);
            let (state, mitigation) = vulnerability::state(&text);
            let labels = [
                ("codename", name.as_str()),
                ("state", state),
                ("mitigation", mitigation),
            ];
            family.sample(&labels, 1.0);
        }
        skipped.end()
    }
}
