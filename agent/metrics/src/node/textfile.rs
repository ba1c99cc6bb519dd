//! `textfile`: metrics that others leave in files, `*.prom` in the folders that the settings name.
//!
//! A file is read when it was replaced, and is shown whole or not at all, so that no broken line harms another file. The
//! page holds each family once: families of the same name are joined over all files, and a family that a collector has
//! written already is the collector's. Whatever is left out sets `node_textfile_scrape_error` and is logged.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use virtfleet_agent_core::textfile::{SAMPLES, TextFamily, TextfileError, families};
use virtfleet_agent_host::{Roots, Stamped, modified_seconds};
use virtfleet_wire::exposition::{MetricType, Page};

use super::textfile_folders::{Folders, names};
use crate::{CollectError, Collector, Context, RegistryError, registry};

/// Files that are shown at the most, and bytes of them. A single file may hold 1 MiB.
const FILES: usize = 1000;
const BYTES: usize = 4 << 20;
/// What the agent says of itself, after all collectors or at the end of this one.
const OURS: [&str; 8] = [
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
    /// Series that may be written. What is beyond would be cut off at the end of the page, within a file.
    limit: usize,
    /// What was read, by the file's path in the guest.
    held: BTreeMap<String, Stamped<Held>>,
    /// The families that other collectors have written in this scrape.
    there: HashSet<String>,
    /// What was wrong at the last scrape, so that it is logged once.
    told: BTreeSet<String>,
}

/// A file's size in bytes, and what it holds.
type Held = (usize, Result<BTreeMap<String, TextFamily>, FileError>);

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("not UTF-8 text")]
    NotText,
    #[error(transparent)]
    Text(#[from] TextfileError),
}

/// A file that is shown.
struct Shown<'held> {
    path: &'held str,
    modified: i64,
    families: &'held BTreeMap<String, TextFamily>,
}

/// A family over all files.
struct Joined<'held> {
    help: Option<&'held str>,
    kind: MetricType,
    parts: Vec<(&'held str, &'held TextFamily)>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Textfile {
        roots: context.roots.clone(),
        folders: Folders::new(&context.settings.textfile.directories)?,
        limit: registry::limit(&context.settings, "textfile"),
        held: BTreeMap::new(),
        there: HashSet::new(),
        told: BTreeSet::new(),
    }))
}

impl Collector for Textfile {
    fn behind(&mut self, page: &Page) {
        self.there.clear();
        if !self.folders.is_empty() {
            let text = str::from_utf8(page.as_bytes()).unwrap_or_default();
            let names = text
                .lines()
                .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0));
            self.there.extend(names.map(str::to_owned));
        }
    }

    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut wrong = BTreeSet::new();
        let paths = self.list(&mut wrong);
        self.held.retain(|path, _| paths.binary_search(path).is_ok());
        for path in &paths {
            let file = self.roots.root_file(path);
            self.held
                .entry(path.clone())
                .or_insert_with(|| Stamped::new(file));
        }
        let mut shown = Vec::new();
        let (mut bytes, mut samples, mut full) = (0, 0, false);
        for (path, file) in &mut self.held {
            if full {
                // Nothing of it is kept, either.
                *file = Stamped::new(self.roots.root_file(path));
                continue;
            }
            let modified = modified_seconds(&self.roots.root_file(path)).unwrap_or(0);
            match file.get(read) {
                Err(error) if error.is_missing() => {}
                Err(error) => drop(wrong.insert(with_source(path, &error))),
                Ok((_, Err(error))) => drop(wrong.insert(format!("{path}: {error}"))),
                Ok((size, Ok(_))) if bytes + size > BYTES => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and what follows: more than {BYTES} bytes in all files"
                    ));
                }
                Ok((_, Ok(families))) if samples + count(families) > SAMPLES => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and what follows: more than {SAMPLES} samples in all files"
                    ));
                }
                // With a time for each file, and the error.
                Ok((_, Ok(families))) if samples + count(families) + shown.len() + 2 > self.limit => {
                    full = true;
                    wrong.insert(format!(
                        "{path} and what follows: more than {} series in all files; metrics.maxSeriesOf allows more",
                        self.limit
                    ));
                }
                Ok((size, Ok(families))) => {
                    bytes += size;
                    samples += count(families);
                    shown.push(Shown {
                        path,
                        modified,
                        families,
                    });
                }
            }
        }
        let joined = join(&shown, &mut wrong);
        for (name, family) in &joined {
            if self.there.contains(*name) || OURS.iter().any(|ours| name.starts_with(ours)) {
                let path = family.parts[0].0;
                wrong.insert(format!(
                    "{path}: {name} is a name of the agent's own, or of a collector that has written it"
                ));
            } else {
                write(page, name, family, &mut wrong);
            }
        }
        let mut mtimes = page.family(
            "node_textfile_mtime_seconds",
            "When text files that were read were last changed, in seconds since 1970.",
            MetricType::Gauge,
        );
        for file in &shown {
            mtimes.sample(&[("file", file.path)], file.modified as f64);
        }
        page.gauge(
            "node_textfile_scrape_error",
            "Whether a text file, or a part of one, is not on this page: 1 or 0.",
            f64::from(u8::from(!wrong.is_empty())),
        );
        for error in wrong.difference(&self.told) {
            tracing::warn!(collector = "textfile", error, "text file of metrics is left out");
        }
        self.told = wrong;
        Ok(())
    }
}

impl Textfile {
    /// The files by their paths in the guest, sorted.
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
        if paths.len() > FILES {
            wrong.insert(format!("{}: more than {FILES} files", paths[FILES]));
            paths.truncate(FILES);
        }
        paths
    }
}

fn in_guest(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

fn read(bytes: &[u8]) -> Held {
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

/// The families over all files. The first file says what a family is; a file that says otherwise is left out of it.
fn join<'held>(shown: &[Shown<'held>], wrong: &mut BTreeSet<String>) -> BTreeMap<&'held str, Joined<'held>> {
    let mut joined: BTreeMap<&str, Joined<'held>> = BTreeMap::new();
    for file in shown {
        for (name, family) in file.families {
            let all = joined.entry(name).or_insert_with(|| Joined {
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
                    "{}: {name} has another {what} than in {first}",
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

fn write(page: &mut Page, name: &str, joined: &Joined<'_>, wrong: &mut BTreeSet<String>) {
    let sources = || {
        let paths: Vec<_> = joined.parts.iter().map(|part| part.0).collect();
        format!("Metric read from {}", paths.join(", "))
    };
    let help = joined.help.map_or_else(sources, str::to_owned);
    let mut family = page.family(name, &help, joined.kind);
    // In one file, no series comes twice.
    let several = joined.parts.len() > 1;
    let mut seen = HashSet::new();
    let mut labels = Vec::new();
    for (path, part) in &joined.parts {
        for sample in &part.samples {
            if several && !seen.insert(sample.series.as_str()) {
                wrong.insert(format!("{path}: a series of {name} is in another file, too"));
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
