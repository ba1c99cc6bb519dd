//! `/proc/net/udp` and `udp6` (kernel: `net/ipv4/udp.c`): one line per socket.

use super::{ParseError, hex, words};

/// Bytes in the queues of all sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Bytes to send.
    pub transmit: u64,
    /// Unread bytes.
    pub receive: u64,
}

/// Sums over all sockets, and skips the heading.
///
/// # Errors
///
/// A line is malformed.
pub fn queues(text: &str) -> Result<Queues, ParseError> {
    let mut sum = Queues::default();
    for (index, line) in text.lines().enumerate().skip(1) {
        let word = words(line).nth(4).unwrap_or_default();
        let (transmit, receive) = word
            .split_once(':')
            .ok_or_else(|| ParseError::at(index, "tx_queue:rx_queue", line))?;
        let expected = "a queue's bytes in hexadecimal";
        sum.transmit = sum.transmit.saturating_add(hex(Some(transmit), index, expected)?);
        sum.receive = sum.receive.saturating_add(hex(Some(receive), index, expected)?);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                          \x20 533: 3500007F:0035 00000000:0000 07 00000001:00000240 00:00000000 00000000   101        0 17 2 0 0\n\
                          \x20 548: 00000000:0044 00000000:0000 07 00000000:00000010 00:00000000 00000000     0        0 18 2 0 3\n";

    #[test]
    fn sums() {
        let sum = Queues {
            transmit: 1,
            receive: 0x250,
        };
        assert_eq!(queues(SAMPLE), Ok(sum));
        assert_eq!(queues("heading\n"), Ok(Queues::default()));
        assert_eq!(queues(""), Ok(Queues::default()));
        for text in ["h\n1: a b 07 1\n", "h\n1: a b 07 1:x\n", "h\n\n"] {
            assert_eq!(queues(text).unwrap_err().line, 2, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            queues(&text).ok();
        }
    }
}
