//! Reading and writing of protobuf's wire format, without copies.

use crate::DecodeError;

#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldValue<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32,
}

impl<'a> FieldValue<'a> {
    const fn wire_type(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        }
    }

    pub(crate) fn bytes(self, field: u32) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.unexpected(field)),
        }
    }

    pub(crate) fn text(self, field: u32) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| DecodeError::NotUtf8)
    }

    pub(crate) fn varint(self, field: u32) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.unexpected(field)),
        }
    }

    pub(crate) fn fixed64(self, field: u32) -> Result<u64, DecodeError> {
        match self {
            Self::Fixed64(bits) => Ok(bits),
            other => Err(other.unexpected(field)),
        }
    }

    pub(crate) fn unexpected(self, field: u32) -> DecodeError {
        DecodeError::WireType {
            field,
            wire_type: self.wire_type(),
        }
    }
}

/// The fields of a message, in order.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field's number and value, or nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = read_varint(&mut self.rest)?;
        let field = u32::try_from(key >> 3).map_err(|_| DecodeError::Malformed)?;
        // Field numbers have 29 bits.
        if field == 0 || field >= 1 << 29 {
            return Err(DecodeError::Malformed);
        }
        let value = match key & 7 {
            0 => FieldValue::Varint(read_varint(&mut self.rest)?),
            1 => FieldValue::Fixed64(u64::from_le_bytes(self.take_array()?)),
            2 => {
                let length = read_varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Malformed)?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                FieldValue::Fixed32
            }
            other => {
                return Err(DecodeError::WireType {
                    field,
                    wire_type: u8::try_from(other).unwrap_or(u8::MAX),
                });
            }
        };
        Ok(Some((field, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated {
            left: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_array(&mut self) -> Result<[u8; 8], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<8>().ok_or(DecodeError::Truncated {
            left: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Reads a varint of at most ten bytes and moves past it.
pub(crate) fn read_varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut number = 0_u64;
    for (index, &byte) in rest.iter().enumerate().take(10) {
        // The tenth byte has one bit left.
        if index == 9 && byte > 1 {
            return Err(DecodeError::Malformed);
        }
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *rest = rest.get(index + 1..).unwrap_or_default();
            return Ok(number);
        }
    }
    if rest.len() < 10 {
        return Err(DecodeError::Truncated { left: rest.len() });
    }
    Err(DecodeError::Malformed)
}

pub(crate) fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        // The mask leaves seven bits.
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Number of bytes of a varint.
pub(crate) const fn varint_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Number of bytes of a field with a length, whose field number is below 16.
pub(crate) const fn bytes_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Appends the key and the length of a field with a length, whose number is below 16.
pub(crate) fn write_length(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    write_varint(out, length as u64);
}

/// Appends a field with a length, whose number is below 16.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    write_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_are_read_as_they_were_written() {
        for shift in 0..64 {
            for number in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                write_varint(&mut out, number);
                assert_eq!(out.len(), varint_len(number), "{number}");
                let mut rest = out.as_slice();
                assert_eq!(read_varint(&mut rest).unwrap(), number);
                assert!(rest.is_empty());
                let mut cut = &out[..out.len() - 1];
                assert!(matches!(
                    read_varint(&mut cut),
                    Err(DecodeError::Truncated { .. })
                ));
            }
        }
        let mut long: &[u8] = &[0xff; 11];
        assert_eq!(read_varint(&mut long), Err(DecodeError::Malformed));
        let mut large: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(read_varint(&mut large), Err(DecodeError::Malformed));
    }

    #[test]
    fn malformed_fields_are_named() {
        let all = |message: &[u8]| {
            let mut fields = Fields::new(message);
            loop {
                match fields.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error),
                }
            }
        };
        assert_eq!(all(&[0x08, 0x01, 0x15, 1, 2, 3, 4, 0x1a, 1, 9]), None);
        assert_eq!(all(&[0x00, 0x01]), Some(DecodeError::Malformed), "field 0");
        assert_eq!(
            all(&[0x0b]),
            Some(DecodeError::WireType {
                field: 1,
                wire_type: 3
            }),
            "a group"
        );
        assert_eq!(all(&[0x0a, 5, 1]), Some(DecodeError::Truncated { left: 1 }));
        assert_eq!(all(&[0x09, 5, 1]), Some(DecodeError::Truncated { left: 2 }));
        assert_eq!(all(&[0x0d, 5]), Some(DecodeError::Truncated { left: 1 }));
    }
}
