//! `textfile`: metrics that other programs write to files, `*.prom` in the directories of the
//! settings.
//!
//! A file is read again after it was replaced, and is exported completely or not at all, so that a
//! malformed line affects no other file. The page contains each family once: families of the same
//! name are merged over all files, and a family that a collector has already written is not taken
//! from files. Every omission sets `node_textfile_scrape_error` and is logged.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use virtfleet_agent_core::textfile::{MAX_SAMPLES, TextFamily, TextfileError, families};
use virtfleet_agent_host::{Roots, Stamped, modified_seconds};
use virtfleet_wire::exposition::{MetricType, Page};

use super::textfile_folders::{Folders, names};
use crate::{CollectError, Collector, Context, RegistryError, series_limit};

/// Maximum number of exported files.
/// Maximum total size of the exported files in bytes. A single file may have 1 MiB.
const MAX_FILES: usize = 1000;
const MAX_BYTES: usize = 4 << 20;
/// Metrics of the agent itself, which are written after all collectors or at the end of this one.
const OWN_METRICS: [&str; 8] = [
    "node_exporter_build_info",
    "node_scrape_collector_",
    "node_textfile_mtime_seconds",
    "node_textfile_scrape_error",
    "process_",
    "virtfleet_agent_",
    "virtfleet_guest_clock_steps_total",
    "virtfleet_guest_pause",
];

struct Textfile {
    roots: Roots,
    folders: Folders,
    /// Maximum number of series. More would be cut at the end of the page, within a file.
    limit: usize,
    /// Parsed files by path in the guest.
    parsed: BTreeMap<String, Stamped<ParsedFile>>,
    /// Families that other collectors have written in this scrape.
    written_families: HashSet<String>,
    /// Errors of the last scrape, so that each is logged once.
    logged: BTreeSet<String>,
}

/// Size of a file in bytes, and its content.
type ParsedFile = (usize, Result<BTreeMap<String, TextFamily>, FileError>);

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("not UTF-8 text")]
    NotText,
    #[error(transparent)]
    Text(#[from] TextfileError),
}

struct ExportedFile<'parsed> {
    path: &'parsed str,
    modified: i64,
    families: &'parsed BTreeMap<String, TextFamily>,
}

/// A family merged over all files.
struct MergedFamily<'parsed> {
    help: Option<&'parsed str>,
    kind: MetricType,
    parts: Vec<(&'parsed str, &'parsed TextFamily)>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Textfile {
        roots: context.roots.clone(),
        folders: Folders::new(&context.settings.textfile.directories)?,
        limit: series_limit::limit(&context.settings, "textfile"),
        parsed: BTreeMap::new(),
        written_families: HashSet::new(),
        logged: BTreeSet::new(),
    }))
}

impl Collector for Textfile {
    fn before_collect(&mut self, page: &Page) {
        self.written_families.clear();
        if !self.folders.is_empty() {
            let text = str::from_utf8(page.as_bytes()).unwrap_or_default();
            let names = text
                .lines()
                .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0));
            self.written_families.extend(names.map(str::to_owned));
        }
    }

    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut wrong = BTreeSet::new();
        let paths = self.list(&mut wrong);
        self.parsed.retain(|path, _| paths.binary_search(path).is_ok());
        for path in &paths {
            let file = self.roots.root_file(path);
            self.parsed
                .entry(path.clone())
                .or_insert_with(|| Stamped::new(file));
        }
        let mut shown = Vec::new();
        let (mut bytes, mut samples, mut full) = (0, 0, false);
        for (path, file) in &mut self.parsed {
            if full {
                // Its content is not kept either.
                *file = Stamped::new(self.roots.root_file(path));
                continue;
            }
            let modified = modified_seconds(&self.roots.root_file(path)).unwrap_or(0);
            match file.get(read) {
                Err(error) if error.is_missing() => {}
                Err(error) => drop(wrong.insert(with_source(path, &error))),
                Ok((_, Err(error))) => drop(wrong.insert(format!("{path}: {error}"))),
                Ok((size, Ok(_))) if bytes + size > MAX_BYTES => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and the following files: more than {MAX_BYTES} bytes in all files"
                    ));
                }
                Ok((_, Ok(families))) if samples + count(families) > MAX_SAMPLES => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and the following files: more than {MAX_SAMPLES} samples in all files"
                    ));
                }
                // Plus one mtime series per file, and the error series.
                Ok((_, Ok(families))) if samples + count(families) + shown.len() + 2 > self.limit => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and the following files: more than {} series in all files; increase metrics.maxSeriesOf",
                        self.limit
                    ));
                }
                Ok((size, Ok(families))) => {
                    bytes += size;
                    samples += count(families);
                    shown.push(ExportedFile {
                        path,
                        modified,
                        families,
                    });
                }
            }
        }
        let joined = merge(&shown, &mut wrong);
        for (name, family) in &joined {
            if self.written_families.contains(*name) || OWN_METRICS.iter().any(|ours| name.starts_with(ours))
            {
                let path = family.parts[0].0;
                wrong.insert(format!(
                    "{path}: {name} is a metric of the agent, or was written by a collector"
                ));
            } else {
                write(page, name, family, &mut wrong);
            }
        }
        let mut mtimes = page.family(
            "node_textfile_mtime_seconds",
            "Modification times of the text files that were read, in seconds since 1970.",
            MetricType::Gauge,
        );
        for file in &shown {
            mtimes.sample(&[("file", file.path)], file.modified as f64);
        }
        page.gauge(
            "node_textfile_scrape_error",
            "Whether a text file, or a part of one, is missing on this page: 1 or 0.",
            f64::from(u8::from(!wrong.is_empty())),
        );
        for error in wrong.difference(&self.logged) {
            tracing::warn!(
                collector = "textfile",
                error,
                "text file with metrics is left out"
            );
        }
        self.logged = wrong;
        Ok(())
    }
}

