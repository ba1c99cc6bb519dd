//! Numbers of variable length in the compact forms of this module: seven bits a byte, the lowest
//! first, as in protobuf.

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Reads the number at `at` and moves behind it; 0 at the end of `bytes`.
#[inline]
pub(super) fn take(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some(&byte) = bytes.get(*at) {
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift = (shift + 7).min(63);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut out = Vec::new();
        let numbers: Vec<u64> = (0..64)
            .flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX >> bit])
            .collect();
        for number in &numbers {
            put(&mut out, *number);
        }
        let mut at = 0;
        for number in numbers {
            assert_eq!(take(&out, &mut at), number);
        }
        assert_eq!((at, take(&out, &mut at)), (out.len(), 0));
    }
}
