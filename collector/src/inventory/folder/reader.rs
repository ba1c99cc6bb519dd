//! The state of the folder as far as it is read: files in, events and findings out. Pure.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use virtfleet_collector_core::{
    facts::{Fact, FactKey, InventoryEvent},
    findings,
};
use virtfleet_wire::finding::{Finding, Severity};

use super::{
    manifest::{self, Manifest, describe},
    place::{Place, place},
};
use crate::inventory::read::Problem;

/// What is wrong with a file that could not be used. Prints as `line: field: what`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Broken {
    /// Its text.
    Text(Problem),
    /// It could not be read at all.
    Unreadable(String),
    /// It lies where nothing is read from.
    Misplaced(String),
}

#[derive(Debug, Default)]
struct File {
    /// The last good state.
    good: Manifest,
    /// What is wrong with its present state.
    broken: Option<Broken>,
}

/// Every file's last good state, and what is wrong now. Paths are relative to the folder.
#[derive(Debug, Default)]
pub struct FolderState {
    files: BTreeMap<PathBuf, File>,
    /// Who holds each object, by path; the first is the one that counts.
    holders: BTreeMap<FactKey, Vec<PathBuf>>,
}

impl FolderState {
    /// The file at `path` has this text now, or (`None`) is gone. Returns what follows, deletions first.
    ///
    /// A broken text yields no event: the file's last good state stays, and [`FolderState::findings`] names file and line.
    pub fn update(&mut self, path: &Path, text: Option<&str>) -> Vec<InventoryEvent> {
        let Some(text) = text else {
            let good = self.files.remove(path).unwrap_or_default().good;
            return self.turn(path, &good, &Manifest::default());
        };
        let read = match place(path) {
            Ok(place) => read_at(text, &place),
            Err(reason) => Err(Broken::Misplaced(reason)),
        };
        let file = self.files.entry(path.to_owned()).or_default();
        match read {
            Err(broken) => {
                file.broken = Some(broken);
                Vec::new()
            }
            Ok(new) => {
                file.broken = None;
                let old = std::mem::replace(&mut file.good, new.clone());
                self.turn(path, &old, &new)
            }
        }
    }

    /// The file at `path` is there and cannot be read; its last good state stays.
    pub fn unreadable(&mut self, path: &Path, reason: String) {
        self.files.entry(path.to_owned()).or_default().broken = Some(Broken::Unreadable(reason));
    }

    /// Every file that is known, good or broken.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// Every fact that counts.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.holders
            .keys()
            .filter_map(|key| self.winner(key).map(|(_, fact)| fact))
    }

    fn winner(&self, key: &FactKey) -> Option<(&Path, &Fact)> {
        let path = self.holders.get(key)?.first()?;
        let (_, fact) = self.files.get(path)?.good.facts.get(key)?;
        Some((path, fact))
    }

    /// Takes `path` from the objects of `old` to those of `new`, whose manifest `files` holds already.
    fn turn(&mut self, path: &Path, old: &Manifest, new: &Manifest) -> Vec<InventoryEvent> {
        let mut deleted = Vec::new();
        let mut applied = Vec::new();
        let gone = old.facts.keys().filter(|key| !new.facts.contains_key(key));
        for key in gone.chain(new.facts.keys()) {
            let holders = self.holders.entry(key.clone()).or_default();
            let was_first = holders.first().is_some_and(|first| first == path);
            let others_first = holders.first().is_some_and(|first| first != path);
            match (
                holders.binary_search_by(|holder| holder.as_path().cmp(path)),
                new.facts.contains_key(key),
            ) {
                (Err(at), true) => holders.insert(at, path.to_owned()),
                (Ok(at), false) => {
                    holders.remove(at);
                }
                _ => {}
            }
            if holders.is_empty() {
                self.holders.remove(key);
                if was_first {
                    deleted.push(InventoryEvent::Delete(key.clone()));
                }
                continue;
            }
            let Some((winner, fact)) = self.winner(key) else {
                continue;
            };
            let before = old.facts.get(key).map(|(_, fact)| fact);
            let unchanged = if winner == path {
                was_first && before == Some(fact)
            } else {
                others_first
            };
            if !unchanged {
                applied.push(InventoryEvent::Apply(fact.clone()));
            }
        }
        deleted.extend(applied);
        deleted
    }

    /// What is wrong with the files, by path.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (path, file) in &self.files {
            let name = path.display().to_string();
            found.extend(file.broken.as_ref().map(|broken| broken_finding(&name, broken)));
            if !file.good.ignored.is_empty() {
                found.push(ignored_finding(&name, &file.good));
            }
            found.extend(self.duplicates(path, &name, file));
        }
        found
    }

    fn duplicates(&self, path: &Path, name: &str, file: &File) -> Option<Finding> {
        let mut doubles = file.good.facts.iter().filter_map(|(key, (line, _))| {
            let first = self.holders.get(key)?.first().filter(|first| *first != path)?;
            Some(format!(
                "{} (line {line}; counts: {})",
                describe(key),
                first.display()
            ))
        });
        let named: Vec<_> = doubles.by_ref().take(MOST_NAMED).collect();
        let more = doubles.count();
        (!named.is_empty()).then(|| {
            let objects = listed(&named, more);
            let message = format!("{name}: holds objects that another file holds, too: {objects}");
            Finding::new(
                findings::MANIFEST_DUPLICATE_OBJECT,
                Severity::Warning,
                ("Manifest", name),
                "DuplicateObject",
                message,
            )
            .with("objects", objects)
            .remedy("delete the object from one of the files; the first by path counts")
        })
    }
}

