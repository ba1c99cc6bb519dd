//! `/proc/net/softnet_stat` (kernel: `net/core/net-procfs.c`): one hexadecimal line per online CPU.

use super::{ParseError, hex, words};

/// Counters of received packets on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Softnet {
    /// CPU; on kernels before 5.10 the line number, from 0.
    pub cpu: u64,
    pub processed: u64,
    /// Packets dropped because the backlog was full.
    pub dropped: u64,
    /// Number of times that processing ended with packets left.
    pub squeezed: u64,
    /// Number of times that a device was locked when sending.
    pub collisions: u64,
    /// Number of wake-ups by another CPU for packets. Since 2.6.39.
    pub received_rps: u64,
    /// Number of times that a flow reached its limit. Since 3.11.
    pub flow_limit: u64,
    /// Queued packets. Since 5.10.
    pub backlog: u64,
}

/// Parses the CPUs. On kernels before 5.10, lines behind a malformed one are errors: their CPU is
/// unknown. All lines have the same number of columns; a shorter one was cut, and is not that of an
/// older kernel.
pub fn cpus(text: &str) -> impl Iterator<Item = Result<Softnet, ParseError>> {
    let mut broken = false;
    let whole = |line: &&str| words(line).all(|word| hex(Some(word), 0, "").is_ok());
    let widths = text.lines().filter(whole).map(|line| words(line).count());
    let widths: Vec<_> = widths.filter(|width| *width >= 9).collect();
    let narrowest = widths.iter().min().copied().unwrap_or_default();
    // Two lines that lost the newline between them are twice as wide.
    let most = widths.into_iter().filter(|width| *width < 2 * narrowest).max();
    let most = most.unwrap_or_default();
    let row = move |(index, line): (usize, &str), broken: bool| {
        let mut columns = [0; 13];
        let mut width = 0;
        for (column, word) in columns.iter_mut().zip(words(line)) {
            *column = hex(Some(word), index, "a hexadecimal counter")?;
            width += 1;
        }
        if width < 9 || words(line).count() != most || (width < 13 && broken) {
            let last = words(line).last().unwrap_or_default();
            return Err(ParseError::at(
                index,
                "all columns of a known CPU at the end",
                last,
            ));
        }
        Ok(Softnet {
            cpu: if width >= 13 { columns[12] } else { index as u64 },
            processed: columns[0],
            dropped: columns[1],
            squeezed: columns[2],
            collisions: columns[8],
            received_rps: columns[9],
            flow_limit: columns[10],
            backlog: if width >= 13 { columns[11] } else { 0 },
        })
    };
    text.lines().enumerate().map(move |line| {
        let row = row(line, broken);
        broken |= row.is_err();
        row
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "0000000e 00000001 00000002 0 0 0 0 0 00000003 00000004 00000005 00000006 00000000 00000000 00000000\n\
                          0000426d 00000000 00000000 0 0 0 0 0 00000000 00000000 00000000 00000000 00000003 00000000 00000000\n";

    #[test]
    fn columns_depend_on_kernel_version() {
        let all: Vec<_> = cpus(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!((all[1].cpu, all[1].processed), (3, 0x426d));
        let first = Softnet {
            cpu: 0,
            processed: 14,
            dropped: 1,
            squeezed: 2,
            collisions: 3,
            received_rps: 4,
            flow_limit: 5,
            backlog: 6,
        };
        assert_eq!(all[0], first);
        let old = cpus("1 2 3 0 0 0 0 0 0\n4 5 6 0 0 0 0 0 0")
            .nth(1)
            .unwrap()
            .unwrap();
        assert_eq!((old.cpu, old.processed, old.received_rps), (1, 4, 0));
        // Only a newer kernel says which CPU a line is of.
        let behind = |text: &str| {
            cpus(&format!("noise\n{text}"))
                .nth(1)
                .unwrap()
                .map(|row| row.cpu)
                .ok()
        };
        assert_eq!((behind(SAMPLE), behind("1 2 3 0 0 0 0 0 0")), (Some(0), None));
        // A cut line, first or last, is none of an older kernel.
        let (first, second) = SAMPLE.split_once('\n').unwrap();
        let cut = |line: &str| line.trim_end().rsplit_once(' ').unwrap().0.to_owned();
        for (text, good) in [
            (format!("{}\n{second}", &first[..60]), Some(3)),
            (format!("{first}\n{}\n", cut(second)), Some(0)),
            (format!("{}\n{second}", cut(first)), Some(3)),
        ] {
            let found: Vec<_> = cpus(&text).flatten().map(|row| row.cpu).collect();
            assert_eq!((found.len(), found.first().copied()), (1, good), "{text}");
        }
        // Two lines without the newline between them.
        let joined = format!(
            "{first} {second}{}",
            SAMPLE.replace("00000003 00000000 00000000", "00000004 00000000 00000000")
        );
        let found: Vec<_> = cpus(&joined)
            .map(|row| row.map(|row| row.cpu).map_err(|error| error.line))
            .collect();
        assert_eq!(found, [Err(1), Ok(0), Ok(4)]);
        for text in ["1 2 3\n", "1 2 3 4 5 6 7 8 x\n", "\n"] {
            assert_eq!(cpus(text).next().unwrap().unwrap_err().line, 1);
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = cpus(&text).count();
        }
    }
}
