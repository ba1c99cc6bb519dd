//! Numbers, UUIDs and checksums in the on-disk formats of filesystems.

/// Reads a little-endian number of up to eight bytes; bytes beyond the end are zero.
pub(super) fn le(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Reads a big-endian number of up to eight bytes; bytes beyond the end are zero.
pub(super) fn be(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Formats sixteen bytes as a UUID in lower case with hyphens; `None` if all are zero or bytes are
/// missing.
pub(super) fn hex_uuid(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    (bytes != [0; 16]).then(|| uuid::Uuid::from_bytes(bytes).to_string())
}

/// Updates the CRC-32C state `crc` (Castagnoli, reflected, polynomial 0x82F63B78). Initial value
/// and final complement are left to the caller, because ext4, xfs and btrfs differ in both.
pub(super) fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        let index = (crc ^ u32::from(*byte)) & 0xFF;
        crc >> 8 ^ TABLE[index as usize]
    })
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 {
                crc >> 1
            } else {
                crc >> 1 ^ 0x82F6_3B78
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_its_check_value() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn numbers_beyond_the_end_are_zero() {
        assert_eq!((le(&[1, 2], 0, 2), be(&[1, 2], 0, 2)), (0x0201, 0x0102));
        assert_eq!((le(&[1], 0, 2), be(&[1], 5, 8)), (0, 0));
        assert_eq!(hex_uuid(&[0; 16]), None);
        assert_eq!(hex_uuid(&[1; 15]), None);
        assert_eq!(
            hex_uuid(&[0x11; 16]).as_deref(),
            Some("11111111-1111-1111-1111-111111111111")
        );
    }
}