/// How many objects a finding names.
const MOST_NAMED: usize = 5;

fn listed(named: &[String], more: usize) -> String {
    let named = named.join(", ");
    if more == 0 {
        named
    } else {
        format!("{named} and {more} more")
    }
}

fn read_at(text: &str, place: &Place) -> Result<Manifest, Broken> {
    manifest::read(text, place).map_err(Broken::Text)
}

fn broken_finding(name: &str, broken: &Broken) -> Finding {
    let found = broken_manifest(name, broken);
    // A user cluster's files leave a gap in that cluster only: see `findings::gap`.
    match place(name.as_ref()) {
        Ok(Place::Cluster(cluster)) => found.with("cluster", cluster),
        _ => found,
    }
}

fn broken_manifest(name: &str, broken: &Broken) -> Finding {
    let subject = ("Manifest", name);
    match broken {
        Broken::Text(problem) => {
            let message = format!("{name}:{problem}");
            Finding::new(
                findings::MANIFEST_BROKEN,
                Severity::Warning,
                subject,
                "ManifestBroken",
                message,
            )
            .with("line", problem.line)
            .with("problem", &problem.message)
            .remedy("mend the file; until then its last good state counts")
        }
        Broken::Unreadable(reason) => {
            let message = format!("{name}: {reason}");
            Finding::new(
                findings::MANIFEST_BROKEN,
                Severity::Warning,
                subject,
                "ManifestUnreadable",
                message,
            )
            .with("problem", reason)
            .remedy("make the file readable for the collector; until then its last good state counts")
        }
        Broken::Misplaced(reason) => {
            let message = format!("{name}: not read: {reason}");
            Finding::new(
                findings::MANIFEST_MISPLACED,
                Severity::Warning,
                subject,
                "ManifestMisplaced",
                message,
            )
            .remedy("move the file to infra/, clusters/<name>/ or policies/")
        }
    }
}

fn ignored_finding(name: &str, manifest: &Manifest) -> Finding {
    let all = &manifest.ignored;
    let named: Vec<_> = all
        .iter()
        .take(MOST_NAMED)
        .map(|(line, kind)| format!("{kind} on line {line}"))
        .collect();
    let objects = listed(&named, all.len() - named.len());
    let line = all.first().map_or(1, |(line, _)| *line);
    let message = format!("{name}:{line}: objects that are not used here: {objects}");
    Finding::new(findings::MANIFEST_KIND_IGNORED, Severity::Info, ("Manifest", name), "KindIgnored", message)
        .with("objects", objects)
        .remedy("infra/ takes VirtualMachineInstance, VirtualMachine, VirtualMachineInstanceMigration and Node; clusters/<name>/ takes UserCluster and Node; policies/ takes LabelPropagation")
}
