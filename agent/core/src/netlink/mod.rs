//! Netlink messages as bytes: requests for dumps, and the kernel's answers. `virtfleet-agent-host`
//! communicates with the kernel.
//!
//! Numbers have the machine's byte order (`linux/netlink.h`). A truncated message ends the parsing,
//! without a panic.

pub mod diag;
pub mod generic;
pub mod link;
pub mod neighbour;
pub mod netdev;
pub mod qdisc;
pub mod route;

/// Size of a message header: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Size of an attribute header: length, type.
const ATTRIBUTE: usize = 4;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x01 | 0x300;
/// `NLM_F_REQUEST | NLM_F_ACK`: one answer, followed by an acknowledgement.
const SINGLE: u16 = 0x01 | 0x04;
/// `NLM_F_DUMP_INTR`: data changed during the dump, so entries may be missing or duplicate.
const INTERRUPTED: u16 = 0x10;
const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Mask without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_MASK: u16 = 0x3fff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'bytes> {
    /// Sequence number of the request.
    pub sequence: u32,
    /// Whether the dump was interrupted and must be repeated.
    pub interrupted: bool,
    pub content: Content<'bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'bytes> {
    /// Entry of the dump: its fixed header and its attributes.
    Entry(&'bytes [u8]),
    /// End of the dump.
    Done,
    /// Error of the kernel with this errno; 0 is an acknowledgement.
    Failed(i32),
    /// Ignored message.
    Nothing,
}

/// Returns a request for a dump. `kind` is e.g. `RTM_GETLINK`, `body` its fixed header with
/// attributes.
pub fn dump_request(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    request(kind, DUMP, sequence, body)
}

/// Returns a request for one object; the kernel ends its answer with [`Content::Failed`] of 0.
pub fn single_request(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    request(kind, SINGLE, sequence, body)
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(body);
    request
}

/// Splits the bytes of one receive call into messages.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        let body = bytes.get(HEADER..length)?;
        let (kind, flags) = (short(bytes, 4)?, short(bytes, 6)?);
        let sequence = number(bytes, 8)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        // Both contain a negative errno; a successful dump contains 0 or nothing.
        let errno = number(body, 0).map_or(0, u32::cast_signed).saturating_neg();
        let content = match kind {
            NOOP => Content::Nothing,
            ERROR => Content::Failed(errno),
            DONE if errno > 0 => Content::Failed(errno),
            DONE => Content::Done,
            _ => Content::Entry(body),
        };
        Some(Message {
            sequence,
            interrupted: flags & INTERRUPTED != 0,
            content,
        })
    })
}

/// Iterates over attributes as `(type, value)`.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(short(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE..length)?;
        let kind = short(bytes, 2)? & TYPE_MASK;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Appends an attribute with padding. A value that is too long is left out.
fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(ATTRIBUTE + value.len()) else {
        return;
    };
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a text up to its first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod made {
    //! Messages for tests.

    /// An attribute with its padding.
    pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        super::put(&mut bytes, kind, value);
        bytes
    }

    /// A message with its padding.
    pub(super) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &sequence.to_ne_bytes(),
            &[0; 4],
            body,
        ]
        .concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answer_with_several_messages() {
        let bytes = [
            made::message(16, 2, 7, b"entry"),
            made::message(16, 2 | INTERRUPTED, 7, &[]),
            made::message(NOOP, 0, 7, &[]),
            made::message(DONE, 2, 7, &0_i32.to_ne_bytes()),
            made::message(DONE, 2, 7, &(-4_i32).to_ne_bytes()),
            made::message(ERROR, 0, 7, &(-95_i32).to_ne_bytes()),
        ]
        .concat();
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(
            all.iter().map(|message| message.content).collect::<Vec<_>>(),
            [
                Content::Entry(b"entry"),
                Content::Entry(b""),
                Content::Nothing,
                Content::Done,
                Content::Failed(4),
                Content::Failed(95)
            ]
        );
        assert!(all[1].interrupted && !all[0].interrupted);
        assert!(all.iter().all(|message| message.sequence == 7));
    }

    #[test]
    fn written_request_is_parsed_unchanged() {
        let bytes = dump_request(18, 3, &[1; 16]);
        assert_eq!(bytes.len(), 32);
        let message = messages(&bytes).next().unwrap();
        assert_eq!((message.sequence, message.content), (3, Content::Entry(&[1; 16])));
        assert_eq!(short(&bytes, 6), Some(0x301));
        assert_eq!(short(&single_request(16, 1, &[]), 6), Some(5));
    }

    #[test]
    fn truncated_message_ends_parsing() {
        let bytes = made::message(16, 0, 1, b"entry");
        for length in 0..16 + 5 {
            assert_eq!(messages(&bytes[..length]).count(), 0, "{length}");
        }
        let attributes_of = |bytes: &[u8]| attributes(bytes).count();
        let two = [made::attribute(1, b"abc"), made::attribute(0x8002, b"")].concat();
        assert_eq!(attributes(&two).collect::<Vec<_>>(), [(1, &b"abc"[..]), (2, b"")]);
        assert_eq!(attributes_of(&two[..9]), 1);
        // A length of 0 would loop forever.
        assert_eq!(attributes_of(&[0; 64]), 0);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), length in 0..300_u32) {
            let mut bytes = bytes;
            for read in [length, 0] {
                let _ = messages(&bytes).count();
                let _ = attributes(&bytes).count();
                let _ = diag::socket(&bytes);
                let _ = generic::family(&bytes);
                let _ = link::link(&bytes);
                let _ = netdev::queue(&bytes);
                let _ = neighbour::neighbour(&bytes);
                let _ = qdisc::qdisc(&bytes);
                let _ = route::route(&bytes);
                // With a valid length the parser gets further.
                if let Some(start) = bytes.first_chunk_mut::<4>() {
                    *start = read.to_ne_bytes();
                }
            }
        }
    }
}
