//! Detects whether an ext4 filesystem was mounted or written since its disk was cloned.
//!
//! Layout: Linux `Documentation/filesystems/ext4` (super_block, group_descr, inodes) and
//! `fs/ext4/ext4.h`.
//!
//! A read-write mount sets `s_mtime`. Suppose an inode that was changed after `s_mtime` has the
//! same change time, to the nanosecond, on the root disk. Then both disks have it from the image,
//! and so the last mount was part of the image's build. This needs only the clock of the image's
//! build, and no knowledge about the image.

use super::{
    super::probe::Region,
    checksum::crc32c_ext4,
    source::{Source, chunks, number, read},
};

/// Where the superblock begins.
const SUPERBLOCK: u64 = 1024;
const MAGIC: u64 = 0xef53;
/// `s_state`: unmounted cleanly, no errors, no orphans.
const STATE_VALID: u64 = 1;
/// `s_feature_incompat`: the journal must be replayed.
const INCOMPAT_RECOVER: u64 = 0x4;
/// Not a filesystem but an external journal.
const INCOMPAT_JOURNAL_DEV: u64 = 0x8;
/// Group descriptors are not in one table behind the superblock.
const INCOMPAT_META_BG: u64 = 0x10;
const INCOMPAT_64BIT: u64 = 0x80;
const RO_COMPAT_GDT_CSUM: u64 = 0x10;
const RO_COMPAT_METADATA_CSUM: u64 = 0x400;
const RO_COMPAT_ORPHAN_PRESENT: u64 = 0x1_0000;
/// `bg_flags`: the inode table is not in use.
const INODE_UNINIT: u64 = 1;
/// Maximum number of block groups: 16 TiB with blocks of 4 KiB.
const MAX_GROUPS: u64 = 1 << 17;

/// Fields of the superblock that the check uses. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) raw: Vec<u8>,
    pub(super) uuid: [u8; 16],
    pub(super) block: u64,
    pub(super) blocks: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    inodes_per_group: u64,
    inode_bytes: u64,
    descriptor: u64,
    incompat: u64,
    ro_compat: u64,
    state: u64,
    errors: u64,
    last_orphan: u64,
    pub(super) made: u64,
    pub(super) last_mount: u64,
    pub(super) last_write: u64,
    pub(super) mounts: u64,
    pub(super) kib_written: u64,
}

impl Superblock {
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block)
    }
}

/// A filesystem in a partition.
pub(super) struct Volume<'a> {
    pub(super) source: &'a mut dyn Source,
    /// First byte of the partition.
    pub(super) start: u64,
    /// Bytes of the partition.
    pub(super) length: u64,
}

impl Volume<'_> {
    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, String> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(format!("byte {offset} is beyond the end of the partition"));
        }
        read(self.source, self.start + offset, length)
    }

    /// Reads the superblock. `None`: the partition has no ext4 magic. Inner error: it is unusable.
    pub(super) fn superblock(&mut self) -> Result<Option<Result<Superblock, String>>, String> {
        if self.length < 2 * SUPERBLOCK {
            return Ok(None);
        }
        let raw = self.read(SUPERBLOCK, SUPERBLOCK)?;
        if number::<2>(&raw, 0x38) != MAGIC {
            return Ok(None);
        }
        Ok(Some(superblock(raw, self.length)))
    }

    /// Returns for each group the first byte of its inode table in the partition, and the number of
    /// inodes in use at its beginning.
    fn tables(&mut self, sb: &Superblock) -> Result<Vec<(u64, u64)>, String> {
        let groups = sb
            .blocks
            .saturating_sub(sb.first_data_block)
            .div_ceil(sb.blocks_per_group);
        let begin = (sb.first_data_block + 1) * sb.block;
        let raw = self.read(begin, groups * sb.descriptor)?;
        let lazy = sb.ro_compat & (RO_COMPAT_GDT_CSUM | RO_COMPAT_METADATA_CSUM) != 0;
        let wide = sb.descriptor >= 64;
        let size = usize::try_from(sb.descriptor).unwrap_or(usize::MAX);
        let table = |group: &[u8]| {
            let high = |at| if wide { number::<4>(group, at) } else { 0 };
            let block = number::<4>(group, 0x8) | high(0x28) << 32;
            let unused = number::<2>(group, 0x1c) | (high(0x32) & 0xffff) << 16;
            let used = if lazy && number::<2>(group, 0x12) & INODE_UNINIT != 0 {
                0
            } else if lazy {
                sb.inodes_per_group.saturating_sub(unused)
            } else {
                sb.inodes_per_group
            };
            (block.saturating_mul(sb.block), used)
        };
        Ok(raw.chunks_exact(size).map(table).collect())
    }
}

