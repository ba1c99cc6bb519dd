//! The two heads at the start of a connection through a relay: a request `CONNECT` with the VM's
//! address (RFC 9110, 9.3.6), and the relay's answer. Everything after them is passed unchanged.
//!
//! ```text
//! collector ── CONNECT 10.0.0.5:10911 HTTP/1.1 ──▶ relay ── connects ──▶ VM
//!              Virtfleet-Pull-Interval: 30
//!           ◀── HTTP/1.1 200 connected ────────────
//! ```
//! The destination is an address, never a name: the collector decides which address a VM has, and
//! the relay resolves nothing.

use std::{fmt, net::SocketAddr, time::Duration};

/// Maximum size of a head, in bytes.
pub const MAX_HEAD_BYTES: usize = 512;
/// Maximum length of the reason in an answer, in bytes.
const MAX_REASON_BYTES: usize = 200;

/// Header of a request: the interval of the collector's pulls, in whole seconds. Relays that do not
/// know it ignore it.
const PULL_INTERVAL: &str = "Virtfleet-Pull-Interval";
/// Maximum interval that a request can name.
const MAX_PULL_INTERVAL: Duration = Duration::from_hours(1);

/// A complete head at the start of the received bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<T> {
    pub content: T,
    /// Its length; what follows belongs to the connection.
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Address and port of the VM's agent.
    pub destination: SocketAddr,
    /// Interval of the collector's pulls over the connection, at most an hour. None if it names
    /// none.
    pub pull_interval: Option<Duration>,
}

impl ConnectRequest {
    /// Time without a byte after which the connection is closed: the relay's own, but not before
    /// the next pull is overdue by an interval.
    pub fn idle_timeout(&self, own: Duration) -> Duration {
        self.pull_interval
            .map_or(own, |interval| own.max(interval.saturating_mul(2)))
    }
}

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

pub fn write_request(request: &ConnectRequest) -> String {
    let destination = request.destination;
    let interval = request.pull_interval.map_or_else(String::new, |interval| {
        let seconds = interval.as_secs() + u64::from(interval.subsec_nanos() > 0);
        format!("{PULL_INTERVAL}: {seconds}\r\n")
    });
    format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{interval}\r\n")
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
pub fn parse_request(received: &[u8]) -> Result<Option<Head<ConnectRequest>>, HeadError> {
    let Some((text, length)) = whole(received)? else {
        return if is_beginning(received, b"CONNECT ") {
            Ok(None)
        } else {
            Err(REQUEST)
        };
    };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let words = (words.next(), words.next(), words.next(), words.next());
    let (Some("CONNECT"), Some(destination), Some("HTTP/1.1"), None) = words else {
        return Err(REQUEST);
    };
    let content = ConnectRequest {
        destination: destination.parse().map_err(|_| REQUEST)?,
        pull_interval: lines.find_map(pull_interval),
    };
    Ok(Some(Head { content, length }))
}

/// The interval, if a line is that header.
fn pull_interval(line: &str) -> Option<Duration> {
    let (name, value) = line.split_once(':')?;
    let seconds = name
        .eq_ignore_ascii_case(PULL_INTERVAL)
        .then(|| value.trim().parse().ok())?;
    seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_PULL_INTERVAL))
}

/// Parses an answer from the bytes received so far; none if the head is incomplete.
///
/// # Errors
/// The bytes cannot become an answer.
pub fn parse_answer(received: &[u8]) -> Result<Option<Head<ConnectAnswer>>, HeadError> {
    let Some((text, length)) = whole(received)? else {
        return if is_beginning(received, b"HTTP/1.") {
            Ok(None)
        } else {
            Err(ANSWER)
        };
    };
    let line = text.split("\r\n").next().unwrap_or_default();
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

/// The lines of a complete head, and the head's length; none if the head is incomplete.
fn whole(received: &[u8]) -> Result<Option<(&str, usize)>, HeadError> {
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
    Ok(Some((head, end + END.len())))
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

    fn request(pull_interval: Option<Duration>) -> ConnectRequest {
        ConnectRequest {
            destination: "10.0.0.5:10911".parse().unwrap(),
            pull_interval,
        }
    }

    #[test]
    fn a_connection_stays_open_between_two_pulls() {
        let (short, long) = (Duration::from_secs(1), Duration::from_mins(10));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (interval, own, expected) in [
            (None, short, short),
            (seconds(30), short, Duration::from_mins(1)),
            (seconds(30), long, long),
        ] {
            assert_eq!(request(interval).idle_timeout(own), expected, "{interval:?}");
        }
        let parsed = |header: &str| {
            let text = format!("CONNECT 10.0.0.5:10911 HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
            parse_request(text.as_bytes())
                .unwrap()
                .unwrap()
                .content
                .pull_interval
        };
        assert_eq!(parsed("virtfleet-pull-interval:15"), seconds(15));
        assert_eq!(
            parsed("Virtfleet-Pull-Interval: 99999999999"),
            Some(MAX_PULL_INTERVAL)
        );
        for ignored in [
            "Virtfleet-Pull-Interval: -1",
            "Virtfleet-Pull-Interval",
            "Other: 3",
        ] {
            assert_eq!(parsed(ignored), None, "{ignored}");
        }
        let text = write_request(&request(Some(Duration::from_millis(1500))));
        assert!(text.contains("Virtfleet-Pull-Interval: 2\r\n"), "{text}");
    }

    #[test]
    fn heads_are_read_as_they_are_written() {
        for destination in ["10.0.0.5:10911", "[fd00::5]:10911"] {
            for pull_interval in [None, Some(Duration::from_secs(30))] {
                let request = ConnectRequest {
                    destination: destination.parse().unwrap(),
                    pull_interval,
                };
                let mut text = write_request(&request).into_bytes();
                let length = text.len();
                text.extend(b"\x16\x03\x01");
                let head = parse_request(&text).unwrap().unwrap();
                assert_eq!((head.content, head.length), (request, length));
            }
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
            let text = write_request(&request(Some(Duration::from_secs(30))));
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(parse_request(&text.as_bytes()[..cut]), Ok(None));
        }
    }
}
