//! `/proc/swaps` (kernel: `mm/swapfile.c`, `swap_show`).

use super::{ParseError, counter, words};

/// One place to swap to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap<'text> {
    /// The file, with blanks escaped as the kernel does (`\040`).
    pub file: &'text str,
    /// `partition` or `file`.
    pub kind: &'text str,
    /// Its size in KiB.
    pub size_kib: u64,
    /// What is used of it, in KiB.
    pub used_kib: u64,
    /// Its priority; the kernel gives negative ones itself.
    pub priority: i64,
}

/// All of them; the heading is passed over.
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
    let used_kib = counter(words.next(), index, "what is used, in KiB")?;
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
    fn places_to_swap_to() {
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
