//! `zfs`: the caches, the intent log and the pools of ZFS, from `/proc/spl/kstat/zfs`.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use virtfleet_agent_core::procfs::kstat::{dataset_name, named, pool_io};
use virtfleet_agent_host::{
    Attribute, AttributeBuffer, Devices, Reread, Roots, attribute_buffer, is_directory, read_once,
};
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

const FOLDER: &str = "spl/kstat/zfs";
/// Maximum size of a kstat in bytes; ZFS kstats have at most some hundred lines.
const MAX_KSTAT_BYTES: usize = 256 << 10;

/// The kstats: prefix of the family names, and file. Some exist only in some releases.
const KSTATS: [(&str, &str); 11] = [
    ("node_zfs_abd_", "abdstats"),
    ("node_zfs_arc_", "arcstats"),
    ("node_zfs_dbuf_", "dbufstats"),
    ("node_zfs_dmu_tx_", "dmu_tx"),
    ("node_zfs_dnode_", "dnodestats"),
    ("node_zfs_fm_", "fm"),
    ("node_zfs_vdev_cache_", "vdev_cache_stats"),
    ("node_zfs_vdev_mirror_", "vdev_mirror_stats"),
    ("node_zfs_xuio_", "xuio_stats"),
    ("node_zfs_zfetch_", "zfetchstats"),
    ("node_zfs_zil_", "zil"),
];

/// Prefix of the names of dataset kstats; the object set's number follows.
const DATASET: &str = "objset-";

const STATES: [&str; 7] = [
    "online",
    "degraded",
    "faulted",
    "offline",
    "removed",
    "unavail",
    "suspended",
];

struct Zfs {
    files: Vec<Reread>,
    /// The entries next to the kstats. `None` for an entry that is not a pool.
    pools: Devices<Option<Pool>>,
    buffer: Box<AttributeBuffer>,
    /// The text of a dataset's kstat.
    text: Vec<u8>,
    name: String,
    help: String,
}

struct Pool {
    state: Attribute,
    state_now: Option<String>,
    io: Attribute,
    /// The kstats of its datasets. They are opened at each scrape, because a pool may have
    /// thousands.
    datasets: Devices<PathBuf>,
}

impl Pool {
    fn new(path: &Path) -> Option<Self> {
        is_directory(path).then(|| Self {
            state: Attribute::new(path.join("state")),
            state_now: None,
            io: Attribute::new(path.join("io")),
            datasets: Devices::new(path),
        })
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let file = |roots: &Roots, name| Reread::with_limit(roots.proc(FOLDER).join(name), MAX_KSTAT_BYTES);
    Ok(Box::new(Zfs {
        files: KSTATS
            .iter()
            .map(|(_, name)| file(&context.roots, name))
            .collect(),
        pools: Devices::new(context.roots.proc(FOLDER)),
        buffer: attribute_buffer(),
        text: Vec::new(),
        name: String::new(),
        help: String::new(),
    }))
}

impl Collector for Zfs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let is_kstat = |name: &str| KSTATS.iter().any(|(_, file)| *file == name);
        match self
            .pools
            .refresh(|name| !is_kstat(name), |_, path| Pool::new(path))
        {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no ZFS loaded"));
            }
            done => done?,
        };
        let mut skipped = Skipped::default();
        for ((start, what), file) in KSTATS.iter().zip(&mut self.files) {
            let path = file.path().to_owned();
            let text = match file.text() {
                Err(error) if error.is_missing() => continue,
                done => skipped.take(done),
            };
            let Some(text) = text else { continue };
            let mut seen = HashSet::new();
            for (name, value) in skipped.valid(&path, named(&text)) {
                if seen.insert(name) && compose(&mut self.name, start, name) {
                    self.help.clear();
                    self.help.extend(["ZFS' statistic ", what, ".", name, "."]);
                    page.family(&self.name, &self.help, MetricType::Untyped)
                        .sample(&[], value);
                }
            }
        }
        self.pools(page, &mut skipped);
        self.datasets(page, &mut skipped);
        skipped.end()
    }
}

