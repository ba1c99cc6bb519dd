//! Reads the superblock of an ext2/3/4, xfs, btrfs, swap or vfat filesystem, and decides whether
//! the filesystem was used since its `mkfs`.
//!
//! Offsets are those of the on-disk formats: `fs/ext4/ext4.h` (`struct ext4_super_block`),
//! `fs/xfs/libxfs/xfs_format.h` (`struct xfs_dsb`), `include/uapi/linux/btrfs_tree.h` (`struct
//! btrfs_super_block`), `include/linux/swap.h` (`union swap_header`), and the FAT specification. No
//! tool is used, because tools fail on the result of an interrupted `mkfs`.

use serde::{Deserialize, Serialize};

use super::on_disk::{be, hex_uuid, le};

/// Number of bytes that [`Superblock::parse`] needs from the start of the device: the superblock of
/// btrfs is at 64 KiB.
pub const HEAD_BYTES: usize = 128 << 10;

/// Offset of the superblock of ext2, ext3 and ext4.
pub(super) const EXT4_AT: usize = 1024;
/// Offset of the first superblock of btrfs.
pub(super) const BTRFS_AT: usize = 64 << 10;

/// Incompatible feature of ext4: the journal has transactions to replay.
const EXT4_NEEDS_RECOVERY: u64 = 0x4;
/// Compatible feature of ext4: inode 12 holds the orphan file.
const EXT4_ORPHAN_FILE: u64 = 0x1000;
/// Inodes that mke2fs uses: ten reserved ones and `lost+found`.
const EXT4_MKFS_INODES: u64 = 11;
/// Inodes that mkfs.xfs uses: the root directory and two of the realtime device.
const XFS_MKFS_INODES: u64 = 3;
/// Incompatible feature of xfs: metadata inodes in their own directory, so mkfs.xfs uses more
/// inodes.
const XFS_METADIR: u64 = 1 << 8;
/// Upper bound of the generations that `mkfs.btrfs` uses: 6 in version 6.2, 8 or 9 in later ones.
const BTRFS_MKFS_GENERATIONS: u64 = 16;

/// Fields of a superblock. A field is `None` if the format does not have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Superblock {
    /// As blkid(8) names it: `ext2`, `ext3`, `ext4`, `xfs`, `btrfs`, `swap` or `vfat`.
    pub kind: String,
    /// UUID in lower case with hyphens; for vfat the serial number, `1234-ABCD`.
    pub uuid: Option<String>,
    /// Label; `None` if empty.
    pub label: Option<String>,
    /// Size of the filesystem in bytes; for btrfs its part on this device.
    pub filesystem_bytes: Option<u64>,
    /// Number of devices of the filesystem; only for btrfs.
    pub devices: Option<u64>,
    /// Creation time, seconds since 1970.
    pub made: Option<u64>,
    /// Number of read-write mounts since it was made or checked.
    pub mount_count: Option<u32>,
    /// Last read-write mount, seconds since 1970; `None` if it was never mounted.
    pub last_mount: Option<u64>,
    /// Last write of the superblock, seconds since 1970.
    pub last_write: Option<u64>,
    /// Bytes written over its lifetime, rounded down to KiB.
    pub lifetime_bytes: Option<u64>,
    /// Trace of use since its `mkfs`, e.g. `mounted 3 times`; `None` if there is none. Always
    /// `None` for swap and vfat, which record no use.
    pub used: Option<String>,
}

impl Superblock {
    /// Parses the superblock in the first [`HEAD_BYTES`] of a device; fewer bytes are allowed.
    ///
    /// `None` if there is no superblock of these kinds. Input is untrusted: it never panics, and
    /// sizes that overflow are `None`.
    pub fn parse(head: &[u8]) -> Option<Self> {
        xfs(head)
            .or_else(|| ext(head))
            .or_else(|| btrfs(head))
            .or_else(|| swap(head))
            .or_else(|| vfat(head))
    }
}

fn ext(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(EXT4_AT..EXT4_AT + 1024)?;
    if le(sb, 0x38, 2) != 0xEF53 {
        return None;
    }
    let (compat, incompat, ro_compat) = (le(sb, 0x5C, 4), le(sb, 0x60, 4), le(sb, 0x64, 4));
    // Same rule as libblkid: extents and later features make it ext4, only a journal makes it ext3.
    let kind = if incompat & !0x16 != 0 || ro_compat & !0x7 != 0 {
        "ext4"
    } else if compat & 0x4 != 0 {
        "ext3"
    } else {
        "ext2"
    };
    let high = |at| if incompat & 0x80 == 0 { 0 } else { le(sb, at, 4) };
    let blocks = le(sb, 0x04, 4) | high(0x150) << 32;
    let shift = le(sb, 0x18, 4);
    let block = (shift <= 6).then(|| 1024_u64 << shift);
    let seconds = |at: usize, high: usize| le(sb, at, 4) | le(sb, high, 1) << 32;
    let made = seconds(0x108, 0x276);
    let (last_mount, checked) = (seconds(0x2C, 0x275), seconds(0x40, 0x277));
    let mount_count = u32::try_from(le(sb, 0x34, 2)).unwrap_or(u32::MAX);
    let inodes = le(sb, 0x00, 4).saturating_sub(le(sb, 0x10, 4));
    let by_mkfs = EXT4_MKFS_INODES + u64::from(compat & EXT4_ORPHAN_FILE != 0);
    let used = if incompat & EXT4_NEEDS_RECOVERY != 0 {
        Some("its journal has changes to replay".to_owned())
    } else if mount_count > 0 {
        Some(format!("mounted {mount_count} times"))
    } else if last_mount > 0 {
        Some(format!("mounted at second {last_mount} since 1970"))
    } else if made > 0 && checked != made {
        Some("checked by e2fsck since it was made".to_owned())
    } else if inodes > by_mkfs {
        Some(format!("{inodes} inodes in use, but mkfs.ext4 uses {by_mkfs}"))
    } else {
        None
    };
    Some(Superblock {
        kind: kind.to_owned(),
        uuid: hex_uuid(sb.get(0x68..0x78)?),
        label: text(sb.get(0x78..0x88)?),
        filesystem_bytes: block.and_then(|block| blocks.checked_mul(block)),
        devices: None,
        made: (made > 0).then_some(made),
        mount_count: Some(mount_count),
        last_mount: (last_mount > 0).then_some(last_mount),
        last_write: Some(seconds(0x30, 0x274)),
        lifetime_bytes: le(sb, 0x178, 8).checked_mul(1024),
        used,
    })
}