impl Textfile {
    /// The files by path in the guest, sorted.
    fn list(&self, wrong: &mut BTreeSet<String>) -> Vec<String> {
        let mut paths = Vec::new();
        for folder in self.folders.find(&self.roots, wrong) {
            match names(&self.roots, &folder, wrong) {
                Ok(names) => {
                    let files = names
                        .into_iter()
                        .filter(|name| name.strip_suffix(".prom").is_some());
                    paths.extend(files.map(|name| in_guest(Path::new(&folder).join(name))));
                }
                Err(error) => drop(wrong.insert(format!("{folder}: {error}"))),
            }
        }
        paths.sort_unstable();
        paths.dedup();
        if paths.len() > MAX_FILES {
            wrong.insert(format!("{}: more than {MAX_FILES} files", paths[MAX_FILES]));
            paths.truncate(MAX_FILES);
        }
        paths
    }
}

fn in_guest(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

fn read(bytes: &[u8]) -> ParsedFile {
    let text = str::from_utf8(bytes).map_err(|_| FileError::NotText);
    let read = text.and_then(|text| Ok(families(text)?));
    (bytes.len(), read)
}

fn count(families: &BTreeMap<String, TextFamily>) -> usize {
    families.values().map(|family| family.samples.len()).sum()
}

fn with_source(path: &str, error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{path}: {source}"),
        None => format!("{path}: {error}"),
    }
}

/// Merges the families over all files. The first file defines a family; a file with another
/// definition does not contribute to it.
fn merge<'parsed>(
    shown: &[ExportedFile<'parsed>],
    wrong: &mut BTreeSet<String>,
) -> BTreeMap<&'parsed str, MergedFamily<'parsed>> {
    let mut joined: BTreeMap<&str, MergedFamily<'parsed>> = BTreeMap::new();
    for file in shown {
        for (name, family) in file.families {
            let all = joined.entry(name).or_insert_with(|| MergedFamily {
                help: None,
                kind: family.kind,
                parts: Vec::new(),
            });
            let help = family.help.as_deref();
            let other_help = help.is_some() && all.help.is_some() && help != all.help;
            if other_help || all.kind != family.kind {
                let first = all.parts.first().map_or("", |part| part.0);
                let what = if other_help { "# HELP" } else { "# TYPE" };
                wrong.insert(format!(
                    "{}: {name} has a different {what} than in {first}",
                    file.path
                ));
                continue;
            }
            all.help = all.help.or(help);
            all.parts.push((file.path, family));
        }
    }
    joined
}

fn write(page: &mut Page, name: &str, joined: &MergedFamily<'_>, wrong: &mut BTreeSet<String>) {
    let sources = || {
        let paths: Vec<_> = joined.parts.iter().map(|part| part.0).collect();
        format!("Metric read from {}", paths.join(", "))
    };
    let help = joined.help.map_or_else(sources, str::to_owned);
    let mut family = page.family(name, &help, joined.kind);
    // Within one file, a series is never repeated.
    let several = joined.parts.len() > 1;
    let mut seen = HashSet::new();
    let mut labels = Vec::new();
    for (path, part) in &joined.parts {
        for sample in &part.samples {
            if several && !seen.insert(sample.series.as_str()) {
                wrong.insert(format!("{path}: a series of {name} is also in another file"));
                continue;
            }
            labels.clear();
            labels.extend(
                sample
                    .labels
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            family.suffixed(sample.suffix, &labels, sample.value);
        }
    }
}
