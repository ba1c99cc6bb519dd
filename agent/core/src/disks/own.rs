//! The agent's own filesystem, in use, whose files make blkid(8) find something else.
//!
//! blkid searches for signatures at fixed offsets, and the data of a file can lie there: an ISO
//! image, the disk of another VM with a ZFS pool or a LUKS container (util-linux #4031 and #4170,
//! stratisd #1788). It then reports several contents, or only the wrong one.
//!
//! ```text
//! superblock ── is_of ──▶ entry of the journal: it is the agent's, and in use
//! signatures (wipefs) ── FileArea ──▶ inside: data of files │ foreign: anything else
//! ```
//!
//! A signature is only data if it lies where the filesystem stores the data of files, which is
//! before its end and behind the metadata at its start:
//!
//! - ext4: behind the inode tables of the first flexible group, and at least 512 KiB, where the
//!   first two labels of ZFS end. The checksums of the superblock and of the group descriptors must
//!   be valid.
//! - xfs: behind the headers and the roots of the trees at the start of each allocation group, and
//!   at least 32 KiB: the kernel never frees the leftmost block of a tree. The superblock and the
//!   root inode must be intact: ZFS overwrites the latter, and not the former. Where the root inode
//!   lies so that ZFS may spare it, file data counts only from behind it.
//! - btrfs: from 1 MiB on. It stores nothing else than its superblock below.
//! - swap: from 1 MiB on. Nothing but its first page shows that it is still swap, and most other
//!   metadata lies below.
//!
//! What takes over a whole device writes below that area: partition tables, LUKS, LVM, MD 1.1 and
//! 1.2, ZFS, other filesystems. RAID (MD 0.90 and 1.0) and DRBD are the exception: they write to
//! the end of the device, also where the filesystem was not shrunk before. Their signatures there
//! are foreign; on swap they are foreign anywhere.

use std::ops::Range;

use super::{
    journal::Entry,
    on_disk::{be, crc32c, le},
    probe::{Content, Region},
    remains::xfs,
    superblock::{BTRFS_AT, EXT4_AT, Superblock},
};

/// Minimum size of the area without file data at the start of an xfs allocation group.
const MIN_XFS_METADATA_BYTES: u64 = 32 << 10;
/// From here on, a root inode of xfs may survive that a ZFS pool is made: a pool skips the first
/// 8 KiB of each label, so those at 256 KiB, and all behind its two labels, which end at 512 KiB.
const SPARED_BY_ZFS: u64 = 128 << 10;
/// Minimum start of the file data of ext4.
const MIN_EXT_DATA: u64 = 512 << 10;
/// Length of the end of a device where RAID and DRBD keep their metadata: MD 0.90 uses the last
/// 128 KiB, DDF the last 129 KiB.
const VOLUME_END_BYTES: u64 = 192 << 10;
/// Sectors with headers at the start of an xfs allocation group: superblock, AGF, AGI, AGFL.
const XFS_HEADERS: u64 = 4;
/// Blocks behind them for the roots of the trees: free space by block and by size, inodes, free
/// inodes, reverse mapping, reference counts.
const XFS_ROOTS: u64 = 6;
/// Start of the file data of btrfs and swap.
const MIB: u64 = 1 << 20;
/// Sizes of the first page of a swap area.
const SWAP_PAGES: [u64; 4] = [4096, 8192, 16384, 65536];

/// `s_feature_incompat` of ext4.
const EXT4_64BIT: u64 = 0x80;
const EXT4_FLEX_BG: u64 = 0x200;
const EXT4_CSUM_SEED: u64 = 0x2000;
/// `s_feature_ro_compat` of ext4.
const EXT4_METADATA_CSUM: u64 = 0x400;

/// A signature on a device, as wipefs(8) lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Offset of its magic number in bytes.
    pub offset: u64,
    /// Kind in blkid's terms, e.g. `iso9660` or `dos`.
    pub kind: String,
}

impl Signature {
    fn words(&self) -> String {
        format!("{} at byte {}", self.kind, self.offset)
    }

