//! The two heads at the start of a connection through a relay: a request `CONNECT` with the VM's
//! address (RFC 9110, 9.3.6), and the relay's answer. Everything after them is passed unchanged.
//!
//! ```text
//! collector ── CONNECT 10.0.0.5:10911 HTTP/1.1 ──▶ relay ── connects ──▶ VM
//!           ◀── HTTP/1.1 200 connected ────────────
//! ```
//! The destination is an address, never a name: the collector decides which address a VM has, and
//! the relay resolves nothing.

use std::{fmt, net::SocketAddr};

/// Maximum size of a head, in bytes.
pub const MAX_HEAD_BYTES: usize = 512;
/// Maximum length of the reason in an answer, in bytes.
const MAX_REASON_BYTES: usize = 200;

/// A complete head at the start of the received bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<T> {
    /// Its content.
    pub content: T,
    /// Its length; what follows belongs to the connection.
    pub length: usize,
}

/// The relay's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectAnswer {
    /// 200: the relay is connected to the VM.
    pub status: u16,
    /// The reason phrase. Written by the relay, so it is not trusted.
    pub reason: String,
}

/// Why received bytes are not a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// No end within [`MAX_HEAD_BYTES`].
    TooLarge,
    /// Not such a head: what was expected.
    Malformed(&'static str),
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a head without end within {MAX_HEAD_BYTES} bytes"),
            Self::Malformed(expected) => write!(f, "not {expected}"),
        }
    }
}

impl std::error::Error for HeadError {}

const REQUEST: HeadError = HeadError::Malformed("a request of the form CONNECT <address>:<port> HTTP/1.1");
const ANSWER: HeadError = HeadError::Malformed("an answer of the form HTTP/1.1 <status> <reason>");

/// The collector's request.
pub fn write_request(destination: SocketAddr) -> String {
    format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n")
}

/// The relay's answer. Characters that a reason phrase cannot have are replaced, and a long one is
/// truncated.
pub fn write_answer(status: u16, reason: &str) -> String {
    let mut text = format!("HTTP/1.1 {status:03} ");
    let printable = |char: char| if matches!(char, ' '..='~') { char } else { '?' };
    text.extend(reason.chars().take(MAX_REASON_BYTES).map(printable));
    text.push_str("\r\n\r\n");
    text
}

/// Parses a request from the bytes received so far; none if the head is incomplete.
///
/// # Errors
/// The bytes cannot become a request.
pub fn parse_request(received: &[u8]) -> Result<Option<Head<SocketAddr>>, HeadError> {
    let Some((line, length)) = first_line(received)? else {
        return if is_beginning(received, b"CONNECT ") {
            Ok(None)
        } else {
            Err(REQUEST)
        };
    };
    let mut words = line.split(' ');
    let words = (words.next(), words.next(), words.next(), words.next());
    let (Some("CONNECT"), Some(destination), Some("HTTP/1.1"), None) = words else {
        return Err(REQUEST);
    };
    let content = destination.parse().map_err(|_| REQUEST)?;
    Ok(Some(Head { content, length }))
}

/// Parses an answer from the bytes received so far; none if the head is incomplete.
///
/// # Errors
/// The bytes cannot become an answer.
pub fn parse_answer(received: &[u8]) -> Result<Option<Head<ConnectAnswer>>, HeadError> {
    let Some((line, length)) = first_line(received)? else {
        return if is_beginning(received, b"HTTP/1.") {
            Ok(None)
        } else {
            Err(ANSWER)
        };
    };
    let rest = line.strip_prefix("HTTP/1.").ok_or(ANSWER)?;
    let mut words = rest.splitn(3, ' ');
    let status = match (words.next(), words.next()) {
        (Some("0" | "1"), Some(status)) if status.len() == 3 => status.parse().map_err(|_| ANSWER)?,
        _ => return Err(ANSWER),
    };
    let reason = words.next().unwrap_or_default().to_owned();
    let content = ConnectAnswer { status, reason };
    Ok(Some(Head { content, length }))
}