fn superblock(raw: Vec<u8>, room: u64) -> Result<Superblock, String> {
    let wide = |low: usize, high: usize| number::<4>(&raw, low) | number::<1>(&raw, high) << 32;
    let incompat = number::<4>(&raw, 0x60);
    let ro_compat = number::<4>(&raw, 0x64);
    let sum = u64::from(crc32c_ext4(&raw[..0x3fc]));
    if ro_compat & RO_COMPAT_METADATA_CSUM != 0 && sum != number::<4>(&raw, 0x3fc) {
        return Err("the checksum of its superblock is wrong".to_owned());
    }
    let log = number::<4>(&raw, 0x18);
    if log > 6 || incompat & (INCOMPAT_JOURNAL_DEV | INCOMPAT_META_BG) != 0 {
        return Err("its layout is not supported (block size, external journal or meta_bg)".to_owned());
    }
    let is_64bit = incompat & INCOMPAT_64BIT != 0;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&raw[0x68..0x78]);
    let high = if is_64bit {
        number::<4>(&raw, 0x150) << 32
    } else {
        0
    };
    let sb = Superblock {
        uuid,
        block: 1024 << log,
        blocks: number::<4>(&raw, 0x4) | high,
        first_data_block: number::<4>(&raw, 0x14),
        blocks_per_group: number::<4>(&raw, 0x20),
        inodes_per_group: number::<4>(&raw, 0x28),
        // Revision 0 has inodes of 128 bytes.
        inode_bytes: if number::<4>(&raw, 0x4c) == 0 {
            128
        } else {
            number::<2>(&raw, 0x58)
        },
        descriptor: if is_64bit { number::<2>(&raw, 0xfe) } else { 32 },
        incompat,
        ro_compat,
        state: number::<2>(&raw, 0x3a),
        errors: number::<4>(&raw, 0x194),
        last_orphan: number::<4>(&raw, 0xe8),
        made: wide(0x108, 0x276),
        last_mount: wide(0x2c, 0x275),
        last_write: wide(0x30, 0x274),
        mounts: number::<2>(&raw, 0x34),
        kib_written: number::<8>(&raw, 0x178),
        raw,
    };
    let groups = sb.blocks.checked_div(sb.blocks_per_group).unwrap_or(u64::MAX);
    let known = [32, 64].contains(&sb.descriptor) && [128, 256, 512, 1024].contains(&sb.inode_bytes);
    if !known || groups > MAX_GROUPS || sb.inodes_per_group == 0 || sb.inodes_per_group > 1 << 20 {
        return Err("the geometry in its superblock is not plausible".to_owned());
    }
    if sb.bytes() > room || sb.first_data_block > 1 {
        return Err(format!(
            "its {} blocks of {} bytes do not fit into the partition",
            sb.blocks, sb.block
        ));
    }
    Ok(sb)
}

/// Deviation from an untouched clone.
pub(super) struct FieldDeviation {
    pub(super) field: &'static str,
    pub(super) here: String,
    pub(super) root: String,
    pub(super) why: &'static str,
}

fn field_deviation(
    field: &'static str,
    here: impl ToString,
    root: impl ToString,
    why: &'static str,
) -> FieldDeviation {
    FieldDeviation {
        field,
        here: here.to_string(),
        root: root.to_string(),
        why,
    }
}

