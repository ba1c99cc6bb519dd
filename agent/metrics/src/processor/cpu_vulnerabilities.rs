//! `cpu_vulnerabilities`: what `/sys/devices/system/cpu/vulnerabilities` says.

use std::path::PathBuf;

use virtfleet_agent_core::procfs::vulnerability;
use virtfleet_agent_host::{list, slurp};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// The kernel knows some twenty.
const MOST: usize = 256;
/// sysfs writes at most a page.
const LIMIT: usize = 4096;

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
            "How the CPUs stand to a vulnerability and what is done against it, always 1.",
            MetricType::Gauge,
        );
        // Where the kernel says nothing about vulnerabilities, there is no directory.
        for name in list(&self.dir).unwrap_or_default().into_iter().take(MOST) {
            let text = String::from_utf8_lossy(slurp(&self.dir.join(&name), &mut self.buffer, LIMIT)?);
            let (state, mitigation) = vulnerability::state(&text);
            let labels = [
                ("codename", name.as_str()),
                ("state", state),
                ("mitigation", mitigation),
            ];
            family.sample(&labels, 1.0);
        }
        Ok(())
    }
}
