//! `lnstat`: network stack cache statistics per possible CPU, from the files under
//! `/proc/net/stat`.

use std::path::PathBuf;

use virtfleet_agent_core::procfs::per_cpu::{names, rows};
use virtfleet_agent_host::{read_directory, read_once};
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum number of files; kernels have five.
const MAX_FILES: usize = 64;
/// Maximum size of a file in bytes; it has a line per CPU.
const MAX_FILE_BYTES: usize = 4 << 20;

struct Lnstat {
    directory: PathBuf,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Lnstat {
        directory: context.roots.proc("net/stat"),
        buffer: Vec::new(),
    }))
}

struct Row {
    family: String,
    subsystem: String,
    cpu: String,
    value: u64,
}

impl Lnstat {
    fn read(&mut self, subsystem: &str, all: &mut Vec<Row>) -> Result<(), CollectError> {
        let path = self.directory.join(subsystem);
        let text = match read_once(&path, &mut self.buffer, MAX_FILE_BYTES) {
            Err(error) if error.is_missing() => return Ok(()),
            text => String::from_utf8_lossy(text?),
        };
        let mut families: Vec<Option<String>> = Vec::new();
        for name in names(&text) {
            let family = format!("node_lnstat_{name}_total");
            let new = is_metric_name(&family) && !families.iter().flatten().any(|known| *known == family);
            families.push(new.then_some(family));
        }
        // A line has no number of its CPU: without one of them, those of the others are unknown.
        let rows: Vec<_> = rows(&text)
            .collect::<Result<_, _>>()
            .map_err(CollectError::parse(&path))?;
        for (cpu, row) in rows.into_iter().enumerate() {
            for (family, value) in families.iter().zip(row) {
                if let Some(family) = family {
                    all.push(Row {
                        family: family.clone(),
                        subsystem: subsystem.to_owned(),
                        cpu: cpu.to_string(),
                        value,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Collector for Lnstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let Ok(entries) = read_directory(&self.directory) else {
            // A kernel without such caches has no statistics, which is a success in node_exporter
            // too.
            return Ok(());
        };
        let mut files: Vec<String> = entries
            .take(MAX_FILES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .collect();
        files.sort_unstable();
        let mut all = Vec::new();
        let mut skipped = Skipped::default();
        for file in files {
            skipped.take(self.read(&file, &mut all));
        }
        all.sort_by(|one, other| one.family.cmp(&other.family));
        for rows in all.chunk_by(|one, other| one.family == other.family) {
            let mut family = page.family(
                &rows[0].family,
                "A counter of a network stack cache.",
                MetricType::Counter,
            );
            for row in rows {
                family.sample(
                    &[("subsystem", &row.subsystem), ("cpu", &row.cpu)],
                    row.value as f64,
                );
            }
        }
        skipped.end()
    }
}