/// The first line of a complete head, and the head's length; none if the head is incomplete.
fn first_line(received: &[u8]) -> Result<Option<(&str, usize)>, HeadError> {
    const END: &[u8] = b"\r\n\r\n";
    let bounded = &received[..received.len().min(MAX_HEAD_BYTES)];
    let Some(end) = bounded.windows(END.len()).position(|window| window == END) else {
        return if received.len() >= MAX_HEAD_BYTES {
            Err(HeadError::TooLarge)
        } else {
            Ok(None)
        };
    };
    let head = std::str::from_utf8(&bounded[..end]).map_err(|_| HeadError::Malformed("text"))?;
    let line = head.split("\r\n").next().unwrap_or_default();
    Ok(Some((line, end + END.len())))
}

/// Whether the bytes begin as `prefix` does, as far as they go: other protocols are rejected at
/// their first byte.
fn is_beginning(received: &[u8], prefix: &[u8]) -> bool {
    let length = received.len().min(prefix.len());
    received[..length] == prefix[..length]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        for destination in ["10.0.0.5:10911", "[fd00::5]:10911"] {
            let destination = destination.parse().unwrap();
            let mut text = write_request(destination).into_bytes();
            let length = text.len();
            text.extend(b"\x16\x03\x01");
            let head = parse_request(&text).unwrap().unwrap();
            assert_eq!((head.content, head.length), (destination, length));
        }
        let text = write_answer(403, "10.0.0.5 is not\r\nallowed: \u{1b}[2Jé");
        let head = parse_answer(text.as_bytes()).unwrap().unwrap();
        assert_eq!(head.length, text.len());
        assert_eq!(head.content.status, 403);
        assert_eq!(head.content.reason, "10.0.0.5 is not??allowed: ?[2J?");
        assert!(write_answer(502, &"x".repeat(9999)).len() < MAX_HEAD_BYTES);
    }

    #[test]
    fn other_requests_are_rejected() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT worker-0.cluster-a:10911 HTTP/1.1\r\n\r\n",
            "CONNECT 10.0.0.5 HTTP/1.1\r\n\r\n",
            "CONNECT 10.0.0.5:10911 HTTP/1.0\r\n\r\n",
            "CONNECT 10.0.0.5:10911 HTTP/1.1 x\r\n\r\n",
            "CONNECT  10.0.0.5:10911 HTTP/1.1\r\n\r\n",
            "CONNECT 10.0.0.5:99999 HTTP/1.1\r\n\r\n",
            "\x16\x03\x01",
            "G",
        ] {
            assert!(parse_request(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(parse_request(b""), Ok(None));
        assert_eq!(parse_request(b"CONN"), Ok(None));
        let endless = "CONNECT 10.0.0.5:1 HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(200);
        assert_eq!(parse_request(endless.as_bytes()), Err(HeadError::TooLarge));
    }

    #[test]
    fn other_answers_are_rejected() {
        for text in [
            "HTTP/2 200 ok\r\n\r\n",
            "HTTP/1.1 20 ok\r\n\r\n",
            "HTTP/1.1 2000 ok\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "SSH-2.0",
            "\x16\x03\x03",
        ] {
            assert!(parse_answer(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(parse_answer(b"HTTP/1.1 200"), Ok(None));
        let bare = parse_answer(b"HTTP/1.0 200\r\n\r\n").unwrap().unwrap();
        assert_eq!((bare.content.status, bare.content.reason.as_str()), (200, ""));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_a_head_beyond_them(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(Some(head)) = parse_request(&bytes) {
                prop_assert!(head.length <= bytes.len() && head.length <= MAX_HEAD_BYTES);
            }
            if let Ok(Some(head)) = parse_answer(&bytes) {
                prop_assert!(head.length <= bytes.len() && head.length <= MAX_HEAD_BYTES);
            }
        }

        #[test]
        fn a_request_in_pieces_is_incomplete_until_its_end(cut in 0_usize..60) {
            let text = write_request("10.0.0.5:10911".parse().unwrap());
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(parse_request(&text.as_bytes()[..cut]), Ok(None));
        }
    }
}
