//! `meminfo`: `/proc/meminfo`, a gauge for each field that node_exporter exports.

use virtfleet_agent_core::procfs::meminfo;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

struct Field {
    /// Name as printed by the kernel.
    key: &'static str,
    name: &'static str,
    help: &'static str,
}

macro_rules! fields {
    ($($key:literal => $name:literal,)*) => {
        &[$(Field {
            key: $key,
            name: concat!("node_memory_", $name),
            help: concat!("Memory information field ", $name, "."),
        },)*]
    };
}

/// In the order in which the kernel prints them.
static FIELDS: &[Field] = fields! {
    "MemTotal" => "MemTotal_bytes",
    "MemFree" => "MemFree_bytes",
    "MemAvailable" => "MemAvailable_bytes",
    "Buffers" => "Buffers_bytes",
    "Cached" => "Cached_bytes",
    "SwapCached" => "SwapCached_bytes",
    "Active" => "Active_bytes",
    "Inactive" => "Inactive_bytes",
    "Active(anon)" => "Active_anon_bytes",
    "Inactive(anon)" => "Inactive_anon_bytes",
    "Active(file)" => "Active_file_bytes",
    "Inactive(file)" => "Inactive_file_bytes",
    "Unevictable" => "Unevictable_bytes",
    "Mlocked" => "Mlocked_bytes",
    "SwapTotal" => "SwapTotal_bytes",
    "SwapFree" => "SwapFree_bytes",
    "Zswap" => "Zswap_bytes",
    "Zswapped" => "Zswapped_bytes",
    "Dirty" => "Dirty_bytes",
    "Writeback" => "Writeback_bytes",
    "AnonPages" => "AnonPages_bytes",
    "Mapped" => "Mapped_bytes",
    "Shmem" => "Shmem_bytes",
    "Slab" => "Slab_bytes",
    "SReclaimable" => "SReclaimable_bytes",
    "SUnreclaim" => "SUnreclaim_bytes",
    "KernelStack" => "KernelStack_bytes",
    "PageTables" => "PageTables_bytes",
    "NFS_Unstable" => "NFS_Unstable_bytes",
    "Bounce" => "Bounce_bytes",
    "WritebackTmp" => "WritebackTmp_bytes",
    "CommitLimit" => "CommitLimit_bytes",
    "Committed_AS" => "Committed_AS_bytes",
    "VmallocTotal" => "VmallocTotal_bytes",
    "VmallocUsed" => "VmallocUsed_bytes",
    "VmallocChunk" => "VmallocChunk_bytes",
    "Percpu" => "Percpu_bytes",
    "HardwareCorrupted" => "HardwareCorrupted_bytes",
    "AnonHugePages" => "AnonHugePages_bytes",
    "ShmemHugePages" => "ShmemHugePages_bytes",
    "ShmemPmdMapped" => "ShmemPmdMapped_bytes",
    "CmaTotal" => "CmaTotal_bytes",
    "CmaFree" => "CmaFree_bytes",
    "HugePages_Total" => "HugePages_Total",
    "HugePages_Free" => "HugePages_Free",
    "HugePages_Rsvd" => "HugePages_Rsvd",
    "HugePages_Surp" => "HugePages_Surp",
    "Hugepagesize" => "Hugepagesize_bytes",
    "DirectMap4k" => "DirectMap4k_bytes",
    "DirectMap2M" => "DirectMap2M_bytes",
    "DirectMap1G" => "DirectMap1G_bytes",
};

struct Meminfo {
    file: Reread,
    /// Values of [`FIELDS`]; a reused buffer.
    values: Vec<Option<u64>>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Meminfo {
        file: Reread::new(context.roots.proc("meminfo")).single_record(),
        values: Vec::new(),
    }))
}

impl Collector for Meminfo {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        self.values.clear();
        self.values.resize(FIELDS.len(), None);
        // The kernel prints in the table's order, so the next line is usually the next field of the
        // table.
        let mut next = 0;
        let mut skipped = Skipped::default();
        for field in meminfo::fields(&text) {
            let Some(field) = skipped.take(field.map_err(CollectError::parse(&path))) else {
                continue;
            };
            let mut places = (next..FIELDS.len()).chain(0..next);
            if let Some(place) = places.find(|place| FIELDS[*place].key == field.name) {
                // A value without its unit was truncated.
                if field.in_bytes != FIELDS[place].name.ends_with("_bytes") {
                    let (path, name) = (path.display(), field.name);
                    let error = format!("{path}: {name} does not have the expected unit");
                    skipped.take::<()>(Err(CollectError::failed(error)));
                    continue;
                }
                self.values[place] = Some(field.value);
                next = place + 1;
            }
        }
        for (field, value) in FIELDS.iter().zip(&self.values) {
            if let Some(value) = value {
                page.gauge(field.name, field.help, *value as f64);
            }
        }
        if self.values.iter().all(Option::is_none) {
            skipped.end()?;
            return Err(CollectError::failed(format!(
                "{} contains no known field",
                path.display()
            )));
        }
        skipped.end()
    }
}