    /// Whether it is of RAID or DRBD, which keep their metadata at the end of a device.
    fn is_of_volume(&self) -> bool {
        self.kind == "drbd" || self.kind.ends_with("_raid_member")
    }
}

impl Superblock {
    /// Whether it is the filesystem that the entry records as complete: kind and UUID.
    pub fn is_of(&self, entry: &Entry) -> bool {
        entry.records(&self.kind, self.uuid.as_deref())
    }

    /// Whether this is the filesystem's own signature.
    fn has(&self, signature: &Signature) -> bool {
        let own = match self.kind.as_str() {
            "xfs" => signature.offset == 0,
            "ext2" | "ext3" | "ext4" => signature.offset == EXT4_AT as u64 + 0x38,
            "btrfs" => signature.offset == BTRFS_AT as u64 + 0x40,
            "swap" => SWAP_PAGES.contains(&signature.offset.saturating_add(10)),
            _ => false,
        };
        own && signature.kind == self.kind
    }
}

/// Range of a device in which a filesystem stores the data of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileArea {
    bytes: Range<u64>,
    /// Size of an xfs allocation group, and of the metadata at the start of each.
    group: Option<(u64, u64)>,
    /// From here on, RAID and DRBD are not data of files.
    volumes_from: u64,
}

impl FileArea {
    /// For a filesystem that begins with `head`, the first
    /// [`HEAD_BYTES`](super::superblock::HEAD_BYTES) of a device of `size` bytes; `root` are the
    /// bytes at [`xfs_root`]. `None` if the start of the filesystem is not intact or not known.
    ///
    /// Input is untrusted: it never panics.
    pub fn of(superblock: &Superblock, head: &[u8], root: &[u8], size: u64) -> Option<Self> {
        let (from, group) = match superblock.kind.as_str() {
            "ext2" | "ext3" | "ext4" => (ext_data(head)?.max(MIN_EXT_DATA), None),
            "xfs" => xfs_data(head, root, xfs_root(superblock, head)?)?,
            "btrfs" => (btrfs_data(head)?, None),
            "swap" => (MIB, None),
            _ => return None,
        };
        let volumes_from = if superblock.kind == "swap" {
            0
        } else {
            size.saturating_sub(VOLUME_END_BYTES)
        };
        Some(Self {
            bytes: from..superblock.filesystem_bytes?,
            group,
            volumes_from,
        })
    }

    fn holds(&self, signature: &Signature) -> bool {
        let at = signature.offset;
        let is_volume = signature.is_of_volume() && at >= self.volumes_from;
        let is_behind = |(size, metadata): (u64, u64)| at.checked_rem(size).is_some_and(|at| at >= metadata);
        self.bytes.contains(&at) && !is_volume && self.group.is_none_or(is_behind)
    }
}

