//! One step of following the folder: scan it, read files that changed and are stable, and return
//! the events. Blocking.

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
    scan::{self, FolderScan, Stamp},
    streams::FolderStreams,
};

/// Result of a scan for a file: its stamp, or why it has none.
type ScannedFile = Result<Stamp, String>;

pub(super) struct FolderFollower {
    folder: PathBuf,
    /// None if inotify is not available; then only rescans find changes.
    watcher: Option<RecommendedWatcher>,
    state: FolderState,
    /// The last scan.
    seen: BTreeMap<PathBuf, ScannedFile>,
    /// The stamp, or the error, with which each file was last read.
    taken: BTreeMap<PathBuf, ScannedFile>,
    watched: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct FollowStep {
    pub(super) events: Vec<InventoryEvent>,
    pub(super) findings: Vec<Finding>,
    /// The streams of all user clusters; none if the folder could not be listed.
    pub(super) streams: Option<FolderStreams>,
    /// A file is changing: scan again soon.
    pub(super) settling: bool,
    /// The folder itself could not be listed.
    pub(super) folder_missing: bool,
}

impl FolderFollower {
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

    /// Whether inotify reports changes.
    pub(super) fn has_inotify(&self) -> bool {
        self.watcher.is_some()
    }

    /// Scans, and reads every file that differs from its last read and is the same as in the last
    /// scan. With `final_scan` a file that keeps changing is reported as unreadable.
    pub(super) fn step(&mut self, final_scan: bool) -> FollowStep {
        let scan_result = match scan::scan(&self.folder) {
            Ok(scan_result) => scan_result,
            Err(error) => {
                self.watched.clear();
                let mut findings = self.state.findings();
                findings.push(lost_finding(&self.folder, &error.to_string()));
                return FollowStep {
                    findings,
                    folder_missing: true,
                    ..FollowStep::default()
                };
            }
        };
        let mut step = FollowStep {
            settling: self.update_watches(&scan_result),
            ..FollowStep::default()
        };
        // Apply before delete: an object that moves to another file must not be absent in between.
        for (path, seen) in &scan_result.files {
            if self.taken.get(path) == Some(seen) {
                continue;
            }
            if self.seen.get(path) == Some(seen) {
                step.settling |= !self.take(path, seen, &mut step.events);
            } else if final_scan {
                self.state.unreadable(path, "it keeps changing".to_owned());
            } else {
                step.settling = true;
            }
        }
        let kept = |path: &Path| {
            scan_result
                .unreadable
                .keys()
                .any(|folder| path.starts_with(folder))
        };
        let gone = self.state.paths().chain(self.seen.keys());
        let gone: BTreeSet<PathBuf> = gone
            .filter(|path| !scan_result.files.contains_key(*path) && !kept(path))
            .cloned()
            .collect();
        for path in gone {
            // Editors that write by renaming leave a moment without the file: only the second scan
            // counts.
            if self.seen.contains_key(&path) {
                step.settling = true;
            } else {
                self.taken.remove(&path);
                step.events.extend(self.state.update(&path, None));
            }
        }
        step.findings = self.state.findings();
        step.streams = Some(self.state.streams());
        for (path, reason) in &scan_result.unreadable {
            step.findings.push(folder_finding(path, reason));
        }
        self.seen = scan_result.files;
        step
    }

    /// Reads a stable file. Returns false if it changed while it was read.
    fn take(&mut self, path: &Path, seen: &ScannedFile, events: &mut Vec<InventoryEvent>) -> bool {
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
            // Not recorded as read: the next scan retries, because an error of a disk or mount may
            // end without a new stamp.
            Err(reason) => self.state.unreadable(path, reason),
        }
        true
    }

    /// Watches all present folders. Returns whether one of them is new: another scan finds files
    /// that were created before it was watched.
    /// is found by another scan.
    fn update_watches(&mut self, scan_result: &FolderScan) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        let below = scan_result.folders.iter().map(|folder| self.folder.join(folder));
        let present: BTreeSet<PathBuf> = below.chain(scan_result.links.iter().cloned()).collect();
        for gone in self.watched.difference(&present) {
            // The kernel usually has removed this watch with the folder.
            drop(watcher.unwatch(gone));
        }
        let mut new = false;
        let mut accepted = BTreeSet::new();
        for folder in present {
            // Repeated each time: a recreated folder of the same name is another one for the
            // kernel.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    new |= !self.watched.contains(&folder);
                    accepted.insert(folder);
                }
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "cannot watch this folder: changes are found late");
                }
            }
        }
        self.watched = accepted;
        new
    }
}

/// The text of a file with this stamp; none if it changed.
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
    .remedy("restore the folder; until then its last valid content is used")
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
    .remedy("make the folder readable for the collector; until then its last valid content is used")
}
