//! The two CRC-32 checksums of on-disk formats.

/// Reflected polynomial of IEEE 802.3, used by GPT (UEFI 2.10, 5.3.2).
const IEEE: u32 = 0xedb8_8320;
/// Reflected polynomial of Castagnoli, used by ext4 (Linux `lib/crc32.c`, `CRC32C_POLY_LE`).
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// CRC-32 as GPT uses it: initial value and final inversion of all bits.
pub(super) fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |crc, bytes| update(IEEE, crc, bytes))
}

/// CRC-32C as ext4 stores it: initial value of all ones, no final inversion.
pub(super) fn crc32c_ext4(bytes: &[u8]) -> u32 {
    update(CASTAGNOLI, !0, bytes)
}

fn update(polynomial: u32, mut crc: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (polynomial & (crc & 1).wrapping_neg());
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values() {
        assert_eq!(crc32(&[b"12345", b"6789"]), 0xcbf4_3926);
        assert_eq!(!crc32c_ext4(b"123456789"), 0xe306_9283);
    }
}
