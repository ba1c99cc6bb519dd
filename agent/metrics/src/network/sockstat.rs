//! `sockstat`: sockets of each protocol and their memory, from `/proc/net/sockstat` and
//! `sockstat6`.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::sockstat::protocols;
use virtfleet_agent_host::{Reread, page_size};
use virtfleet_wire::exposition::{Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// The keys that a protocol's line may have.
const KEYS: [&str; 6] = ["inuse", "orphan", "tw", "alloc", "mem", "memory"];

struct Sockstat {
    files: [Reread; 2],
    page_size: f64,
    /// Reused buffers.
    name: String,
    help: String,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Sockstat {
        files: ["net/sockstat", "net/sockstat6"]
            .map(|path| Reread::new(context.roots.proc(path)).single_record()),
        page_size: page_size() as f64,
        name: String::new(),
        help: String::new(),
    }))
}

impl Collector for Sockstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let Self {
            files,
            page_size,
            name,
            help,
        } = self;
        let mut skipped = Skipped::default();
        for (file, version) in files.iter_mut().zip([4, 6]) {
            let path = file.path().to_owned();
            let text = match file.text() {
                // A kernel may have either one disabled.
                Err(error) if error.is_missing() => continue,
                text => text?,
            };
            let mut seen = HashSet::new();
            for protocol in protocols(&text) {
                let protocol = protocol.map_err(CollectError::parse(&path));
                let Some(protocol) = skipped.take(protocol) else {
                    continue;
                };
                let mut write = |key: &str, value: f64| {
                    name.clear();
                    name.extend(["node_sockstat_", protocol.name, "_", key]);
                    help.clear();
                    help.extend(["Number of ", protocol.name, " sockets in state ", key, "."]);
                    if is_metric_name(name) {
                        page.gauge(name, help, value);
                    }
                };
                if !seen.insert(protocol.name) {
                    continue;
                }
                let mut values = [None; KEYS.len()];
                let mut used = None;
                for (key, value) in skipped.valid(&path, protocol.pairs()) {
                    if let Some(index) = KEYS.iter().position(|known| *known == key) {
                        values[index] = Some(value as f64);
                    } else if key == "used" {
                        used = Some(value as f64);
                    }
                }
                if protocol.name == "sockets" {
                    if let Some(used) = used.filter(|_| version == 4) {
                        page.gauge("node_sockstat_sockets_used", "Sockets of all kinds in use.", used);
                    }
                    continue;
                }
                for (key, value) in KEYS.iter().zip(values) {
                    if let Some(value) = value {
                        write(key, value);
                    }
                }
                if let Some(pages) = values[4] {
                    write("mem_bytes", pages * *page_size);
                }
            }
        }
        skipped.end()
    }
}
