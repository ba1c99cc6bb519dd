//! `/proc/swaps` (kernel: `mm/swapfile.c`, `swap_show`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap<'text> {
    /// File, with spaces escaped by the kernel (`\040`).
    pub file: &'text str,
    /// `partition` or `file`.
    pub kind: &'text str,
    /// Size in KiB.
    pub size_kib: u64,
    /// Used size in KiB.
    pub used_kib: u64,
    /// Priority; the kernel assigns negative ones itself.
    pub priority: i64,
}

/// Parses the swap areas, and skips the heading.
pub fn swaps(text: &str) -> impl Iterator<Item = Result<Swap<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .skip(1)
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| swap(index, line))
}

fn swap(index: usize, line: &str) -> Result<Swap<'_>, ParseError> {
    let mut words = words(line);
    let (file, kind) = words
        .next()
        .zip(words.next())
        .ok_or_else(|| ParseError::at(index, "a file and its type", line))?;
    let size_kib = counter(words.next(), index, "a size in KiB")?;
    let used_kib = counter(words.next(), index, "a used size in KiB")?;
    let priority = words.next().unwrap_or_default();
    let priority = priority
        .parse()
        .map_err(|_| ParseError::at(index, "a priority", priority))?;
    Ok(Swap {
        file,
        kind,
        size_kib,
        used_kib,
        priority,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                          /dev/zram0                              partition\t16252924\t176\t100\n\
                          /swap\\040file file 4 0 -2\n";

    #[test]
    fn swap_areas() {
        let all: Vec<_> = swaps(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            (all[0].file, all[0].kind, all[0].size_kib),
            ("/dev/zram0", "partition", 16_252_924)
        );
        assert_eq!((all[1].file, all[1].priority), ("/swap\\040file", -2));
        for text in ["h\n/a", "h\n/a file 1 2", "h\n/a file -1 2 3"] {
            assert_eq!(swaps(text).next().unwrap().unwrap_err().line, 2, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = swaps(&text).count();
        }
    }
}
