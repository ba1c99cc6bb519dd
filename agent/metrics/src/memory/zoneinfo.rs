//! `zoneinfo`: memory by zone, from `/proc/zoneinfo`. The kernel prints the totals of a node in its
//! first zone.

use virtfleet_agent_core::procfs::zoneinfo::lines;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

struct Field {
    /// Name as printed by the kernel.
    key: &'static str,
    name: &'static str,
    help: &'static str,
    kind: MetricType,
}

macro_rules! fields {
    ($($kind:ident $key:literal => $name:literal, $help:literal;)*) => {
        &[$(Field {
            key: $key,
            name: concat!("node_zoneinfo_", $name),
            help: $help,
            kind: MetricType::$kind,
        },)*]
    };
}

static FIELDS: &[Field] = fields! {
    Gauge "nr_free_pages" => "nr_free_pages", "Free pages in the zone.";
    Gauge "min" => "min_pages", "The zone's watermark min, in pages.";
    Gauge "low" => "low_pages", "The zone's watermark low, in pages.";
    Gauge "high" => "high_pages", "The zone's watermark high, in pages.";
    Gauge "scanned" => "scanned_pages", "Pages scanned since the last reclaim.";
    Gauge "spanned" => "spanned_pages", "Pages that the zone spans, including holes.";
    Gauge "present" => "present_pages", "Physical pages in the zone.";
    Gauge "managed" => "managed_pages", "Present pages that the buddy system manages.";
    Gauge "nr_active_anon" => "nr_active_anon_pages", "Anonymous pages that were used more recently.";
    Gauge "nr_inactive_anon" => "nr_inactive_anon_pages", "Anonymous pages that were used less recently.";
    Gauge "nr_isolated_anon" => "nr_isolated_anon_pages", "Anonymous pages that are isolated from their LRU list.";
    Gauge "nr_anon_pages" => "nr_anon_pages", "Anonymous pages in use.";
    Gauge "nr_anon_transparent_hugepages" => "nr_anon_transparent_hugepages", "Anonymous transparent huge pages in use.";
    Gauge "nr_active_file" => "nr_active_file_pages", "File pages that were used more recently.";
    Gauge "nr_inactive_file" => "nr_inactive_file_pages", "File pages that were used less recently.";
    Gauge "nr_isolated_file" => "nr_isolated_file_pages", "File pages that are isolated from their LRU list.";
    Gauge "nr_file_pages" => "nr_file_pages", "File pages.";
    Gauge "nr_slab_reclaimable" => "nr_slab_reclaimable_pages", "Reclaimable slab pages.";
    Gauge "nr_slab_unreclaimable" => "nr_slab_unreclaimable_pages", "Unreclaimable slab pages.";
    Gauge "nr_mlock_stack" => "nr_mlock_stack_pages", "Pages locked by mlock() that were removed from their LRU list.";
    Gauge "nr_kernel_stack" => "nr_kernel_stacks", "Kernel stacks.";
    Gauge "nr_mapped" => "nr_mapped_pages", "Mapped pages.";
    Gauge "nr_dirty" => "nr_dirty_pages", "Dirty pages.";
    Gauge "nr_writeback" => "nr_writeback_pages", "Pages that are being written back.";
    Gauge "nr_unevictable" => "nr_unevictable_pages", "Unevictable pages.";
    Gauge "nr_shmem" => "nr_shmem_pages", "Pages of shared memory and tmpfs.";
    Counter "nr_dirtied" => "nr_dirtied_total", "Pages dirtied since boot.";
    Counter "nr_written" => "nr_written_total", "Pages written since boot.";
    Counter "numa_hit" => "numa_hit_total", "Allocated in the intended node.";
    Counter "numa_miss" => "numa_miss_total", "Allocated in another node than intended.";
    Counter "numa_foreign" => "numa_foreign_total", "Intended here, allocated elsewhere.";
    Counter "numa_interleave" => "numa_interleave_total", "The interleaver preferred this zone.";
    Counter "numa_local" => "numa_local_total", "Allocated from the local node.";
    Counter "numa_other" => "numa_other_total", "Allocated from another node.";
};
/// Maximum number of protected zones; the kernel has at most six kinds of zones.
const MAX_PROTECTIONS: usize = 16;

struct Zoneinfo(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Zoneinfo(Reread::new(context.roots.proc("zoneinfo")))))
}

/// A zone and its values by index in [`FIELDS`].
struct Zone<'text> {
    node: &'text str,
    name: &'text str,
    values: Vec<Option<i64>>,
    protection: Vec<i64>,
}

impl Collector for Zoneinfo {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let text = self.0.text()?;
        let mut zones: Vec<Zone<'_>> = Vec::new();
        let mut skipped = Skipped::default();
        for line in lines(&text) {
            let Some(line) = skipped.take(line.map_err(CollectError::parse(&path))) else {
                continue;
            };
            let known = |zone: &Zone<'_>| zone.node == line.node && zone.name == line.zone;
            let at = zones.iter().rposition(known).unwrap_or_else(|| {
                zones.push(Zone {
                    node: line.node,
                    name: line.zone,
                    values: vec![None; FIELDS.len()],
                    protection: Vec::new(),
                });
                zones.len() - 1
            });
            let zone = &mut zones[at];
            if line.field == "protection:" {
                let values = line.values().take(MAX_PROTECTIONS).collect::<Result<_, _>>();
                let values = values.map_err(CollectError::parse(&path));
                zone.protection = skipped.take(values).unwrap_or_default();
            } else if let Some(place) = FIELDS.iter().position(|field| field.key == line.field) {
                zone.values[place] = skipped.take(line.value().map_err(CollectError::parse(&path)));
            }
        }
        for (place, field) in FIELDS.iter().enumerate() {
            let mut family = page.family(field.name, field.help, field.kind);
            for zone in &zones {
                if let Some(value) = zone.values[place] {
                    family.sample(&[("node", zone.node), ("zone", zone.name)], value as f64);
                }
            }
        }
        for place in 0..MAX_PROTECTIONS {
            let name = format!("node_zoneinfo_protection_{place}");
            let help = format!("Pages that the zone protects from allocations for zone {place}.");
            let mut family = page.family(&name, &help, MetricType::Gauge);
            for zone in &zones {
                if let Some(value) = zone.protection.get(place) {
                    family.sample(&[("node", zone.node), ("zone", zone.name)], *value as f64);
                }
            }
        }
        skipped.end()
    }
}
