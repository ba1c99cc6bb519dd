//! The bounded timeline of one VM.

use virtfleet_wire::ids::NodeName;

use super::entry::TimelineEntry;

/// Maximum entries of a VM.
pub const MAX_ENTRIES: usize = 32;
/// Maximum size of a VM's entries in bytes, counted as texts plus [`ENTRY_BYTES`] each.
pub const MAX_TIMELINE_BYTES: usize = 3 * 1024;
/// Size of an entry besides its texts, in bytes.
const ENTRY_BYTES: usize = size_of::<TimelineEntry>();
/// Size of a host's name besides its text, in bytes.
const HOST_BYTES: usize = size_of::<NodeName>();
/// The last entries of each kind that other kinds do not displace, so that findings that flap do
/// not hide the last verdicts.
const KEPT_OF_EACH_KIND: usize = 2;

/// The last entries, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Timeline(Vec<TimelineEntry>);

impl Timeline {
    /// Adds an entry at its time, and drops the oldest ones above the bounds.
    pub(crate) fn add(&mut self, entry: TimelineEntry) {
        let at = self.0.partition_point(|known| known.at_ms <= entry.at_ms);
        if self.0[..at].iter().rev().any(|known| *known == entry) {
            return;
        }
        self.0.insert(at, entry);
        while self.0.len() > MAX_ENTRIES || self.bytes() > MAX_TIMELINE_BYTES {
            let of_kind = |entry: &TimelineEntry| self.0.iter().filter(|one| one.kind == entry.kind).count();
            let displaced = self.0.iter().position(|one| of_kind(one) > KEPT_OF_EACH_KIND);
            self.0.remove(displaced.unwrap_or(0));
        }
        self.0.shrink_to(self.0.len().next_multiple_of(8));
    }

    /// The size by which it is bounded.
    pub(crate) fn bytes(&self) -> usize {
        let size = |entry: &TimelineEntry| {
            let hosts: usize = entry
                .hosts
                .iter()
                .map(|host| HOST_BYTES + host.as_str().len())
                .sum();
            ENTRY_BYTES + entry.text.len() + entry.finding.as_ref().map_or(0, String::len) + hosts
        };
        self.0.iter().map(size).sum()
    }

    /// The entries, oldest first.
    pub(crate) fn entries(&self) -> &[TimelineEntry] {
        &self.0
    }
}
