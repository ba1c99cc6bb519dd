//! Metadata of the families on guests' pages, each kept once for all VMs and tenants: most VMs
//! export the same ones. Also counts the memory of all pages' series. Each stream has its share of
//! it: what its pages need, and metadata that they have first.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use hashbrown::HashTable;
use virtfleet_wire::exposition::MetricType;

use super::memory::{CountedMemory, MemoryPool, MemoryShare};

/// Maximum memory of all metadata and all pages' series, in bytes.
pub const MAX_TABLE_BYTES: usize = 512 << 20;
/// New entries until the first sweep.
const MIN_SWEEP_ENTRIES: usize = 4096;
/// Estimated memory of an entry beside its texts, in bytes.
const ENTRY_BYTES: usize = 112;

/// Type and help text of a family.
#[derive(Debug)]
pub struct MetricMeta {
    /// Name of the family. Empty if the page has no metadata for the series.
    pub(super) family: Box<str>,
    pub(super) kind: Option<MetricTypeCode>,
    pub(super) help: Box<str>,
    /// Counts the memory of the entry, for the stream that had it first.
    _memory: Option<CountedMemory>,
}

/// A [`MetricType`] that can be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MetricTypeCode(u8);

impl From<MetricType> for MetricTypeCode {
    fn from(kind: MetricType) -> Self {
        Self(match kind {
            MetricType::Counter => 0,
            MetricType::Gauge => 1,
            MetricType::Histogram => 2,
            MetricType::Summary => 3,
            MetricType::Untyped => 4,
        })
    }
}

impl MetricTypeCode {
    /// Number of the type, from 1; 0: none.
    pub(super) fn to_number(code: Option<Self>) -> u64 {
        code.map_or(0, |code| u64::from(code.0) + 1)
    }

    /// The type of a number of [`MetricTypeCode::to_number`].
    pub(super) fn from_number(number: u64) -> Option<MetricType> {
        Some(match number {
            1 => MetricType::Counter,
            2 => MetricType::Gauge,
            3 => MetricType::Histogram,
            4 => MetricType::Summary,
            5 => MetricType::Untyped,
            _ => return None,
        })
    }
}

impl MetricMeta {
    /// The type, if the page has one.
    pub fn kind(&self) -> Option<MetricType> {
        MetricTypeCode::from_number(MetricTypeCode::to_number(self.kind))
    }

    /// The help text; may be empty.
    pub fn help(&self) -> &str {
        &self.help
    }
}

/// The table of all families. Share it as `Arc<FamilyTable>`.
#[derive(Debug)]
pub struct FamilyTable {
    metas: Mutex<Metas>,
    none: Arc<MetricMeta>,
    /// Memory of all metadata and of the series of all pages.
    memory: Arc<MemoryPool>,
}

#[derive(Debug, Default)]
struct Metas {
    hasher: RandomState,
    /// Each entry with its hash. Only pages keep it alive: one that no page uses needs no sweep to
    /// release its memory.
    all: HashTable<(u64, Weak<MetricMeta>)>,
    /// Entries at which the next sweep starts.
    sweep_at: usize,
}

/// The table as one stream uses it.
#[derive(Debug)]
pub struct TableShare {
    table: Arc<FamilyTable>,
    memory: MemoryShare,
}

impl Default for FamilyTable {
    fn default() -> Self {
        Self::new(MAX_TABLE_BYTES)
    }
}

impl FamilyTable {
    /// An empty table of at most `max_bytes`, with the series of all pages.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            metas: Mutex::new(Metas {
                sweep_at: MIN_SWEEP_ENTRIES,
                ..Metas::default()
            }),
            none: Arc::new(MetricMeta {
                family: "".into(),
                kind: None,
                help: "".into(),
                _memory: None,
            }),
            memory: MemoryPool::new(max_bytes),
        }
    }

    /// The table for one more stream.
    pub fn share(self: &Arc<Self>) -> Arc<TableShare> {
        Arc::new(TableShare {
            table: Arc::clone(self),
            memory: self.memory.share(),
        })
    }

    /// Memory of all metadata and all pages' series, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.used()
    }

    fn lock(&self) -> MutexGuard<'_, Metas> {
        self.metas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The only share of a table of its own.
impl Default for TableShare {
    fn default() -> Self {
        let table = Arc::new(FamilyTable::default());
        let memory = table.memory.share();
        Self { table, memory }
    }
}

impl TableShare {
    /// The metadata of a series without any.
    pub(super) fn no_meta(&self) -> &Arc<MetricMeta> {
        &self.table.none
    }

