//! `/proc/PID/stat` and `/proc/PID/task/TID/stat` (kernel: `fs/proc/array.c`): state and number of
//! threads.
//!
//! Works on bytes, because a program's name may have any bytes, including parentheses and spaces.

use super::ParseError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskStat {
    /// State: `R`, `S`, `D`, `Z`, `T`, `t`, `X`, `I`, …
    pub state: u8,
    /// Number of threads of its process.
    pub threads: u32,
}

/// Parses the line.
///
/// # Errors
///
/// The line is malformed.
pub fn task_stat(text: &[u8]) -> Result<TaskStat, ParseError> {
    let bad = |expected| ParseError::at(0, expected, &String::from_utf8_lossy(text));
    let close = text.iter().rposition(|byte| *byte == b')');
    let rest = close.and_then(|at| text.get(at + 1..));
    let mut words = rest
        .ok_or_else(|| bad("a program's name in brackets"))?
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let state = match words.next() {
        Some([state]) if state.is_ascii_alphabetic() => *state,
        _ => return Err(bad("a state of one letter")),
    };
    // The state is the third field, the number of threads the 20th.
    let threads = words
        .nth(16)
        .and_then(|word| str::from_utf8(word).ok()?.parse().ok());
    let threads = threads.ok_or_else(|| bad("a number of threads as the 20th field"))?;
    Ok(TaskStat { state, threads })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "812 (a) b (c)) S 1 812 812 0 -1 4194560 2503 0 44 0 91 60 0 0 20 0 13 0 1042 2290327552 11321 \
                          18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn state_and_threads_after_any_name() {
        let expected = TaskStat {
            state: b'S',
            threads: 13,
        };
        assert_eq!(task_stat(SAMPLE.as_bytes()), Ok(expected));
        for bad in [
            "",
            "1 (a",
            "1 (a)",
            "1 (a) SS 1",
            "1 (a) 7 1",
            "1 (a) S 1 2 3",
            &SAMPLE[..50],
        ] {
            assert!(task_stat(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE), bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            task_stat(text.as_bytes()).ok();
            task_stat(&bytes).ok();
        }
    }
}