fn xfs(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(..512)?;
    if !sb.starts_with(b"XFSB") {
        return None;
    }
    let version = be(sb, 100, 2) & 0xF;
    let (inodes, free) = (be(sb, 128, 8), be(sb, 136, 8));
    let in_use = inodes.saturating_sub(free);
    let many = if be(sb, 216, 4) & XFS_METADIR != 0 {
        64
    } else {
        XFS_MKFS_INODES
    };
    // sb_lsn: log position of the last logged change; mkfs.xfs does not log.
    let lsn = if version >= 5 { be(sb, 240, 8) } else { 0 };
    let used = if lsn != 0 {
        Some(format!("mounted since it was made (log position {lsn:#x})"))
    } else if in_use > many {
        Some(format!("{in_use} inodes in use, but mkfs.xfs uses {many}"))
    } else {
        None
    };
    Some(Superblock {
        kind: "xfs".to_owned(),
        uuid: hex_uuid(sb.get(32..48)?),
        label: text(sb.get(108..120)?),
        filesystem_bytes: be(sb, 8, 8).checked_mul(be(sb, 4, 4)),
        used,
        ..Superblock::default()
    })
}

fn btrfs(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(BTRFS_AT..BTRFS_AT + 4096)?;
    if sb.get(64..72)? != b"_BHRfS_M" {
        return None;
    }
    let (generation, log, uuid_tree) = (le(sb, 72, 8), le(sb, 96, 8), le(sb, 563, 8));
    let used = if log != 0 {
        Some("it has a log tree, which fsync(2) creates".to_owned())
    } else if generation > BTRFS_MKFS_GENERATIONS {
        Some(format!(
            "generation {generation}, but mkfs.btrfs ends below {BTRFS_MKFS_GENERATIONS}"
        ))
    } else if uuid_tree != 0 {
        Some(format!(
            "mounted for writing (generation {uuid_tree} of the UUID tree)"
        ))
    } else {
        None
    };
    Some(Superblock {
        kind: "btrfs".to_owned(),
        uuid: hex_uuid(sb.get(32..48)?),
        label: text(sb.get(299..555)?),
        filesystem_bytes: Some(le(sb, 201 + 8, 8)),
        devices: Some(le(sb, 136, 8)),
        used,
        ..Superblock::default()
    })
}

fn swap(head: &[u8]) -> Option<Superblock> {
    // The signature is at the end of the first page, whose size depends on the kernel that made it.
    let page = [4096_usize, 8192, 16384, 65536]
        .into_iter()
        .find(|page| head.get(page - 10..*page) == Some(b"SWAPSPACE2"))?;
    let last_page = le(head, 1028, 4);
    Some(Superblock {
        kind: "swap".to_owned(),
        uuid: hex_uuid(head.get(1036..1052)?),
        label: text(head.get(1052..1068)?),
        filesystem_bytes: (last_page + 1).checked_mul(page as u64),
        ..Superblock::default()
    })
}

fn vfat(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(..512)?;
    if sb.get(510..512)? != [0x55, 0xAA] {
        return None;
    }
    let (serial, label) = if sb.get(0x52..0x57)? == b"FAT32" {
        (0x43, 0x47)
    } else if sb.get(0x36..0x39)? == b"FAT" {
        (0x27, 0x2B)
    } else {
        return None;
    };
    let number = le(sb, serial, 4);
    let sectors = match le(sb, 0x13, 2) {
        0 => le(sb, 0x20, 4),
        few => few,
    };
    let label = sb.get(label..label + 11)?;
    let label = text(label.trim_ascii_end()).filter(|label| label != "NO NAME");
    Some(Superblock {
        kind: "vfat".to_owned(),
        uuid: Some(format!("{:04X}-{:04X}", number >> 16, number & 0xFFFF)),
        label,
        filesystem_bytes: sectors.checked_mul(le(sb, 0x0B, 2)),
        ..Superblock::default()
    })
}

/// Bytes up to the first zero as text; `None` if empty.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
