//! Header of a received message: its kind, the call that it answers, and the position of its body.

use super::{Reader, WireError};

/// Maximum accepted size of a message in bytes. D-Bus allows 128 MiB; the list of all units of a
/// large guest is far smaller than this.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Number of bytes from which the length of a message is known.
pub const FIXED_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Call,
    Return,
    Error,
    /// Signal, or a kind of a later version.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'bytes> {
    pub kind: Kind,
    pub serial: u32,
    /// Serial number of the call that it answers; 0 if it answers none.
    pub answers: u32,
    /// Name of the error; empty if it is none.
    pub error: &'bytes str,
    /// Offset of the body.
    pub body: usize,
    /// Length of the whole message in bytes.
    pub length: usize,
    /// Whether the byte order is big-endian.
    pub big: bool,
}

impl<'bytes> Header<'bytes> {
    /// Returns the length of the message that begins with these [`FIXED_BYTES`] bytes.
    ///
    /// # Errors
    ///
    /// The bytes are not the start of a message, or it is too large.
    pub fn length(bytes: &[u8]) -> Result<usize, WireError> {
        let (_, big) = begin(bytes)?;
        let mut reader = Reader::new(bytes, big);
        reader.u32()?;
        let body = reader.u32()?;
        reader.u32()?;
        let fields = reader.u32()?;
        let limit = |length: u32| {
            let length = usize::try_from(length).map_err(|_| WireError::TooLarge)?;
            if length > MAX_MESSAGE_BYTES {
                Err(WireError::TooLarge)
            } else {
                Ok(length)
            }
        };
        let length = (FIXED_BYTES + limit(fields)?).next_multiple_of(8) + limit(body)?;
        if length > MAX_MESSAGE_BYTES {
            Err(WireError::TooLarge)
        } else {
            Ok(length)
        }
    }

    /// Parses the header of the complete message `bytes`.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn parse(bytes: &'bytes [u8]) -> Result<Self, WireError> {
        let (kind, big) = begin(bytes)?;
        let length = Self::length(bytes)?;
        if bytes.len() < length {
            return Err(WireError::Short);
        }
        let mut reader = Reader::new(bytes, big);
        reader.u64()?;
        let mut header = Self {
            kind,
            serial: reader.u32()?,
            answers: 0,
            error: "",
            body: 0,
            length,
            big,
        };
        let mut fields = reader.array(8)?;
        while !fields.is_at_end() {
            fields.align(8)?;
            if fields.is_at_end() {
                break;
            }
            let code = fields.byte()?;
            let value = fields.variant()?;
            match code {
                4 => header.error = value.text()?,
                5 => header.answers = u32::try_from(value.number()?).map_err(|_| WireError::OtherType)?,
                _ => {}
            }
        }
        reader.align(8)?;
        header.body = reader.position();
        Ok(header)
    }
}

/// Returns kind and byte order.
fn begin(bytes: &[u8]) -> Result<(Kind, bool), WireError> {
    const PROTOCOL: u8 = 1;
    let [order, kind, _flags, version, ..] = *bytes else {
        return Err(WireError::Short);
    };
    let big = match order {
        b'l' => false,
        b'B' => true,
        _ => return Err(WireError::NoMessage),
    };
    let kind = match kind {
        0 => return Err(WireError::NoMessage),
        1 => Kind::Call,
        2 => Kind::Return,
        3 => Kind::Error,
        _ => Kind::Other,
    };
    if version == PROTOCOL {
        Ok((kind, big))
    } else {
        Err(WireError::NoMessage)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Call, Writer},
        *,
    };

    fn error(answers: u32) -> Vec<u8> {
        let mut message = Writer::default();
        message.byte(b'l').byte(3).byte(1).byte(1).u32(8).u32(77);
        message.array(8, |fields| {
            fields.align(8).byte(4).signature("s").string("org.x.NoUnit");
            fields.align(8).byte(5).signature("u").u32(answers);
            fields.align(8).byte(8).signature("g").signature("s");
        });
        message.align(8).string("gon");
        message.into_bytes()
    }

    #[test]
    fn error_reply_contains_serial_of_call() {
        let bytes = error(5);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(
            (header.kind, header.answers, header.error),
            (Kind::Error, 5, "org.x.NoUnit")
        );
        assert_eq!(Reader::new(&bytes[header.body..], header.big).string(), Ok("gon"));
        assert_eq!(Header::length(&bytes[..FIXED_BYTES]), Ok(bytes.len()));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let bytes = error(5);
        assert_eq!(Header::parse(&bytes[..bytes.len() - 1]), Err(WireError::Short));
        assert_eq!(Header::length(&bytes[..3]), Err(WireError::Short));
        for (at, byte, refused) in [
            (0, b'x', WireError::NoMessage),
            (1, 0, WireError::NoMessage),
            (3, 2, WireError::NoMessage),
            (7, 0xff, WireError::TooLarge),
            (15, 0xff, WireError::TooLarge),
        ] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            assert_eq!(Header::length(&bad), Err(refused), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            at in any::<prop::sample::Index>(),
            byte: u8,
            cut in any::<prop::sample::Index>(),
            noise in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let names = ["a.b", "C"];
            for whole in [error(1), Call::property("a.b", "/", &names).to_bytes(1), noise] {
                let mut bytes = whole;
                if !bytes.is_empty() {
                    let place = at.index(bytes.len());
                    bytes[place] = byte;
                    bytes.truncate(cut.index(bytes.len() + 1));
                }
                if let Ok(header) = Header::parse(&bytes) {
                    prop_assert!(header.body <= header.length && header.length <= bytes.len());
                }
            }
        }
    }
}
