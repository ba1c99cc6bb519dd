//! State of the folder's files: takes texts of files, returns events and findings. Pure.

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
    scope::{ManifestScope, scope},
    streams::{FolderStreams, is_named, streams},
};
use crate::inventory::read::Problem;

/// Why a file cannot be used. Displayed as `line: field: problem`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InvalidManifest {
    Text(Problem),
    /// It could not be read.
    Unreadable(String),
    /// It is outside of the scopes.
    Misplaced(String),
}

#[derive(Debug, Default)]
struct ManifestFile {
    /// The last valid version.
    good: Manifest,
    /// The problem of its present version.
    broken: Option<InvalidManifest>,
}

/// The last valid version of every file, and the present problems. Paths are relative to the
/// folder.
#[derive(Debug, Default)]
pub struct FolderState {
    files: BTreeMap<PathBuf, ManifestFile>,
    /// The files that have each object, by path; the first one is used.
    holders: BTreeMap<FactKey, Vec<PathBuf>>,
}

impl FolderState {
    /// Sets the text of the file at `path`; `None`: it was deleted. Returns the events, deletions
    /// first.
    ///
    /// An invalid text yields no event: the file's last valid version is used, and
    /// [`FolderState::findings`] names file and line.
    pub fn update(&mut self, path: &Path, text: Option<&str>) -> Vec<InventoryEvent> {
        let Some(text) = text else {
            let good = self.files.remove(path).unwrap_or_default().good;
            return self.update_owners(path, &good, &Manifest::default());
        };
        let read = match scope(path) {
            Ok(scope) => read_at(text, &scope),
            Err(reason) => Err(InvalidManifest::Misplaced(reason)),
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
                self.update_owners(path, &old, &new)
            }
        }
    }

    /// Marks the file at `path` as existing but unreadable; its last valid version is used.
    pub fn unreadable(&mut self, path: &Path, reason: String) {
        self.files.entry(path.to_owned()).or_default().broken = Some(InvalidManifest::Unreadable(reason));
    }

    /// All known files, valid or not.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// All facts in use.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.holders
            .keys()
            .filter_map(|key| self.in_use(key).map(|(_, fact)| fact))
    }

    /// `spec.mla` of each user cluster that has one, with the Secrets of its folder.
    pub(super) fn streams(&self) -> FolderStreams {
        let specs = self.holders.iter().filter_map(|(key, holders)| {
            let FactKey::UserCluster(cluster) = key else {
                return None;
            };
            let mla = self.files.get(holders.first()?)?.good.mla.as_ref()?;
            Some((cluster, mla))
        });
        let secrets = self.files.iter().filter_map(|(path, file)| match scope(path) {
            Ok(ManifestScope::Cluster(cluster)) => Some((cluster, &file.good.secrets)),
            _ => None,
        });
        streams(specs, secrets)
    }

    fn in_use(&self, key: &FactKey) -> Option<(&Path, &Fact)> {
        let path = self.holders.get(key)?.first()?;
        let (_, fact) = self.files.get(path)?.good.facts.get(key)?;
        Some((path, fact))
    }

    /// Moves `path` from the objects of `old` to those of `new`; `files` already has the new
    /// manifest.
    fn update_owners(&mut self, path: &Path, old: &Manifest, new: &Manifest) -> Vec<InventoryEvent> {
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
            let Some((in_use, fact)) = self.in_use(key) else {
                continue;
            };
            let before = old.facts.get(key).map(|(_, fact)| fact);
            let unchanged = if in_use == path {
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

    /// Findings about the files, by path.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let streams = self.streams();
        for (path, file) in &self.files {
            let name = path.display().to_string();
            found.extend(file.broken.as_ref().map(|broken| broken_finding(&name, broken)));
            let mut ignored = file.good.ignored.clone();
            let secrets = file.good.secrets.iter();
            let unused = secrets.filter(|(_, secret)| !is_named(&streams, path, secret));
            ignored.extend(unused.map(|(line, _)| (*line, "v1 Secret".to_owned())));
            ignored.sort();
            if !ignored.is_empty() {
                found.push(ignored_finding(&name, &ignored));
            }
            found.extend(self.duplicates(path, &name, file));
        }
        found
    }

    fn duplicates(&self, path: &Path, name: &str, file: &ManifestFile) -> Option<Finding> {
        let mut doubles = file.good.facts.iter().filter_map(|(key, (line, _))| {
            let first = self.holders.get(key)?.first().filter(|first| *first != path)?;
            Some(format!(
                "{} (line {line}; used: {})",
                describe(key),
                first.display()
            ))
        });
        let named: Vec<_> = doubles.by_ref().take(MAX_NAMED).collect();
        let more = doubles.count();
        (!named.is_empty()).then(|| {
            let objects = listed(&named, more);
            let message = format!("{name}: objects that are also in another file: {objects}");
            Finding::new(
                findings::MANIFEST_DUPLICATE_OBJECT,
                Severity::Warning,
                ("Manifest", name),
                "DuplicateObject",
                message,
            )
            .with("objects", objects)
            .remedy("delete the object from one of the files; the first file by path is used")
        })
    }
}

/// Maximum objects that a finding names.
const MAX_NAMED: usize = 5;

fn listed(named: &[String], more: usize) -> String {
    let named = named.join(", ");
    if more == 0 {
        named
    } else {
        format!("{named} and {more} more")
    }
}

fn read_at(text: &str, scope: &ManifestScope) -> Result<Manifest, InvalidManifest> {
    manifest::read(text, scope).map_err(InvalidManifest::Text)
}

fn broken_finding(name: &str, broken: &InvalidManifest) -> Finding {
    let found = broken_manifest(name, broken);
    // A user cluster's files leave a gap in that cluster only: see `findings::gap`.
    match scope(name.as_ref()) {
        Ok(ManifestScope::Cluster(cluster)) => found.with("cluster", cluster),
        _ => found,
    }
}

fn broken_manifest(name: &str, broken: &InvalidManifest) -> Finding {
    let subject = ("Manifest", name);
    match broken {
        InvalidManifest::Text(problem) => {
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
            .remedy("fix the file; until then the last valid version is used")
        }
        InvalidManifest::Unreadable(reason) => {
            let message = format!("{name}: {reason}");
            Finding::new(
                findings::MANIFEST_BROKEN,
                Severity::Warning,
                subject,
                "ManifestUnreadable",
                message,
            )
            .with("problem", reason)
            .remedy("make the file readable for the collector; until then the last valid version is used")
        }
        InvalidManifest::Misplaced(reason) => {
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

fn ignored_finding(name: &str, all: &[(usize, String)]) -> Finding {
    let named: Vec<_> = all
        .iter()
        .take(MAX_NAMED)
        .map(|(line, kind)| format!("{kind} on line {line}"))
        .collect();
    let objects = listed(&named, all.len() - named.len());
    let line = all.first().map_or(1, |(line, _)| *line);
    let message = format!("{name}:{line}: objects of unused kinds: {objects}");
    Finding::new(findings::MANIFEST_KIND_IGNORED, Severity::Info, ("Manifest", name), "KindIgnored", message)
        .with("objects", objects)
        .remedy("infra/ may have VirtualMachineInstance, VirtualMachine, VirtualMachineInstanceMigration, Namespace and Node; clusters/<name>/ UserCluster, Node and the Secrets that spec.mla names; policies/ LabelPropagation")
}
