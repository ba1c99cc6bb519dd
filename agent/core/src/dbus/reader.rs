//! Deserialises values, in either byte order.

use super::WireError;

/// Reads consecutive values.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'bytes> {
    bytes: &'bytes [u8],
    at: usize,
    big: bool,
}

/// Content of a variant, of the types in properties of units and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'bytes> {
    /// String, object path or signature (`s`, `o`, `g`).
    Text(&'bytes str),
    /// Unsigned number (`y`, `q`, `u`, `t`).
    Number(u64),
    /// A boolean (`b`).
    Boolean(bool),
}

impl<'bytes> Value<'bytes> {
    /// Returns the string.
    ///
    /// # Errors
    ///
    /// The value has another type.
    pub fn text(self) -> Result<&'bytes str, WireError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Number(_) | Self::Boolean(_) => Err(WireError::OtherType),
        }
    }
    /// Returns the number.
    ///
    /// # Errors
    ///
    /// The value has another type.
    pub fn number(self) -> Result<u64, WireError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(_) | Self::Boolean(_) => Err(WireError::OtherType),
        }
    }
    /// Returns the boolean.
    ///
    /// # Errors
    ///
    /// The value has another type.
    pub fn boolean(self) -> Result<bool, WireError> {
        match self {
            Self::Boolean(value) => Ok(value),
            Self::Text(_) | Self::Number(_) => Err(WireError::OtherType),
        }
    }
}

impl<'bytes> Reader<'bytes> {
    /// Creates a reader. `bytes` begin at a multiple of 8 within their message; `big` means
    /// big-endian.
    pub fn new(bytes: &'bytes [u8], big: bool) -> Self {
        Self { bytes, at: 0, big }
    }
    /// Number of bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Skips padding up to a multiple of `to`.
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn align(&mut self, to: usize) -> Result<(), WireError> {
        let at = self.at.next_multiple_of(to);
        if at > self.bytes.len() {
            return Err(WireError::Short);
        }
        self.at = at;
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'bytes [u8], WireError> {
        let end = self.at.checked_add(count).ok_or(WireError::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(WireError::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.align(N)?;
        self.take(N)?.try_into().map_err(|_| WireError::Short)
    }

    /// Reads a byte (`y`).
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.fixed::<1>()?[0])
    }
    /// Reads a 16-bit number (`q`).
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        let bytes = self.fixed()?;
        Ok(if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }
    /// Reads a 32-bit number (`u`).
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        let bytes = self.fixed()?;
        Ok(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
    /// Reads a 64-bit number (`t`).
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        let bytes = self.fixed()?;
        Ok(if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }
    /// Reads a string or an object path (`s`, `o`).
    ///
    /// # Errors
    ///
    /// The bytes end before, or the string is invalid.
    pub fn string(&mut self) -> Result<&'bytes str, WireError> {
        let length = usize::try_from(self.u32()?).map_err(|_| WireError::Short)?;
        self.text(length)
    }
    /// Reads a signature (`g`).
    ///
    /// # Errors
    ///
    /// The bytes end before, or the signature is invalid.
    pub fn signature(&mut self) -> Result<&'bytes str, WireError> {
        let length = self.byte()?;
        self.text(usize::from(length))
    }

    fn text(&mut self, length: usize) -> Result<&'bytes str, WireError> {
        let text = self.take(length)?;
        if self.byte()? != 0 {
            return Err(WireError::BadText);
        }
        str::from_utf8(text).map_err(|_| WireError::BadText)
    }

    /// Returns a reader for the elements of an array, which are aligned to `to`.
    ///
    /// # Errors
    ///
    /// The bytes end before.
    pub fn array(&mut self, to: usize) -> Result<Self, WireError> {
        let length = usize::try_from(self.u32()?).map_err(|_| WireError::Short)?;
        self.align(to)?;
        let start = self.at;
        self.take(length)?;
        Ok(Self {
            bytes: &self.bytes[..self.at],
            at: start,
            big: self.big,
        })
    }
    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Reads a variant (`v`) of one of the types of [`Value`].
    ///
    /// # Errors
    ///
    /// The bytes end before, or the variant has another type.
    pub fn variant(&mut self) -> Result<Value<'bytes>, WireError> {
        Ok(match self.signature()? {
            "s" | "o" => Value::Text(self.string()?),
            "g" => Value::Text(self.signature()?),
            "y" => Value::Number(self.byte()?.into()),
            "q" => Value::Number(self.u16()?.into()),
            "u" => Value::Number(self.u32()?.into()),
            "t" => Value::Number(self.u64()?),
            "b" => Value::Boolean(self.u32()? != 0),
            _ => return Err(WireError::OtherType),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Writer, *};

    #[test]
    fn written_values_can_be_read() {
        let mut writer = Writer::default();
        writer
            .byte(7)
            .string("kubelet.service")
            .u64(1 << 40)
            .boolean(true);
        writer.array(8, |units| {
            for name in ["a", "bc"] {
                units.align(8).string(name).u32(3);
            }
        });
        writer
            .signature("t")
            .u64(9)
            .signature("b")
            .boolean(false)
            .signature("s")
            .string("é");
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes, false);
        assert_eq!(reader.byte(), Ok(7));
        assert_eq!(reader.string(), Ok("kubelet.service"));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.u32(), Ok(1));
        let mut units = reader.array(8).unwrap();
        let mut found = Vec::new();
        while !units.is_at_end() {
            units.align(8).unwrap();
            found.push((units.string().unwrap(), units.u32().unwrap()));
        }
        assert_eq!(found, [("a", 3), ("bc", 3)]);
        assert_eq!(reader.variant().unwrap().number(), Ok(9));
        assert_eq!(reader.variant().unwrap().boolean(), Ok(false));
        assert_eq!(reader.variant().unwrap().text(), Ok("é"));
        assert!(reader.is_at_end());
    }

    #[test]
    fn big_endian_and_unexpected_types() {
        let mut reader = Reader::new(&[0, 0, 0, 2, b'h', b'i', 0], true);
        assert_eq!(reader.string(), Ok("hi"));
        assert_eq!(reader.u32(), Err(WireError::Short));
        assert_eq!(
            Reader::new(b"\x02as\0", false).variant(),
            Err(WireError::OtherType)
        );
        assert_eq!(Value::Number(1).text(), Err(WireError::OtherType));
        assert_eq!(
            Reader::new(b"\x01\0\0\0ab", false).string(),
            Err(WireError::BadText)
        );
        assert_eq!(
            Reader::new(b"\x01\0\0\0\xff\0", false).string(),
            Err(WireError::BadText)
        );
        assert!(Reader::new(b"\xff\xff\xff\xff", false).array(8).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), big: bool) {
            let mut reader = Reader::new(&bytes, big);
            while reader.variant().is_ok() {}
            let mut reader = Reader::new(&bytes, big);
            if let Ok(mut inner) = reader.array(8) {
                while inner.string().is_ok() {}
            }
            while reader.u64().is_ok() {}
        }
        #[test]
        fn every_string_can_be_read_back(text: String, number: u64) {
            let mut writer = Writer::default();
            writer.string(&text).signature("t").u64(number);
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes, false);
            prop_assert_eq!(reader.string(), Ok(text.as_str()));
            prop_assert_eq!(reader.variant(), Ok(Value::Number(number)));
        }
    }
}
