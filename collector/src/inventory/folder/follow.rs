//! One step of following the folder: look, read what has changed and settled, and say what follows. Blocking.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use virtfleet_collector_core::{facts::InventoryEvent, findings};
use virtfleet_wire::finding::{Finding, Severity};

use super::{
    manifest::{MAX_MANIFEST_BYTES, too_large},
    reader::FolderState,
    scan::{self, Look, Stamp},
};

/// What a look says of a file: its stamp, or why it has none.
type Seen = Result<Stamp, String>;

/// The folder as it is followed.
pub(super) struct Follower {
    folder: PathBuf,
    /// None when the kernel does not tell us of changes; then only looks find them.
    watcher: Option<RecommendedWatcher>,
    state: FolderState,
    /// The last look.
    seen: BTreeMap<PathBuf, Seen>,
    /// The stamp, or the error, at which each file was last taken.
    taken: BTreeMap<PathBuf, Seen>,
    watched: BTreeSet<PathBuf>,
}

/// What one step came to.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) events: Vec<InventoryEvent>,
    pub(super) findings: Vec<Finding>,
    /// Something is changing: look again soon.
    pub(super) settling: bool,
    /// The folder itself could not be listed.
    pub(super) lost: bool,
}

impl Follower {
    pub(super) fn new(folder: PathBuf, watcher: Option<RecommendedWatcher>) -> Self {
        Self {
            folder,
            watcher,
            state: FolderState::default(),
            seen: BTreeMap::new(),
            taken: BTreeMap::new(),
            watched: BTreeSet::new(),
        }
    }

    /// Whether the kernel tells of changes.
    pub(super) fn is_told(&self) -> bool {
        self.watcher.is_some()
    }

    /// Looks, and takes every file that differs from what was taken and is the same as at the last look. With `final_look`
    /// a file that does not settle is named as unreadable instead of being waited for.
    pub(super) fn step(&mut self, final_look: bool) -> Step {
        let look = match scan::look(&self.folder) {
            Ok(look) => look,
            Err(error) => {
                self.watched.clear();
                let mut findings = self.state.findings();
                findings.push(lost_finding(&self.folder, &error.to_string()));
                return Step {
                    findings,
                    lost: true,
                    ..Step::default()
                };
            }
        };
        let mut step = Step {
            settling: self.keep_watching(&look),
            ..Step::default()
        };
        // What is there first, what is gone then: an object that moves to another file is not absent in between.
        for (path, seen) in &look.files {
            if self.taken.get(path) == Some(seen) {
                continue;
            }
            if self.seen.get(path) == Some(seen) {
                step.settling |= !self.take(path, seen, &mut step.events);
            } else if final_look {
                self.state.unreadable(path, "it is being written to".to_owned());
            } else {
                step.settling = true;
            }
        }
        let kept = |path: &Path| look.unreadable.keys().any(|folder| path.starts_with(folder));
        let gone = self.state.paths().chain(self.seen.keys());
        let gone: BTreeSet<PathBuf> = gone
            .filter(|path| !look.files.contains_key(*path) && !kept(path))
            .cloned()
            .collect();
        for path in gone {
            // Editors that write by renaming leave a moment without the file: believe the second look.
            if self.seen.contains_key(&path) {
                step.settling = true;
            } else {
                self.taken.remove(&path);
                step.events.extend(self.state.update(&path, None));
            }
        }
        step.findings = self.state.findings();
        for (path, reason) in &look.unreadable {
            step.findings.push(folder_finding(path, reason));
        }
        self.seen = look.files;
        step
    }

    /// Takes a settled file. Returns false when it changed while it was read.
    fn take(&mut self, path: &Path, seen: &Seen, events: &mut Vec<InventoryEvent>) -> bool {
        let read = match seen {
            Ok(stamp) => read(&self.folder.join(path), *stamp),
            Err(reason) => Err(reason.clone()),
        };
        match read {
            Ok(None) => return false,
            Ok(Some(text)) => {
                events.extend(self.state.update(path, Some(&text)));
                self.taken.insert(path.to_owned(), seen.clone());
            }
            // Not taken: the next look tries again, as what ails a disk or a mount may pass without a new stamp.
            Err(reason) => self.state.unreadable(path, reason),
        }
        true
    }

    /// Watches every folder that there is now. Returns whether one of them is new: what came into it before it was watched
    /// is found by another look.
    fn keep_watching(&mut self, look: &Look) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        let below = look.folders.iter().map(|folder| self.folder.join(folder));
        let present: BTreeSet<PathBuf> = below.chain(look.links.iter().cloned()).collect();
        for gone in self.watched.difference(&present) {
            // The kernel has mostly dropped this watch with the folder.
            drop(watcher.unwatch(gone));
        }
        let mut new = false;
        let mut accepted = BTreeSet::new();
        for folder in present {
            // Again each time: a folder that was made anew under its name is another one to the kernel.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    new |= !self.watched.contains(&folder);
                    accepted.insert(folder);
                }
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "changes in this folder are found late: cannot watch it");
                }
            }
        }
        self.watched = accepted;
        new
    }
}

/// The text of a file that has this stamp; none when it has changed.
fn read(path: &Path, stamp: Stamp) -> Result<Option<String>, String> {
    if stamp.size > MAX_MANIFEST_BYTES as u64 {
        return Err(too_large(stamp.size).message);
    }
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let limit = MAX_MANIFEST_BYTES as u64 + 1;
    file.by_ref()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let after = file.metadata().map_err(|error| error.to_string())?;
    if scan::stamp(&after) != stamp {
        return Ok(None);
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + String::from_utf8_lossy(&error.as_bytes()[..good])
            .matches('\n')
            .count();
        format!("line {line}: not UTF-8 text")
    })
}

fn lost_finding(folder: &Path, reason: &str) -> Finding {
    let name = folder.display().to_string();
    let message = format!("the manifest folder {name} cannot be read: {reason}");
    Finding::new(
        findings::INVENTORY_FOLDER_UNREADABLE,
        Severity::Critical,
        ("Folder", &name),
        "FolderUnreadable",
        message,
    )
    .with("problem", reason)
    .remedy("bring the folder back; until then its last good state counts")
}

fn folder_finding(path: &Path, reason: &str) -> Finding {
    let name = path.display().to_string();
    let message = format!("the folder {name} below the manifest folder cannot be read: {reason}");
    Finding::new(
        findings::INVENTORY_FOLDER_UNREADABLE,
        Severity::Warning,
        ("Folder", &name),
        "FolderUnreadable",
        message,
    )
    .with("problem", reason)
    .remedy("make the folder readable for the collector; until then what was read from it counts")
}
