//! `/proc/diskstats` (kernel: `Documentation/admin-guide/iostats.rst`).

use super::{ParseError, counter, words};

/// Block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk<'text> {
    /// The device's major number.
    pub major: u32,
    /// The device's minor number.
    pub minor: u32,
    /// Kernel name, e.g. `vda`.
    pub name: &'text str,
    /// Number of valid entries in `values`: 11, from 4.18 on 15 (discards), from 5.5 on 17
    /// (flushes).
    pub columns: usize,
    /// Reads: completed, merged, sectors of 512 bytes, milliseconds; writes: the same; now in
    /// flight, milliseconds busy, weighted milliseconds; discards: as reads; flushes: completed,
    /// milliseconds.
    pub values: [u64; Disk::COLUMNS],
}

impl Disk<'_> {
    /// Maximum number of statistics.
    pub const COLUMNS: usize = 17;
    /// Minimum number of statistics: every kernel since 2.6.25 prints these.
    const MIN_COLUMNS: usize = 11;
}

/// Parses the devices. A line with fewer columns than any supported kernel prints is an error.
pub fn disks(text: &str) -> impl Iterator<Item = Result<Disk<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| disk(index, line).transpose())
}

fn disk(index: usize, line: &str) -> Result<Option<Disk<'_>>, ParseError> {
    let mut words = words(line);
    let number = |word: Option<&str>| {
        let word = word.unwrap_or_default();
        word.parse()
            .map_err(|_| ParseError::at(index, "a device number", word))
    };
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let (major, minor) = (number(Some(first))?, number(words.next())?);
    let name = words
        .next()
        .ok_or_else(|| ParseError::at(index, "a device name", line))?;
    let mut values = [0; Disk::COLUMNS];
    let mut columns = 0;
    for (value, word) in values.iter_mut().zip(words) {
        *value = counter(Some(word), index, "a disk statistic")?;
        columns += 1;
    }
    if columns < Disk::MIN_COLUMNS {
        return Err(ParseError::at(index, "11 or more statistics of a disk", line));
    }
    Ok(Some(Disk {
        major,
        minor,
        name,
        columns,
        values,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        " 252       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n   7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn columns_by_kernel() {
        let line = |n: usize| {
            let values: Vec<_> = (1..=n).map(|i| i.to_string()).collect();
            format!("252 16 vdb {}", values.join(" "))
        };
        for (printed, columns) in [(11, 11), (15, 15), (17, 17), (20, 17)] {
            let text = line(printed);
            let disk = disks(&text).next().unwrap().unwrap();
            assert_eq!((disk.major, disk.minor, disk.name), (252, 16, "vdb"));
            assert_eq!(disk.columns, columns);
            assert_eq!(disk.values[10], 11);
        }
        let cut = format!("{}\n{}", line(10), line(11));
        let all: Vec<_> = disks(&cut).map(|disk| disk.is_ok()).collect();
        assert_eq!(all, [false, true]);
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (text, line) in [
            ("252", 1),
            ("252 0", 1),
            ("x 0 vda 1", 1),
            ("\n252 0 vda 1 2 y", 2),
        ] {
            let error = disks(text).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
        }
        assert_eq!(disks("").count(), 0);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = disks(&text).count();
        }
    }
}
