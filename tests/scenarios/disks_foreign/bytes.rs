//! Superblocks as their formats have them on the disk, as far as a reader looks: written by hand,
//! since their tools need the kernel's help, or a system that is not this one.

type Parts = Vec<(u64, Vec<u8>)>;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Values at places of a block.
fn block(length: usize, values: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (at, value) in values {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    bytes
}

const UUID: &[u8] = b"0123456789abcdef";

/// Four bytes as a number.
fn word_of(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// md(4) 0.90: 4 KiB, 64 KiB from the end rounded down to 64 KiB (`MD_NEW_SIZE_SECTORS`); native
/// byte order.
pub(crate) fn md_0_90(size: u64) -> Parts {
    let place = size / (64 * KIB) * (64 * KIB) - 64 * KIB;
    let le = |value: u32| value.to_le_bytes();
    let super_block = block(
        4096,
        &[
            (0, &le(0xa92b_4efc)),
            (4, &le(0)),
            (8, &le(90)),
            (20, &UUID[..4]),
            (28, &le(1)),
            (52, &UUID[..12]),
        ],
    );
    vec![(place, super_block)]
}

/// md(4) 1.x at a place: magic, major version, `set_uuid`, and where it stands itself, in sectors.
fn md_1(place: u64) -> Parts {
    let le = |value: u32| value.to_le_bytes();
    let mut super_block = block(
        4096,
        &[
            (0, &le(0xa92b_4efc)),
            (4, &le(1)),
            (16, UUID),
            (72, &le(1)),
            (144, &(place / 512).to_le_bytes()),
        ],
    );
    // Checksum over the first 256 bytes and no roles, itself taken as zero: 32-bit words added up,
    // the carry folded in.
    let sum: u64 = super_block[..256]
        .chunks(4)
        .map(|word| u64::from(word_of(word)))
        .sum();
    let folded = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap_or_default();
    super_block[216..220].copy_from_slice(&folded.to_le_bytes());
    vec![(place, super_block)]
}

/// Between 8 and 12 KiB from the end.
pub(crate) fn md_1_0(size: u64) -> Parts {
    md_1((size / 512 - 16) / 8 * 8 * 512)
}
pub(crate) fn md_1_1(_: u64) -> Parts {
    md_1(0)
}
pub(crate) fn md_1_2(_: u64) -> Parts {
    md_1(4096)
}

/// Uberblocks, from 128 KiB of each of the four labels of 256 KiB: two in front, two behind.
pub(crate) fn zfs(size: u64) -> Parts {
    let labels = [0, 256 * KIB, size - 512 * KIB, size - 256 * KIB];
    let uberblock = block(
        1024,
        &[(0, &0x00ba_b10c_u64.to_le_bytes()), (8, &5000_u64.to_le_bytes())],
    );
    let ring = uberblock.repeat(128);
    labels.map(|label| (label + 128 * KIB, ring.clone())).into()
}

/// DRBD 8.4 with internal metadata: 4 KiB from the end, big endian, magic after 60 bytes.
pub(crate) fn drbd(size: u64) -> Parts {
    let magic = 0x8374_026b_u32.to_be_bytes();
    vec![(
        size - 4096,
        block(
            4096,
            &[
                (0, &(size / 512).to_be_bytes()),
                (40, UUID),
                (60, &magic),
                (64, &8_u32.to_be_bytes()),
            ],
        ),
    )]
}

pub(crate) fn vmfs_volume(_: u64) -> Parts {
    vec![(
        MIB,
        block(512, &[(0, &0xc001_d00d_u32.to_le_bytes()), (0x82, UUID)]),
    )]
}
pub(crate) fn vmfs(_: u64) -> Parts {
    vec![(
        2 * MIB,
        block(512, &[(0, &0x2fab_f15e_u32.to_le_bytes()), (9, UUID)]),
    )]
}

/// A boot sector whose system is `-FVE-FS-`, and the metadata that it points to.
pub(crate) fn bitlocker(_: u64) -> Parts {
    let boot = block(
        512,
        &[
            (0, b"\xeb\x58\x90-FVE-FS-"),
            (176, &(MIB).to_le_bytes()),
            (510, b"\x55\xaa"),
        ],
    );
    vec![
        (0, boot),
        (
            MIB,
            block(
                64,
                &[
                    (0, b"-FVE-FS-"),
                    (8, &48_u16.to_le_bytes()),
                    (10, &2_u16.to_le_bytes()),
                ],
            ),
        ),
    ]
}

pub(crate) fn vdo(_: u64) -> Parts {
    vec![(
        0,
        block(4096, &[(0, b"dmvdo001"), (8, &5_u32.to_le_bytes()), (36, UUID)]),
    )]
}
pub(crate) fn stratis(_: u64) -> Parts {
    let sector = block(
        512,
        &[(4, b"!Stra0tis\x86\xff\x02^\x41rh"), (32, UUID), (64, UUID)],
    );
    vec![(512, sector.clone()), (9 * 512, sector)]
}
pub(crate) fn bluestore(_: u64) -> Parts {
    vec![(
        0,
        b"bluestore block device\n01234567-89ab-cdef-0123-456789abcdef\n".to_vec(),
    )]
}
/// Intel Matrix RAID: two sectors from the end.
pub(crate) fn isw(size: u64) -> Parts {
    vec![(size - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00".to_vec())]
}
/// SNIA DDF: the anchor header is the last block.
pub(crate) fn ddf(size: u64) -> Parts {
    vec![(
        size - 512,
        block(
            512,
            &[
                (0, &0xde11_de11_u32.to_be_bytes()),
                (8, b"LSI     0123456789abcdef"),
                (32, b"01.02.00"),
            ],
        ),
    )]
}

pub(crate) fn hfsplus(_: u64) -> Parts {
    let header = block(
        512,
        &[
            (0, b"H+"),
            (2, &4_u16.to_be_bytes()),
            (40, &4096_u32.to_be_bytes()),
            (80, b"01234567"),
        ],
    );
    vec![(1024, header)]
}
pub(crate) fn apfs(_: u64) -> Parts {
    let mut block = block(
        4096,
        &[
            (8, &1_u64.to_le_bytes()),
            (24, &[1, 0, 0, 0x80]),
            (32, b"NXSB"),
            (36, &4096_u32.to_le_bytes()),
            (72, UUID),
        ],
    );
    // Fletcher's checksum of what follows the first eight bytes (Apple File System Reference,
    // Objects).
    let (mut low, mut high) = (0_u64, 0_u64);
    for word in block[8..].chunks(4) {
        low = (low + u64::from(word_of(word))) % 0xffff_ffff;
        high = (high + low) % 0xffff_ffff;
    }
    let first = 0xffff_ffff - (low + high) % 0xffff_ffff;
    let second = 0xffff_ffff - (low + first) % 0xffff_ffff;
    block[..8].copy_from_slice(&(first | second << 32).to_le_bytes());
    vec![(0, block)]
}
pub(crate) fn befs(_: u64) -> Parts {
    let le = |value: u32| value.to_le_bytes();
    let super_block = block(
        512,
        &[
            (32, b"BFS1"),
            (36, b"EGIB"),
            (40, &le(1024)),
            (44, &le(10)),
            (68, &le(0xdd12_1031)),
            (72, &le(8192)),
            (76, &le(13)),
            (80, &le(1)),
            (112, &le(0x15b6_830e)),
            (116, &le(0)),
        ],
    );
    vec![(512, super_block)]
}
pub(crate) fn ufs(_: u64) -> Parts {
    vec![(64 * KIB, block(8192, &[(1372, &0x1954_0119_u32.to_le_bytes())]))]
}
pub(crate) fn bcachefs(_: u64) -> Parts {
    let magic = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    vec![(4096, block(4096, &[(24, magic), (40, UUID), (56, UUID)]))]
}
pub(crate) fn oracleasm(_: u64) -> Parts {
    vec![(0, block(512, &[(32, b"ORCLDISKDATA")]))]
}
pub(crate) fn vxfs(_: u64) -> Parts {
    vec![(1024, block(512, &[(0, &0xa501_fcf5_u32.to_le_bytes())]))]
}

/// The first format of Linux, up to 2.2: the last bytes of the first page.
pub(crate) fn swap_old(_: u64) -> Parts {
    vec![(0, vec![0xff; 1024]), (4086, b"SWAP-SPACE".to_vec())]
}
pub(crate) fn suspended(_: u64) -> Parts {
    vec![
        (
            1024,
            block(16, &[(0, &1_u32.to_le_bytes()), (4, &1000_u32.to_le_bytes())]),
        ),
        (4086, b"S1SUSPEND\0".to_vec()),
    ]
}
/// KubeVirt's downward metrics disk.
pub(crate) fn mvbd(_: u64) -> Parts {
    vec![(0, b"mvbd\0\0\0\x01\0\0\0\0\0\0\0\0<metrics></metrics>".to_vec())]
}
/// InnoDB: a page's checksum at its begin is zero when that is switched off, its type stands at 24.
pub(crate) fn database_page(_: u64) -> Parts {
    vec![(38, b"\0\0\0\0\0\0\0\0infimum\0\x02\0\x0b\0\0supremum".to_vec())]
}
