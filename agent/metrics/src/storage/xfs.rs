//! `xfs`: statistics of XFS filesystems, from `/sys/fs/xfs/*/stats/stats`.

use virtfleet_agent_core::procfs::xfs::groups;
use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A counter: its group, its index in the group, its family and HELP.
struct Counter(&'static str, usize, &'static str, &'static str);

#[rustfmt::skip]
static COUNTERS: [Counter; 39] = [
    Counter("extent_alloc", 0, "node_xfs_extent_allocation_extents_allocated_total", "Extents allocated."),
    Counter("extent_alloc", 1, "node_xfs_extent_allocation_blocks_allocated_total", "Blocks allocated."),
    Counter("extent_alloc", 2, "node_xfs_extent_allocation_extents_freed_total", "Extents freed."),
    Counter("extent_alloc", 3, "node_xfs_extent_allocation_blocks_freed_total", "Blocks freed."),
    Counter("abt", 0, "node_xfs_allocation_btree_lookups_total", "Lookups in the allocation B-trees."),
    Counter("abt", 1, "node_xfs_allocation_btree_compares_total", "Comparisons in the allocation B-trees."),
    Counter("abt", 2, "node_xfs_allocation_btree_records_inserted_total", "Records inserted into the allocation B-trees."),
    Counter("abt", 3, "node_xfs_allocation_btree_records_deleted_total", "Records deleted from the allocation B-trees."),
    Counter("blk_map", 0, "node_xfs_block_mapping_reads_total", "Block mappings for reading."),
    Counter("blk_map", 1, "node_xfs_block_mapping_writes_total", "Block mappings for writing."),
    Counter("blk_map", 2, "node_xfs_block_mapping_unmaps_total", "Blocks unmapped (deleted)."),
    Counter("blk_map", 3, "node_xfs_block_mapping_extent_list_insertions_total", "Extents inserted into extent lists."),
    Counter("blk_map", 4, "node_xfs_block_mapping_extent_list_deletions_total", "Extents deleted from extent lists."),
    Counter("blk_map", 5, "node_xfs_block_mapping_extent_list_lookups_total", "Lookups in extent lists."),
    Counter("blk_map", 6, "node_xfs_block_mapping_extent_list_compares_total", "Comparisons in extent lists."),
    Counter("bmbt", 0, "node_xfs_block_map_btree_lookups_total", "Lookups in the block map B-trees."),
    Counter("bmbt", 1, "node_xfs_block_map_btree_compares_total", "Comparisons in the block map B-trees."),
    Counter("bmbt", 2, "node_xfs_block_map_btree_records_inserted_total", "Records inserted into the block map B-trees."),
    Counter("bmbt", 3, "node_xfs_block_map_btree_records_deleted_total", "Records deleted from the block map B-trees."),
    Counter("dir", 0, "node_xfs_directory_operation_lookup_total", "Name lookups that missed the kernel's dentry cache."),
    Counter("dir", 1, "node_xfs_directory_operation_create_total", "Directory entries created."),
    Counter("dir", 2, "node_xfs_directory_operation_remove_total", "Directory entries removed."),
    Counter("dir", 3, "node_xfs_directory_operation_getdents_total", "Directory listings with getdents."),
    Counter("ig", 0, "node_xfs_inode_operation_attempts_total", "Lookups in the inode cache."),
    Counter("ig", 1, "node_xfs_inode_operation_found_total", "Hits in the inode cache."),
    Counter("ig", 2, "node_xfs_inode_operation_recycled_total", "Inodes found in the cache that were being recycled and could not be used."),
    Counter("ig", 3, "node_xfs_inode_operation_missed_total", "Misses in the inode cache."),
    Counter("ig", 4, "node_xfs_inode_operation_duplicates_total", "Inodes that another thread had inserted into the cache meanwhile."),
    Counter("ig", 5, "node_xfs_inode_operation_reclaims_total", "Inodes reclaimed from the cache."),
    Counter("ig", 6, "node_xfs_inode_operation_attribute_changes_total", "Changes of inodes' attributes."),
    Counter("rw", 1, "node_xfs_read_calls_total", "Calls of read(2)."),
    Counter("rw", 0, "node_xfs_write_calls_total", "Calls of write(2)."),
    Counter("vnodes", 0, "node_xfs_vnode_active_total", "Vnodes that are on no free list."),
    Counter("vnodes", 1, "node_xfs_vnode_allocate_total", "Vnodes allocated."),
    Counter("vnodes", 2, "node_xfs_vnode_get_total", "Vnodes acquired."),
    Counter("vnodes", 3, "node_xfs_vnode_hold_total", "Vnodes held."),
    Counter("vnodes", 4, "node_xfs_vnode_release_total", "Vnodes released."),
    Counter("vnodes", 5, "node_xfs_vnode_reclaim_total", "Vnodes reclaimed."),
    Counter("vnodes", 6, "node_xfs_vnode_remove_total", "Vnodes removed."),
];

struct Xfs {
    filesystems: Devices<Filesystem>,
    buffer: Box<AttributeBuffer>,
}

struct Filesystem {
    stats: Attribute,
    values: [Option<u64>; COUNTERS.len()],
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Xfs {
        filesystems: Devices::new(context.roots.sys("fs/xfs")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Xfs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // `stats` next to the filesystems is the sum of all.
        let made = self.filesystems.refresh(
            |name| name != "stats",
            |_, path| Filesystem {
                stats: Attribute::new(path.join("stats/stats")),
                values: [None; COUNTERS.len()],
            },
        );
        match made {
            // node_exporter reports nothing and success in this case.
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        let mut skipped = Skipped::default();
        for filesystem in self.filesystems.all() {
            let Filesystem { stats, values } = &mut filesystem.kept;
            *values = [None; COUNTERS.len()];
            let path = stats.path().to_owned();
            let text = match stats.read(&mut self.buffer) {
                // Unmounted meanwhile, or an entry that is not a filesystem, such as `debug`.
                Err(error) if error.is_missing() => continue,
                done => skipped.take(done),
            };
            for group in skipped.valid(&path, groups(&text.unwrap_or_default())) {
                for (value, counter) in values.iter_mut().zip(&COUNTERS) {
                    if counter.0 == group.name && value.is_none() {
                        *value = group.get(counter.1);
                    }
                }
            }
        }
        for (index, Counter(_, _, name, help)) in COUNTERS.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Counter);
            for filesystem in self.filesystems.all() {
                if let Some(value) = filesystem.kept.values[index] {
                    family.sample(&[("device", &filesystem.name)], value as f64);
                }
            }
        }
        skipped.end()
    }
}