/// Offset behind the last metadata of the first flexible group.
fn ext_data(head: &[u8]) -> Option<u64> {
    let sb = head.get(EXT4_AT..EXT4_AT + 1024)?;
    let incompat = le(sb, 0x60, 4);
    let is_intact = u64::from(crc32c(!0, sb.get(..0x3FC)?)) == le(sb, 0x3FC, 4);
    if le(sb, 0x64, 4) & EXT4_METADATA_CSUM == 0 || !is_intact {
        return None;
    }
    let shift = le(sb, 0x18, 4);
    let block = (shift <= 6).then(|| 1024_u64 << shift)?;
    let is_wide = incompat & EXT4_64BIT != 0;
    let high = if is_wide { le(sb, 0x150, 4) << 32 } else { 0 };
    let blocks = le(sb, 0x04, 4) | high;
    let first = le(sb, 0x14, 4);
    let per_group = le(sb, 0x20, 4);
    let groups = (per_group > 0).then(|| blocks.saturating_sub(first).div_ceil(per_group))?;
    let flexible = if incompat & EXT4_FLEX_BG == 0 {
        1
    } else {
        1_u64.checked_shl(u32::try_from(le(sb, 0x174, 1)).ok()?)?
    };
    let size = if is_wide {
        usize::try_from(le(sb, 0xFE, 2)).ok()?
    } else {
        32
    };
    let seed = if incompat & EXT4_CSUM_SEED == 0 {
        crc32c(!0, sb.get(0x68..0x78)?)
    } else {
        u32::try_from(le(sb, 0x270, 4)).ok()?
    };
    let table_blocks = le(sb, 0x28, 4).checked_mul(le(sb, 0x58, 2))?.div_ceil(block);
    let table = usize::try_from((first + 1).checked_mul(block)?).ok()?;
    let mut end = 0;
    for group in 0..flexible.min(groups) {
        let at = table.checked_add(size.checked_mul(usize::try_from(group).ok()?)?)?;
        let descriptor = head.get(at..at.checked_add(size)?)?;
        if !is_descriptor(descriptor, group, seed) {
            return None;
        }
        let place = |low, high| {
            let high = if size >= 64 { le(descriptor, high, 4) } else { 0 };
            le(descriptor, low, 4) | high << 32
        };
        for (start, length) in [
            (place(0x00, 0x20), 1),
            (place(0x04, 0x24), 1),
            (place(0x08, 0x28), table_blocks),
        ] {
            end = end.max(start.checked_add(length)?);
        }
    }
    end.checked_mul(block).filter(|end| *end > table as u64)
}

/// Checks `bg_checksum`: `ext4_group_desc_csum` in the kernel's `fs/ext4/super.c`.
fn is_descriptor(descriptor: &[u8], group: u64, seed: u32) -> bool {
    let Ok(group) = u32::try_from(group) else {
        return false;
    };
    let part = |range: Range<usize>| descriptor.get(range).unwrap_or_default();
    let crc = crc32c(seed, &group.to_le_bytes());
    let crc = crc32c(crc32c(crc, part(0..0x1E)), &[0, 0]);
    let crc = crc32c(crc, part(0x20..descriptor.len().max(0x20)));
    descriptor.len() >= 32 && u64::from(crc & 0xFFFF) == le(descriptor, 0x1E, 2)
}

/// Inode that holds the root directory of an xfs: where it is on the device. `None` for another
/// filesystem, and if the superblock is not plausible.
pub fn xfs_root(superblock: &Superblock, head: &[u8]) -> Option<Region> {
    if superblock.kind != "xfs" {
        return None;
    }
    let (block, inode) = (be(head, 4, 4), be(head, 104, 2));
    let (per_block, agblklog) = (be(head, 123, 1), be(head, 124, 1));
    let root = be(head, 56, 8);
    let is_plausible = (1..=16).contains(&per_block)
        && agblklog <= 32
        && (256..=4096).contains(&inode)
        // It is in the first allocation group.
        && root >> (per_block + agblklog) == 0;
    is_plausible.then(|| Region {
        offset: (root >> per_block) * block + (root & ((1 << per_block) - 1)) * inode,
        length: inode,
    })
}

/// Start of the file data of an xfs with its root inode at `place`; size of an allocation group,
/// and of the metadata at the start of each.
fn xfs_data(head: &[u8], root: &[u8], place: Region) -> Option<(u64, Option<(u64, u64)>)> {
    let uuid: [u8; 16] = head.get(32..48)?.try_into().ok()?;
    let is_directory = be(root, 2, 2) & 0xF000 == 0x4000;
    let is_intact = head.starts_with(b"XFSB")
        && xfs::block(head, 0, &uuid).is_some()
        && root.starts_with(b"IN")
        && xfs::block(root, 0, &uuid).is_some()
        && is_directory
        && be(root, 152, 8) == be(head, 56, 8);
    let (block, sector) = (be(head, 4, 4), be(head, 102, 2));
    let headers = (XFS_HEADERS * sector).checked_next_multiple_of(block)?;
    let metadata = (headers + XFS_ROOTS * block).max(MIN_XFS_METADATA_BYTES);
    let from = if place.offset < SPARED_BY_ZFS {
        metadata
    } else {
        metadata.max(place.offset.saturating_add(place.length))
    };
    let group = be(head, 84, 4).saturating_mul(block);
    is_intact.then_some((from, Some((group, metadata))))
}

