//! Small OS image in memory: a BIOS boot partition, a FAT and an ext4, each with the parts that are
//! judged.

use super::{
    FirstBoot,
    checksum::{crc32, crc32c_ext4},
    source::Source,
};

pub(super) const SECTOR: usize = 512;
/// Bytes of the image.
pub(super) const IMAGE: usize = 3 << 20;
/// Partitions as (start, bytes).
pub(super) const BIOS: (usize, usize) = (64 * SECTOR, 32 << 10);
pub(super) const FAT: (usize, usize) = (128 * SECTOR, 64 << 10);
pub(super) const EXT4: (usize, usize) = (1 << 20, 1536 << 10);
/// Bytes of the filesystem in the ext4 partition.
pub(super) const FILESYSTEM: u32 = 1 << 20;
/// Build time of the image, and first boot of the root disk.
pub(super) const BUILT: u32 = 1_700_000_000;
pub(super) const FIRST_BOOT: u64 = 1_750_000_000;
/// First inode in use.
pub(super) const FIRST_INODE: usize = 11;
const FIRST_INODE_NUMBER: u32 = 11;

pub(super) struct Memory(pub(super) Vec<u8>);

impl Source for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let start = usize::try_from(offset).unwrap();
        self.0
            .get(start..start + length)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| "beyond the end".to_owned())
    }
}

pub(super) fn first_boot() -> FirstBoot {
    FirstBoot {
        at: FIRST_BOOT,
        source: "/var/log/journal/0".to_owned(),
    }
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Offset of a superblock field in an image.
pub(super) fn field(at: usize) -> usize {
    EXT4.0 + 1024 + at
}

/// Offset of an inode in an image.
pub(super) fn inode(number: usize) -> usize {
    EXT4.0 + 5 * 1024 + (number - 1) * 256
}

/// Updates the superblock's checksum.
pub(super) fn seal(bytes: &mut [u8]) {
    let sum = crc32c_ext4(&bytes[field(0)..field(0x3fc)]);
    put(bytes, field(0x3fc), &sum.to_le_bytes());
}

/// Writes both copies of the partition table of a disk whose last partition is `grown` bytes larger
/// than the image's.
pub(super) fn write_gpt(bytes: &mut [u8], grown: usize) {
    let last = (bytes.len() / SECTOR - 1) as u64;
    let mut array = vec![0_u8; 128 * 128];
    for (index, (start, length), more) in [(0_u8, BIOS, 0), (1, FAT, 0), (2, EXT4, grown)] {
        let entry = &mut array[usize::from(index) * 128..][..128];
        entry[..16].fill(0x10 + index);
        entry[16..32].fill(0x20 + index);
        let end = start + length + more;
        put(entry, 32, &((start / SECTOR) as u64).to_le_bytes());
        put(entry, 40, &((end / SECTOR - 1) as u64).to_le_bytes());
        put(entry, 56, b"p\0");
    }
    let header = |own: u64, other: u64, at: u64| {
        let mut header = vec![0_u8; 92];
        put(&mut header, 0, b"EFI PART\0\0\x01\0\x5c\0\0\0");
        for (place, value) in [(24, own), (32, other), (40, 34), (48, last - 33), (72, at)] {
            put(&mut header, place, &value.to_le_bytes());
        }
        header[56..72].fill(0x77);
        put(&mut header, 80, &128_u32.to_le_bytes());
        put(&mut header, 84, &128_u32.to_le_bytes());
        put(&mut header, 88, &crc32(&[&array]).to_le_bytes());
        let sum = crc32(&[&header]);
        put(&mut header, 16, &sum.to_le_bytes());
        header
    };
    let (front, back) = (header(1, last, 2), header(last, 1, last - 32));
    put(bytes, SECTOR, &front);
    put(bytes, 2 * SECTOR, &array);
    let end = bytes.len();
    put(bytes, end - 33 * SECTOR, &array);
    put(bytes, end - SECTOR, &back);
}

/// Returns the image.
pub(super) fn image() -> Vec<u8> {
    let mut bytes = vec![0_u8; IMAGE];
    bytes[..440].fill(0xeb);
    put(
        &mut bytes,
        446,
        &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0, 0],
    );
    put(&mut bytes, 510, &[0x55, 0xaa]);
    write_gpt(&mut bytes, 0);
    bytes[BIOS.0..BIOS.0 + BIOS.1].fill(0x42);
    bytes[FAT.0 + 4096..FAT.0 + 8192].fill(0x17);
    put(&mut bytes, FAT.0 + 0x36, b"FAT16   ");
    put(&mut bytes, FAT.0 + 510, &[0x55, 0xaa]);
    let wide = |value: u32| value.to_le_bytes();
    for (at, value) in [
        (0x0, 32),
        (0x4, FILESYSTEM / 1024),
        (0x14, 1),
        (0x20, 8192),
        (0x28, 32),
        (0x2c, BUILT),
        (0x30, BUILT + 300),
        (0x4c, 1),
        (0x60, 0x42),
        (0x64, 0x400),
        (0x108, BUILT - 1000),
        (0x178, 5000),
    ] {
        put(&mut bytes, field(at), &wide(value));
    }
    for (at, value) in [(0x34, 4_u16), (0x38, 0xef53), (0x3a, 1), (0x58, 256)] {
        put(&mut bytes, field(at), &value.to_le_bytes());
    }
    bytes[field(0x68)..field(0x78)].fill(0x99);
    seal(&mut bytes);
    // The group's descriptor: its inode table begins in block 5.
    put(&mut bytes, EXT4.0 + 2048 + 8, &wide(5));
    for (number, value) in (FIRST_INODE..FIRST_INODE + 5).zip(FIRST_INODE_NUMBER..) {
        let at = inode(number);
        put(&mut bytes, at, &[0xa4, 0x81]);
        put(&mut bytes, at + 0x1a, &[1, 0]);
        put(&mut bytes, at + 0xc, &wide(BUILT + value));
        put(&mut bytes, at + 0x64, &wide(value * 77));
    }
    bytes
}

/// The image as used root disk: larger, grown, mounted twice, one file changed.
pub(super) fn root() -> Vec<u8> {
    let mut bytes = image();
    let end = bytes.len();
    bytes[end - 33 * SECTOR..].fill(0);
    bytes.resize(IMAGE + (1 << 20), 0);
    write_gpt(&mut bytes, 1 << 20);
    let now = u32::try_from(FIRST_BOOT).unwrap() + 60;
    put(&mut bytes, field(0x2c), &now.to_le_bytes());
    put(&mut bytes, field(0x30), &now.to_le_bytes());
    put(&mut bytes, field(0x34), &6_u16.to_le_bytes());
    put(&mut bytes, field(0x178), &9000_u32.to_le_bytes());
    seal(&mut bytes);
    put(&mut bytes, inode(FIRST_INODE) + 0xc, &now.to_le_bytes());
    bytes[FAT.0 + 0x25] |= 1;
    bytes
}