    pub(super) fn meta(&self, family: &str, kind: Option<MetricType>, help: &str) -> Arc<MetricMeta> {
        let kind = kind.map(MetricTypeCode::from);
        let metas = &mut *self.table.lock();
        let hash = metas.hasher.hash_one((family, kind, help));
        let is_same =
            |known: &Arc<MetricMeta>| *known.family == *family && known.kind == kind && *known.help == *help;
        let mut found = None;
        let is_known = |(_, known): &(u64, Weak<MetricMeta>)| {
            found = known.upgrade().filter(&is_same);
            found.is_some()
        };
        if metas.all.find(hash, is_known).is_some()
            && let Some(known) = found
        {
            return known;
        }
        if metas.all.len() >= metas.sweep_at {
            metas.sweep();
        }
        let bytes = ENTRY_BYTES + family.len() + help.len();
        let meta = Arc::new(MetricMeta {
            family: family.into(),
            kind,
            help: help.into(),
            _memory: Some(self.memory.count(bytes)),
        });
        let entry = (hash, Arc::downgrade(&meta));
        metas.all.insert_unique(hash, entry, |(hash, _)| *hash);
        meta
    }

    /// Counts memory for the series of a page.
    ///
    /// # Errors
    /// The pages of the stream need more than its share.
    pub(super) fn reserve(&self, bytes: usize) -> Result<CountedMemory, String> {
        let counted = self.memory.count(bytes);
        self.check()?;
        Ok(counted)
    }

    /// Checks that the pages of the stream need at most its share.
    ///
    /// # Errors
    /// They need more.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.memory.is_over() {
            return Ok(());
        }
        Err(format!(
            "the VMs of the stream have too many different series: they need {} bytes of memory, and its share is {}",
            self.memory.used(),
            self.memory.part()
        ))
    }
}

impl Metas {
    /// Removes entries that no page uses.
    fn sweep(&mut self) {
        self.all.retain(|(_, meta)| meta.strong_count() > 0);
        self.sweep_at = (self.all.len() * 2).max(MIN_SWEEP_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_once_and_removed_without_users() {
        let table = Arc::new(FamilyTable::default());
        let (share, other) = (table.share(), table.share());
        let one = share.meta("a", Some(MetricType::Counter), "A.");
        let bytes = table.bytes();
        assert!(Arc::ptr_eq(
            &one,
            &other.meta("a", Some(MetricType::Counter), "A.")
        ));
        assert_eq!(table.bytes(), bytes, "it counts once");
        assert!(!Arc::ptr_eq(&one, &share.meta("a", None, "A.")));
        assert_eq!((one.kind(), one.help()), (Some(MetricType::Counter), "A."));
        for n in 0..50_000 {
            share.meta("m", None, &format!("help {n}"));
        }
        assert!(table.lock().all.len() <= MIN_SWEEP_ENTRIES);
        assert_eq!(table.bytes(), bytes, "what no page uses does not count");
        assert!(Arc::ptr_eq(
            &one,
            &share.meta("a", Some(MetricType::Counter), "A.")
        ));
    }

    #[test]
    fn a_stream_does_not_take_the_share_of_another() {
        let table = Arc::new(FamilyTable::new(4000));
        let (greedy, other) = (table.share(), table.share());
        let first = greedy.reserve(2000).unwrap();
        let error = greedy.reserve(1).unwrap_err();
        assert!(
            error.contains("too many different series") && error.contains("its share is 1000"),
            "{error}"
        );
        let own = other.reserve(1000).unwrap();
        other.reserve(1).unwrap_err();
        assert!(other.check().is_ok() && greedy.check().is_err());
        drop(first);
        assert!(greedy.check().is_ok());
        drop(own);
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn metadata_counts_for_the_stream_that_had_it_first() {
        let table = Arc::new(FamilyTable::new(8000));
        let (greedy, other) = (table.share(), table.share());
        let help = "h".repeat(1000);
        let used: Vec<_> = (0..5)
            .map(|n| greedy.meta(&format!("m{n}"), None, &help))
            .collect();
        assert!(greedy.check().is_err());
        let shared = other.meta("m0", None, &help);
        assert!(other.reserve(1500).is_ok());
        let entries = table.lock().all.len();
        drop(used);
        assert!(greedy.check().is_ok());
        // A page over the share must not go through the table of all streams.
        assert_eq!(table.lock().all.len(), entries);
        assert!(table.bytes() < 1500, "{}", table.bytes());
        drop(shared);
    }
}