/// Start of the file data of a btrfs with the default checksum, CRC-32C.
fn btrfs_data(head: &[u8]) -> Option<u64> {
    let sb = head.get(BTRFS_AT..BTRFS_AT + 4096)?;
    let is_intact = le(sb, 196, 2) == 0 && u64::from(!crc32c(!0, sb.get(32..)?)) == le(sb, 0, 4);
    is_intact.then_some(MIB)
}

/// The agent's own filesystem on a device, with what else is found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFilesystem {
    superblock: Superblock,
    /// Signatures in the data of files, the first of each kind.
    inside: Vec<String>,
    /// What is not proven to be data of files.
    foreign: Vec<String>,
}

impl OwnFilesystem {
    /// Sorts the `signatures` on its device. `found` are the kinds that blkid has reported.
    ///
    /// Proven needs all of these: the start of the filesystem is intact, so its area is known;
    /// wipefs lists the filesystem itself; every other signature is in the area of file data; and
    /// wipefs lists every kind that blkid has reported.
    pub fn new(
        superblock: Superblock,
        area: Option<&FileArea>,
        signatures: &[Signature],
        found: &[String],
    ) -> Self {
        if !signatures.iter().any(|signature| superblock.has(signature)) {
            return Self::unproven(superblock, found);
        }
        let others = signatures.iter().filter(|signature| !superblock.has(signature));
        let is_inside = |signature: &&Signature| area.is_some_and(|area| area.holds(signature));
        let (inside, foreign): (Vec<&Signature>, Vec<&Signature>) = others.partition(is_inside);
        let mut foreign = firsts(&foreign);
        if area.is_none() {
            foreign.push("its start is not intact".to_owned());
        }
        let listed = |kind: &String| signatures.iter().any(|signature| signature.kind == *kind);
        foreign.extend(
            other_kinds(&superblock, found)
                .filter(|kind| !listed(kind))
                .cloned(),
        );
        if inside.is_empty() && foreign.is_empty() && !found.is_empty() {
            return Self::unproven(superblock, found);
        }
        Self {
            superblock,
            inside: firsts(&inside),
            foreign,
        }
    }

    /// For a device whose other signatures are unknown.
    pub fn unproven(superblock: Superblock, found: &[String]) -> Self {
        let mut foreign: Vec<String> = other_kinds(&superblock, found).cloned().collect();
        if foreign.is_empty() {
            foreign.push("content that blkid does not identify".to_owned());
        }
        Self {
            superblock,
            inside: Vec::new(),
            foreign,
        }
    }

    /// The superblock, if all else on the device is data of its files.
    pub fn proven(&self) -> Option<&Superblock> {
        self.foreign.is_empty().then_some(&self.superblock)
    }

    /// Replaces what blkid has reported.
    pub fn describe(self, content: &mut Content) {
        content.kind = self.superblock.kind;
        content.uuid = self.superblock.uuid;
        content.label = self.superblock.label;
        content.also = self.foreign;
        content.inside = self.inside;
        content.ours = true;
    }
}

/// The first signature of each kind, because ZFS has hundreds.
fn firsts(signatures: &[&Signature]) -> Vec<String> {
    let is_first = |(index, signature): &(usize, &&Signature)| {
        let mut before = signatures.iter().take(*index);
        before.all(|other| other.kind != signature.kind)
    };
    let firsts = signatures.iter().enumerate().filter(is_first);
    firsts.map(|(_, signature)| signature.words()).collect()
}

/// Kinds that blkid has reported besides the filesystem. `several` stands for kinds that it does
/// not name.
fn other_kinds<'a>(superblock: &Superblock, found: &'a [String]) -> impl Iterator<Item = &'a String> {
    let is_other = |kind: &&String| **kind != superblock.kind && !kind.starts_with("several");
    found.iter().filter(is_other)
}

#[cfg(test)]
mod tests;
