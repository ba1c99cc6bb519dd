//! Metadata of the families on guests' pages, each kept once for all VMs and tenants: most VMs
//! export the same ones. Also counts the memory of all pages' series, which is bounded.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;
use virtfleet_wire::exposition::MetricType;

/// Maximum memory of all metadata and all pages' series, in bytes.
pub const MAX_TABLE_BYTES: usize = 512 << 20;
/// New entries until the first sweep.
const MIN_SWEEP_ENTRIES: usize = 4096;
/// Estimated memory of an entry beside its texts, in bytes.
const ENTRY_BYTES: usize = 80;

/// Type and help text of a family.
#[derive(Debug)]
pub struct MetricMeta {
    /// Name of the family. Empty if the page has no metadata for the series.
    pub(super) family: Box<str>,
    pub(super) kind: Option<MetricTypeCode>,
    pub(super) help: Box<str>,
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

/// The table of all families.
#[derive(Debug)]
pub struct FamilyTable {
    metas: Mutex<Metas>,
    none: Arc<MetricMeta>,
    /// Bytes of the series of all pages.
    series_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Metas {
    hasher: RandomState,
    all: HashTable<Arc<MetricMeta>>,
    bytes: usize,
    /// Entries at which the next sweep starts.
    sweep_at: usize,
}

/// Memory of the series of one page; dropping it releases the bytes.
#[derive(Debug, Default)]
pub(super) struct SeriesBytes {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for SeriesBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
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
            }),
            series_bytes: Arc::default(),
            max_bytes,
        }
    }

    /// The metadata of a series without any.
    pub(super) fn no_meta(&self) -> &Arc<MetricMeta> {
        &self.none
    }

    /// The metadata of a family.
    pub(super) fn meta(&self, family: &str, kind: Option<MetricType>, help: &str) -> Arc<MetricMeta> {
        let kind = kind.map(MetricTypeCode::from);
        let metas = &mut *self.lock();
        let hash = metas.hasher.hash_one((family, kind, help));
        let is_same =
            |known: &Arc<MetricMeta>| *known.family == *family && known.kind == kind && *known.help == *help;
        if let Some(known) = metas.all.find(hash, is_same) {
            return Arc::clone(known);
        }
        if metas.all.len() >= metas.sweep_at {
            metas.sweep();
        }
        let meta = Arc::new(MetricMeta {
            family: family.into(),
            kind,
            help: help.into(),
        });
        metas.bytes += meta_bytes(&meta);
        let hasher = &metas.hasher;
        metas.all.insert_unique(hash, Arc::clone(&meta), |meta| {
            hasher.hash_one((&*meta.family, meta.kind, &*meta.help))
        });
        meta
    }

    /// Reserves memory for the series of a page.
    ///
    /// # Errors
    /// All pages together would need too much.
    pub(super) fn reserve(&self, bytes: usize) -> Result<SeriesBytes, String> {
        let reserved = SeriesBytes {
            all: Arc::clone(&self.series_bytes),
            own: bytes,
        };
        let series = self.series_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let used = series + self.meta_bytes();
        if used > self.max_bytes {
            return Err(format!(
                "all VMs together have too many different series: they need {used} bytes"
            ));
        }
        Ok(reserved)
    }

    /// Memory of all metadata and all pages' series, in bytes.
    pub fn bytes(&self) -> usize {
        self.series_bytes.load(Ordering::Relaxed) + self.meta_bytes()
    }

    /// Memory of all metadata, without those that no page uses if they are many.
    fn meta_bytes(&self) -> usize {
        let metas = &mut *self.lock();
        if metas.bytes > self.max_bytes / 2 {
            metas.sweep();
        }
        metas.bytes
    }

    fn lock(&self) -> MutexGuard<'_, Metas> {
        self.metas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metas {
    /// Removes entries that only the table holds.
    fn sweep(&mut self) {
        self.all.retain(|meta| Arc::strong_count(meta) > 1);
        self.bytes = self.all.iter().map(|meta| meta_bytes(meta)).sum();
        self.sweep_at = (self.all.len() * 2).max(MIN_SWEEP_ENTRIES);
    }
}

fn meta_bytes(meta: &MetricMeta) -> usize {
    ENTRY_BYTES + meta.family.len() + meta.help.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_once_and_removed_without_users() {
        let table = FamilyTable::default();
        let one = table.meta("a", Some(MetricType::Counter), "A.");
        assert!(Arc::ptr_eq(
            &one,
            &table.meta("a", Some(MetricType::Counter), "A.")
        ));
        assert!(!Arc::ptr_eq(&one, &table.meta("a", None, "A.")));
        assert_eq!((one.kind(), one.help()), (Some(MetricType::Counter), "A."));
        for n in 0..50_000 {
            table.meta("m", None, &format!("help {n}"));
        }
        assert!(table.lock().all.len() <= MIN_SWEEP_ENTRIES);
        assert!(Arc::ptr_eq(
            &one,
            &table.meta("a", Some(MetricType::Counter), "A.")
        ));
    }

    #[test]
    fn memory_is_bounded_and_released() {
        let table = FamilyTable::new(1000);
        let first = table.reserve(600).unwrap();
        let error = table.reserve(600).unwrap_err();
        assert!(error.contains("too many different series"), "{error}");
        assert_eq!(table.bytes(), 600);
        drop(first);
        drop(table.reserve(600).unwrap());
        assert_eq!(table.bytes(), 0);
    }
}