/// Compares the superblocks. `first_boot` is in seconds since 1970.
pub(super) fn compare(here: &Superblock, root: &Superblock, first_boot: u64) -> Vec<FieldDeviation> {
    let checks = [same_image(here, root), unused(here, root, first_boot)];
    let wrong = checks.into_iter().flatten().filter(|(right, _)| !right);
    wrong.map(|(_, field_deviation)| field_deviation).collect()
}

/// Properties that both disks have from the image, each with the deviation if it differs.
fn same_image(here: &Superblock, root: &Superblock) -> Vec<(bool, FieldDeviation)> {
    let uuid = |sb: &Superblock| uuid::Uuid::from_bytes(sb.uuid).to_string();
    let geometry = |sb: &Superblock| {
        let numbers = [
            sb.block,
            sb.first_data_block,
            sb.blocks_per_group,
            sb.inodes_per_group,
            sb.inode_bytes,
            sb.descriptor,
            sb.incompat & !INCOMPAT_RECOVER,
        ];
        format!("{numbers:?}")
    };
    vec![
        (
            here.uuid == root.uuid,
            field_deviation(
                "UUID",
                uuid(here),
                uuid(root),
                "it is not the filesystem of the image",
            ),
        ),
        (
            here.made == root.made,
            field_deviation(
                "creation time",
                here.made,
                root.made,
                "it was not made at the same time as the image",
            ),
        ),
        (
            geometry(here) == geometry(root),
            field_deviation(
                "geometry",
                geometry(here),
                geometry(root),
                "it was not made like the image, or was changed since",
            ),
        ),
        (
            here.blocks <= root.blocks,
            field_deviation(
                "blocks",
                here.blocks,
                root.blocks,
                "it was grown after it was cloned",
            ),
        ),
    ]
}

/// Properties that change when a filesystem is used, each with the deviation if it shows a use.
fn unused(here: &Superblock, root: &Superblock, first_boot: u64) -> Vec<(bool, FieldDeviation)> {
    let clean = here.state == STATE_VALID && here.errors == 0 && here.last_orphan == 0;
    let replay = here.incompat & INCOMPAT_RECOVER != 0 || here.ro_compat & RO_COMPAT_ORPHAN_PRESENT != 0;
    let late = |field, here: u64, root: u64| {
        let root = format!("{root}, first boot {first_boot}");
        (
            here < first_boot,
            field_deviation(
                field,
                here,
                root,
                "it was mounted or written after this VM's first boot",
            ),
        )
    };
    vec![
        (
            clean,
            field_deviation(
                "state",
                format!(
                    "{:#x}, {} errors, orphan {}",
                    here.state, here.errors, here.last_orphan
                ),
                format!("{:#x}", root.state),
                "it is mounted elsewhere, or was not unmounted cleanly",
            ),
        ),
        (
            !replay,
            field_deviation("journal", "needs recovery", "", "it was in use and not unmounted"),
        ),
        (
            here.mounts < root.mounts,
            field_deviation(
                "mount count",
                here.mounts,
                root.mounts,
                "the root disk was mounted at least once more than an untouched clone",
            ),
        ),
        (
            here.last_mount != 0 || here.mounts == 0,
            field_deviation(
                "mount count",
                here.mounts,
                root.mounts,
                "it was mounted, but the mount time is missing",
            ),
        ),
        (
            here.kib_written <= root.kib_written,
            field_deviation(
                "KiB written in its lifetime",
                here.kib_written,
                root.kib_written,
                "more was written to it than to the root disk",
            ),
        ),
        late("last mount", here.last_mount, root.last_mount),
        late("last write", here.last_write, root.last_write),
    ]
}