/// Builds the name of a family. Returns false if the name would be invalid.
fn compose(whole: &mut String, start: &str, name: &str) -> bool {
    whole.clear();
    whole.push_str(start);
    whole.extend(name.chars().map(|c| if c == '-' { '_' } else { c }));
    is_metric_name(whole)
}

impl Zfs {
    fn pools(&mut self, page: &mut Page, skipped: &mut Skipped) {
        let mut counters: BTreeMap<String, Vec<(&str, f64)>> = BTreeMap::new();
        for pool in self.pools.all() {
            let Some(Pool {
                state, state_now, io, ..
            }) = &mut pool.kept
            else {
                continue;
            };
            // The files of a pool that is exported meanwhile are gone.
            *state_now = state
                .read(&mut self.buffer)
                .ok()
                .map(|state| state.to_ascii_lowercase())
                .filter(|state| !state.is_empty());
            let path = io.path().to_owned();
            let Ok(text) = io.read(&mut self.buffer) else {
                continue;
            };
            let mut seen = HashSet::new();
            for (name, value) in skipped.valid(&path, pool_io(&text)) {
                if seen.insert(name) && compose(&mut self.name, "node_zfs_zpool_", name) {
                    let rows = counters.entry(self.name.clone()).or_default();
                    rows.push((&pool.name, value));
                }
            }
        }
        for (name, rows) in &counters {
            let mut family = page.family(name, "An I/O counter of a pool.", MetricType::Untyped);
            for (pool, value) in rows {
                family.sample(&[("zpool", pool)], *value);
            }
        }
        drop(counters);
        let mut family = page.family(
            "node_zfs_zpool_state",
            "State of a pool: 1 for its state, 0 for the others.",
            MetricType::Gauge,
        );
        for pool in self.pools.held() {
            let Some(Pool {
                state_now: Some(now), ..
            }) = &pool.kept
            else {
                continue;
            };
            // A state that is not known here is shown too.
            let other = (!STATES.contains(&now.as_str())).then_some(now.as_str());
            for state in STATES.into_iter().chain(other) {
                let labels = [("zpool", pool.name.as_str()), ("state", state)];
                family.sample(&labels, f64::from(u8::from(now == state)));
            }
        }
    }

    /// The file of a dataset that is destroyed meanwhile is gone.
    fn datasets(&mut self, page: &mut Page, skipped: &mut Skipped) {
        type Row<'pool> = (&'pool str, Arc<str>, f64);
        let mut counters: BTreeMap<String, Vec<Row<'_>>> = BTreeMap::new();
        for pool in self.pools.all() {
            let Some(Pool { datasets, .. }) = &mut pool.kept else {
                continue;
            };
            let listed = datasets.refresh(|name| name.starts_with(DATASET), |_, path| path.to_owned());
            match listed {
                Err(error) if error.is_missing() => continue,
                done => skipped.take(done),
            };
            let mut names = HashSet::new();
            for path in datasets.held().iter().map(|dataset| &dataset.kept) {
                let Ok(bytes) = read_once(path, &mut self.text, MAX_KSTAT_BYTES) else {
                    continue;
                };
                let text = String::from_utf8_lossy(bytes);
                // A dataset that is renamed meanwhile may be listed twice.
                let Some(dataset) = dataset_name(&text).map(Arc::<str>::from) else {
                    continue;
                };
                if !names.insert(Arc::clone(&dataset)) {
                    continue;
                }
                let mut seen = HashSet::new();
                for (name, value) in skipped.valid(path, named(&text)) {
                    if seen.insert(name) && compose(&mut self.name, "node_zfs_zpool_dataset_", name) {
                        let rows = counters.entry(self.name.clone()).or_default();
                        rows.push((&pool.name, Arc::clone(&dataset), value));
                    }
                }
            }
        }
        for (name, rows) in &counters {
            let mut family = page.family(name, "A counter of a dataset.", MetricType::Untyped);
            for (pool, dataset, value) in rows {
                family.sample(&[("zpool", pool), ("dataset", dataset)], *value);
            }
        }
    }
}
