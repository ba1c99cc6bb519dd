//! State byte of FAT, which a read-write mount changes.

/// Offset of the state byte in a FAT boot sector (`struct fat_boot_sector`, Linux
/// `include/uapi/linux/msdos_fs.h`).
pub(super) fn state_byte(boot: &[u8]) -> Option<usize> {
    let is = |at: usize, kind: &[u8]| boot.get(at..).is_some_and(|rest| rest.starts_with(kind));
    if boot.get(510..512) != Some(&[0x55, 0xaa]) {
        None
    } else if is(0x52, b"FAT32") {
        Some(0x41)
    } else if is(0x36, b"FAT1") {
        Some(0x25)
    } else {
        None
    }
}