/// Result of the comparison of inodes.
pub(super) struct Inodes {
    /// Number and change time of an inode that is equal on the root disk and was changed after the
    /// last mount of the clone.
    pub(super) shared_inode: Option<(u64, u64)>,
    /// Number and change time of an inode that was changed after the first boot of the root disk.
    pub(super) late: Option<(u64, u64)>,
}

/// Reads all inodes of the clone, and the candidates for `witness` from the root disk.
pub(super) fn inodes(
    clone: &mut Volume<'_>,
    here: &Superblock,
    root: &mut Volume<'_>,
    there: &Superblock,
    first_boot: u64,
) -> Result<Inodes, String> {
    let mut found = Inodes {
        shared_inode: None,
        late: None,
    };
    let own = clone.tables(here)?;
    let other = root.tables(there)?;
    let size = usize::try_from(here.inode_bytes).unwrap_or(usize::MAX);
    for (group, (begin, used)) in own.into_iter().enumerate() {
        let same_place = other.get(group).is_some_and(|(place, _)| *place == begin);
        let table = Region {
            offset: 0,
            length: used * here.inode_bytes,
        };
        for (at, length) in chunks(table) {
            let chunk = clone.read(begin + at, length)?;
            let mut counterpart: Option<Vec<u8>> = None;
            for (index, inode) in chunk.chunks_exact(size).enumerate() {
                // Mode and link count: free inodes have neither.
                if number::<2>(inode, 0) == 0 || number::<2>(inode, 0x1a) == 0 {
                    continue;
                }
                let first = at / here.inode_bytes + index as u64;
                let name = group as u64 * here.inodes_per_group + first + 1;
                let changed = changed(inode);
                if changed >= first_boot {
                    found.late.get_or_insert((name, changed));
                }
                if found.shared_inode.is_some() || !same_place || changed <= here.last_mount {
                    continue;
                }
                if counterpart.is_none() {
                    counterpart = Some(root.read(begin + at, length)?);
                }
                let twin = counterpart
                    .as_deref()
                    .and_then(|chunk| chunk.get(index * size..(index + 1) * size));
                if twin.is_some_and(|twin| same(inode, twin)) {
                    found.shared_inode = Some((name, changed));
                }
            }
        }
    }
    Ok(found)
}

/// Seconds since 1970; the two low bits of `i_ctime_extra` extend them. A time before 1970 counts
/// as 0.
fn changed(inode: &[u8]) -> u64 {
    let low = number::<4>(inode, 0xc);
    let epoch = if inode.len() > 128 {
        number::<4>(inode, 0x84) & 3
    } else {
        0
    };
    // The low word is signed: dates before 1970 have the epoch 0.
    match (low & 0x8000_0000 != 0, epoch) {
        (false, _) => (epoch << 32) + low,
        (true, 0) => 0,
        (true, _) => ((epoch - 1) << 32) + low,
    }
}

/// Whether two inodes agree in all fields that a change of the file changes: mode, size, change
/// time, generation, blocks and, in large inodes, nanoseconds and creation time.
fn same(one: &[u8], other: &[u8]) -> bool {
    let mut fields = vec![0..2, 4..8, 0xc..0x14, 0x1a..0x20, 0x28..0x68];
    if one.len() > 128 {
        fields.extend([0x84..0x8c, 0x90..0x98]);
    }
    fields.into_iter().all(|field| {
        one.get(field.clone())
            .is_some_and(|bytes| other.get(field) == Some(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_beyond_2038() {
        let inode = |low: u32, extra: u32| {
            let mut bytes = vec![0; 256];
            bytes[0xc..0x10].copy_from_slice(&low.to_le_bytes());
            bytes[0x84..0x88].copy_from_slice(&extra.to_le_bytes());
            changed(&bytes)
        };
        assert_eq!(inode(1_700_000_000, 0), 1_700_000_000);
        assert_eq!(inode(0x8000_0000, 1), 0x8000_0000, "2038-01-19");
        assert_eq!(inode(0, 1), 1 << 32, "2106");
        assert_eq!(inode(0xffff_ffff, 0), 0, "1969");
    }
}
