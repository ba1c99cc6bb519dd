//! Metadata that volume managers store at the end of a volume. After the volume has grown it is in
//! the middle, where no tool searches for it.
//!
//! Sources:
//! - md 0.90, 1.0: `include/uapi/linux/raid/md_p.h` and `drivers/md/md.c` (`super_90_load`,
//!   `super_1_load`).
//! - DRBD: `drivers/block/drbd/drbd_int.h` (`DRBD_MD_MAGIC_*`) and `drbd_main.c` (`struct
//!   meta_data_on_disk`).
//! - ZFS: `uberblock_impl.h`, labels as in "ZFS On-Disk Specification" 1.2.
//! - GPT: UEFI 2.10, 5.3.2.
//! - DDF: SNIA "Common RAID Disk Data Format" 2.0, 4.2.1.

const MIB: u64 = 1 << 20;
/// `MD_SB_MAGIC`.
const MD: u32 = 0xa92b_4efc;
/// `DRBD_MD_MAGIC_07` to that of DRBD 9, big-endian.
const DRBD: std::ops::RangeInclusive<u32> = 0x8374_026a..=0x8374_026d;
/// Offset of the magic number in DRBD's superblock.
const DRBD_AT: usize = 60;
/// `UBERBLOCK_MAGIC`.
const ZFS: u64 = 0x00ba_b10c;
/// A header of a GUID partition table with its revision 1.0.
const GPT: &[u8] = b"EFI PART\0\0\x01\0";
/// The anchor header of DDF, big-endian.
const DDF: u32 = 0xde11_de11;
/// Intel's firmware RAID.
const IMSM: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// Number of bytes after the end of a filesystem to search on a disk of `size` bytes. DRBD stores a
/// bit per 4 KiB there, and an activity log.
pub fn search_bytes(size: u64) -> u64 {
    16 * MIB + size / (16 << 10)
}

/// Returns the first metadata in bytes that begin at a multiple of 4096 of the device: its kind, as
/// blkid(8) names it, and its offset in the bytes.
pub fn find(bytes: &[u8]) -> Option<(&'static str, usize)> {
    bytes
        .chunks(512)
        .enumerate()
        .find_map(|(sector, block)| Some((kind(block, sector)?, sector * 512)))
}

/// Kind of the metadata that begins in this sector.
fn kind(block: &[u8], sector: usize) -> Option<&'static str> {
    if block.starts_with(GPT) {
        return Some("gpt");
    }
    if block.starts_with(&DDF.to_be_bytes()) {
        return Some("ddf_raid_member");
    }
    if block.starts_with(IMSM) {
        return Some("isw_raid_member");
    }
    let word = |at: usize| -> Option<[u8; 4]> { block.get(at..at + 4)?.try_into().ok() };
    if sector.is_multiple_of(8) {
        let (magic, major) = (word(0)?, word(4)?);
        let is_md = |read: fn([u8; 4]) -> u32| read(magic) == MD && read(major) <= 1;
        if is_md(u32::from_le_bytes) || is_md(u32::from_be_bytes) {
            return Some("linux_raid_member");
        }
        if DRBD.contains(&u32::from_be_bytes(word(DRBD_AT)?)) {
            return Some("drbd");
        }
    }
    if sector.is_multiple_of(2) {
        let magic: [u8; 8] = block.get(..8)?.try_into().ok()?;
        if u64::from_le_bytes(magic) == ZFS || u64::from_be_bytes(magic) == ZFS {
            return Some("zfs_member");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![0; 64 << 10];
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    }

    #[test]
    fn metadata_is_found_only_at_its_alignment() {
        let md = |version: u32| [MD.to_le_bytes(), version.to_le_bytes()].concat();
        let md_big = [MD.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        for (at, bytes, kind) in [
            (8192, md(1), "linux_raid_member"),
            (4096, md(0), "linux_raid_member"),
            (0, md_big, "linux_raid_member"),
            (4096, GPT.to_vec(), "gpt"),
            (1536, GPT.to_vec(), "gpt"),
            (512, DDF.to_be_bytes().to_vec(), "ddf_raid_member"),
            (1024, IMSM.to_vec(), "isw_raid_member"),
            (3072, ZFS.to_le_bytes().to_vec(), "zfs_member"),
            (3072, ZFS.to_be_bytes().to_vec(), "zfs_member"),
        ] {
            assert_eq!(find(&put(at, &bytes)), Some((kind, at)), "{kind} at {at}");
            assert_eq!(find(&put(at + 1, &bytes)), None, "{kind} at {}", at + 1);
        }
        for magic in DRBD {
            assert_eq!(
                find(&put(12288 + DRBD_AT, &magic.to_be_bytes())),
                Some(("drbd", 12288))
            );
        }
        assert_eq!(find(&put(512, &md(1))), None);
        assert_eq!(find(&put(4096, &md(7))), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&MD.to_le_bytes()), None);
    }

    #[test]
    fn search_covers_the_drbd_bitmap() {
        for size in [1 << 30, 1 << 40, 16_u64 << 40] {
            let bitmap = size / 4096 / 8;
            assert!(search_bytes(size) >= bitmap + 8 * MIB, "{size}");
        }
    }
}
