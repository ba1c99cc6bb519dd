//! `meminfo_numa`: memory by NUMA node, from `/sys/devices/system/node/node*/{meminfo,numastat}`
//! (kernel: `drivers/base/node.c`).

use std::collections::HashMap;
use std::path::PathBuf;

use virtfleet_agent_core::procfs::{meminfo, pairs::pairs};
use virtfleet_agent_host::{RereadError, list, read_once};
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum number of nodes: the kernel's largest `MAX_NUMNODES`.
const MAX_NODES: usize = 1024;
/// Maximum size of a node's file in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

struct MeminfoNuma {
    dir: PathBuf,
    buffer: Vec<u8>,
}

/// Name and type of a family, and its samples by node.
type Family = (String, MetricType, Vec<(String, f64)>);

/// The families in the order of their first occurrence.
#[derive(Default)]
struct Families {
    all: Vec<Family>,
    places: HashMap<String, usize>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(MeminfoNuma {
        dir: context.roots.sys("devices/system/node"),
        buffer: Vec::new(),
    }))
}

impl Collector for MeminfoNuma {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut nodes: Vec<u32> = list(&self.dir)
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.strip_prefix("node")?.parse().ok())
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut families = Families::default();
        let mut skipped = Skipped::default();
        for node in nodes.into_iter().take(MAX_NODES) {
            match self.read(node, &mut families, &mut skipped) {
                // Memory can be unplugged.
                Err(error) if error.is_missing() => {}
                done => drop(skipped.take(done)),
            }
        }
        for (name, kind, samples) in &families.all {
            let field = name.strip_prefix("node_memory_numa_").unwrap_or_default();
            let help = format!("Memory information field {field}.");
            let mut family = page.family(name, &help, *kind);
            for (node, value) in samples {
                family.sample(&[("node", node)], *value);
            }
        }
        skipped.end()
    }
}

impl MeminfoNuma {
    fn read(&mut self, node: u32, families: &mut Families, skipped: &mut Skipped) -> Result<(), RereadError> {
        let dir = self.dir.join(format!("node{node}"));
        let label = node.to_string();
        let path = dir.join("meminfo");
        let text = read_once(&path, &mut self.buffer, MAX_FILE_BYTES)?;
        let text = String::from_utf8_lossy(text);
        // `Node 0 MemTotal:  1024 kB`: without its first two words, the line has the format of
        // /proc/meminfo.
        let mut plain = String::with_capacity(text.len());
        for line in text.lines() {
            let mut words = line.trim_start().splitn(3, ' ');
            let rest = (words.next() == Some("Node")).then(|| words.nth(1)).flatten();
            plain.push_str(rest.unwrap_or(line));
            plain.push('\n');
        }
        for field in meminfo::fields(&plain) {
            let Some(field) = skipped.take(field.map_err(CollectError::parse(&path))) else {
                continue;
            };
            // A value without its unit was truncated.
            if !field.in_bytes && !field.name.starts_with("HugePages_") {
                let what = format!(
                    "{}: {} does not have the expected unit",
                    path.display(),
                    field.name
                );
                skipped.take::<()>(Err(CollectError::failed(what)));
                continue;
            }
            let name = match field.name.split_once('(') {
                Some((name, rest)) => format!("node_memory_numa_{name}_{}", rest.trim_end_matches(')')),
                None => format!("node_memory_numa_{}", field.name),
            };
            families.add(name, MetricType::Gauge, &label, field.value as f64);
        }
        let path = dir.join("numastat");
        let text = read_once(&path, &mut self.buffer, MAX_FILE_BYTES)?;
        for (name, value) in skipped.valid(&path, pairs(&String::from_utf8_lossy(text))) {
            let name = format!("node_memory_numa_{name}_total");
            families.add(name, MetricType::Counter, &label, value as f64);
        }
        Ok(())
    }
}

impl Families {
    fn add(&mut self, name: String, kind: MetricType, node: &str, value: f64) {
        if !is_metric_name(&name) {
            return;
        }
        let next = self.all.len();
        let place = *self.places.entry(name.clone()).or_insert(next);
        if place == next {
            self.all.push((name, kind, Vec::new()));
        }
        let samples = &mut self.all[place].2;
        if samples.iter().all(|(other, _)| other != node) {
            samples.push((node.to_owned(), value));
        }
    }
}
