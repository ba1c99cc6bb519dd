//! What the searches share.

/// Maximum number of bytes that mkfs.xfs writes at the start of an allocation group: headers, roots
/// of the free space and inode trees, the first chunk of inodes.
pub(super) const XFS_GROUP_BYTES: u64 = 256 << 10;

/// Maximum number of xfs allocation groups that are read.
pub(super) const MAX_XFS_GROUPS: u64 = 1024;

/// Returns the first non-zero byte from `start` on.
pub(super) fn first(bytes: &[u8], start: usize) -> Option<usize> {
    let found = bytes.get(start..)?.iter().position(|byte| *byte != 0)?;
    Some(start + found)
}

/// Whether every byte is zero.
pub(super) fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
