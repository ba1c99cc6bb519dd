//! Numbers and UUIDs as filesystems store them.

/// Little-endian number of up to eight bytes; what lies outside of `bytes` counts as zero.
pub(super) fn le(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Big-endian number of up to eight bytes; what lies outside of `bytes` counts as zero.
pub(super) fn be(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Sixteen bytes as a UUID in lower case with hyphens; none when all are zero or there are not sixteen.
pub(super) fn hex_uuid(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    (bytes != [0; 16]).then(|| uuid::Uuid::from_bytes(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_of_the_bytes_are_zero() {
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
