//! `/proc/net/dev` (kernel: `net/core/net-procfs.c`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetDevice<'text> {
    pub name: &'text str,
    /// Received: bytes, packets, errs, drop, fifo, frame, compressed, multicast; transmitted:
    /// bytes, packets, errs, drop, fifo, colls, carrier, compressed. The kernel adds missed to
    /// drop, four kinds of framing errors to frame and four kinds of carrier errors to carrier.
    pub values: [u64; NetDevice::COLUMNS],
}

impl NetDevice<'_> {
    /// Number of counters of a device.
    pub const COLUMNS: usize = 16;
}

/// Parses the devices, and skips the two heading lines.
pub fn devices(text: &str) -> impl Iterator<Item = Result<NetDevice<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .skip(2)
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| device(index, line))
}

fn device(index: usize, line: &str) -> Result<NetDevice<'_>, ParseError> {
    // A name may contain a colon (an alias), the counters do not.
    let (name, rest) = line
        .rsplit_once(':')
        .ok_or_else(|| ParseError::at(index, "DEVICE: COUNTERS", line))?;
    let mut words = words(rest);
    let mut values = [0; NetDevice::COLUMNS];
    for value in &mut values {
        *value = counter(words.next(), index, "16 counters of a network device")?;
    }
    Ok(NetDevice {
        name: name.trim(),
        values,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n\
                          \x20   lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n eth0:99 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n";

    #[test]
    fn names_and_counters() {
        let all: Vec<_> = devices(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(all[0].name, "lo");
        assert_eq!((all[1].name, all[1].values[0]), ("eth0", 99));
        assert_eq!(all[1].values[15], 15);
        let alias = "h\nh\neth0:1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
        assert_eq!(devices(alias).next().unwrap().unwrap().name, "eth0:1");
        assert_eq!(devices("").count(), 0);
    }

    #[test]
    fn malformed_lines_are_reported() {
        for text in ["h\nh\neth0 1 2", "h\nh\neth0: 1 2 3", "h\nh\neth0: 1 2 3 4 x"] {
            let error = devices(text).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert_eq!(error.line, 3, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = devices(&text).count();
        }
    }
}
