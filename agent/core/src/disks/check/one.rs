//! The check of one disk's settings.

use std::collections::BTreeSet;

use virtfleet_wire::settings::DiskSettings;

use super::super::wanted::WantedProblem;

/// Problem with a key of a disk; an empty key means the disk itself.
pub(super) fn problem(index: usize, disk: &DiskSettings, key: &str, message: String) -> WantedProblem {
    let plain = disk
        .name
        .chars()
        .all(|c| c.is_alphanumeric() || "-_/:".contains(c));
    let item = match disk.name.as_str() {
        "" => index.to_string(),
        name if plain => name.to_owned(),
        name => format!("{name:?}"),
    };
    let dot = if key.is_empty() { "" } else { "." };
    WantedProblem {
        disk: disk.name.clone(),
        required: disk.required,
        path: format!("disks[{item}]{dot}{key}"),
        message,
    }
}

/// Check of one disk's settings.
pub(super) struct One<'a> {
    pub(super) index: usize,
    pub(super) disk: &'a DiskSettings,
    pub(super) problems: Vec<WantedProblem>,
}

impl<'a> One<'a> {
    pub(super) fn new(index: usize, disk: &'a DiskSettings) -> Self {
        Self {
            index,
            disk,
            problems: Vec::new(),
        }
    }

    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        self.problems
            .push(problem(self.index, self.disk, key, message.into()));
    }
}

pub(super) fn bad_names(problems: &[WantedProblem]) -> BTreeSet<String> {
    problems.iter().map(|problem| problem.disk.clone()).collect()
}
