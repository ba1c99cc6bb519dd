//! Decides whether an interrupted run of the agent's own tool wrote the bytes on a disk.
//!
//! A non-zero byte is the tool's if one of these holds:
//! - ext4: a second run with the same arguments on a scratch file (the *reference*) wrote the same
//!   byte at the same offset. The comparison ignores the fields of superblocks and inodes that
//!   contain a time, the hash seed, a write counter, or a checksum over these.
//! - xfs and btrfs: it is in a metadata block that contains the filesystem's UUID and its own
//!   position, and a valid checksum. These formats are self-describing, so no reference is needed.
//! - swap: it is the byte that mkswap writes in its one page.
//!
//! Every other byte is foreign, also in torn blocks: formatting needs an approval.

mod btrfs;
mod common;
mod ext4;
mod swap;
pub(super) mod xfs;

use super::{probe::Region, regions::WHOLE_BYTES};
use common::zero;
use common::{MAX_XFS_GROUPS, XFS_GROUP_BYTES, first};

/// Offsets and lengths of pieces passed to [`Remains::foreign`] are multiples of this, except at
/// the end of the device. It is the largest block size of xfs and btrfs, so that no block is split.
pub const PIECE: u64 = 64 << 10;

/// mkfs.btrfs creates its first block groups within this range.
const BTRFS_BYTES: u64 = 1 << 30;

/// Expected content after an interrupted run, by filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    format: Format,
    uuid: [u8; 16],
    /// Size of the device in bytes.
    size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Format {
    Ext4(Option<ext4::Layout>),
    Xfs,
    Btrfs,
    Swap { label: Vec<u8> },
}

impl Remains {
    /// For an interrupted `mkfs` of that kind (`ext4`, `xfs`, `btrfs`, `swap`) with that UUID and
    /// label on a device of `size` bytes; `None` for another kind or an invalid UUID.
    pub fn new(filesystem: &str, uuid: &str, label: Option<&str>, size: u64) -> Option<Self> {
        let format = match filesystem {
            "ext4" => Format::Ext4(None),
            "xfs" => Format::Xfs,
            "btrfs" => Format::Btrfs,
            "swap" => Format::Swap {
                label: label.unwrap_or_default().as_bytes().to_vec(),
            },
            _ => return None,
        };
        let uuid = uuid::Uuid::parse_str(uuid).ok()?.into_bytes();
        Some(Self { format, uuid, size })
    }

    /// Whether a reference is needed: the result of the same tool in a file of the same size.
    pub fn needs_reference(&self) -> bool {
        matches!(self.format, Format::Ext4(_))
    }

    /// Reads the layout from the first 128 KiB of the reference. Returns false if the reference has
    /// no filesystem with this UUID; then every byte is foreign.
    pub fn read_reference(&mut self, head: &[u8]) -> bool {
        let layout = ext4::Layout::parse(head, &self.uuid);
        let found = layout.is_some();
        if let Format::Ext4(known) = &mut self.format {
            *known = layout;
        }
        found
    }

    /// Returns the regions that the tool writes outside of a proof's regions; `head` is the first
    /// 128 KiB of the disk. Unsorted; regions may overlap and exceed the device.
    pub fn places(&self, head: &[u8]) -> Vec<Region> {
        match &self.format {
            Format::Xfs => xfs::places(head, &self.uuid),
            Format::Btrfs => vec![Region {
                offset: 0,
                length: BTRFS_BYTES,
            }],
            Format::Ext4(_) | Format::Swap { .. } => Vec::new(),
        }
    }

    /// Widens regions to multiples of [`PIECE`], cuts them at the end of the device, and merges
    /// them.
    pub fn widened(&self, regions: impl IntoIterator<Item = Region>) -> Vec<Region> {
        let mut parts: Vec<(u64, u64)> = regions
            .into_iter()
            .map(|region| {
                let start = region.offset - region.offset % PIECE;
                let end = region.offset.saturating_add(region.length);
                (
                    start,
                    end.checked_next_multiple_of(PIECE)
                        .unwrap_or(u64::MAX)
                        .min(self.size),
                )
            })
            .filter(|(start, end)| start < end)
            .collect();
        if self.size <= WHOLE_BYTES {
            parts = vec![(0, self.size)];
        }
        parts.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in parts {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let region = |(start, end)| Region {
            offset: start,
            length: end - start,
        };
        merged.into_iter().map(region).collect()
    }

    /// Returns the offset of the first byte in a piece that is neither zero nor provably the
    /// tool's.
    ///
    /// `offset` is a multiple of [`PIECE`]. `reference` is the same piece of the reference: as long
    /// as `disk`, or empty if none is needed.
    pub fn foreign(&self, offset: u64, disk: &[u8], reference: &[u8]) -> Option<u64> {
        let at = match &self.format {
            Format::Ext4(Some(layout)) => layout.foreign(offset, disk, reference),
            Format::Ext4(None) => first(disk, 0),
            Format::Xfs => xfs::foreign(offset, disk, &self.uuid),
            Format::Btrfs => btrfs::foreign(offset, disk, &self.uuid),
            Format::Swap { label } => swap::foreign(offset, disk, &self.uuid, label, self.size),
        };
        at.map(|at| offset + at as u64)
    }
}

#[cfg(test)]
mod tests;
