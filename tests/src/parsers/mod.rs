//! Compares the agent's parsers of `/proc` with those of the crate procfs-core: results and cost on
//! the same texts.
//!
//! `docs/decisions/0026-parsers-of-proc.md` has the figures and says which parser the agent uses
//! for which file, and why.

#[expect(
    clippy::unwrap_used,
    reason = "a text of our own that a parser refuses is a failed test"
)]
mod cases;
mod texts;

pub use cases::CASES;

/// A file that both parsers read.
pub struct Case {
    /// Its path in a guest.
    pub file: &'static str,
    /// A text of that file with random numbers, for a guest with this many CPUs, disks or devices.
    pub text: fn(&mut fastrand::Rng, usize) -> String,
    /// The values that the agent's parser reads, in a comparable form.
    pub ours: fn(&str) -> Vec<String>,
    /// The values that procfs-core reads, in the same form.
    pub procfs: fn(&str) -> Vec<String>,
    /// Only runs the agent's parser.
    pub parse_ours: fn(&str),
    /// Only runs procfs-core's parser.
    pub parse_procfs: fn(&str),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of one record, whose values are meaningless without each other.
    const RECORDS: [&str; 2] = ["/proc/loadavg", "/proc/PID/stat"];

    #[test]
    fn a_malformed_line_hides_no_other() {
        let mut random = fastrand::Rng::with_seed(7);
        for case in CASES.iter().filter(|case| !RECORDS.contains(&case.file)) {
            let text = (case.text)(&mut random, 4);
            let facts = (case.ours)(&text);
            let lines: Vec<&str> = text.lines().collect();
            for place in 0..=lines.len() {
                for garbage in ["garbage: x y z", "\u{1}\u{fffd}", "9 -8 7"] {
                    let mut lines = lines.clone();
                    lines.insert(place, garbage);
                    let found = (case.ours)(&(lines.join("\n") + "\n"));
                    assert_eq!(found, facts, "{}: {garbage:?} before line {place}", case.file);
                }
            }
        }
    }

    #[test]
    fn the_agents_parsers_and_procfs_core_find_the_same_facts() {
        for case in CASES {
            for seed in 0..200 {
                let mut random = fastrand::Rng::with_seed(seed);
                let text = (case.text)(&mut random, usize::try_from(seed % 9 + 1).unwrap());
                let (ours, procfs) = ((case.ours)(&text), (case.procfs)(&text));
                assert!(!ours.is_empty(), "{}: no facts in\n{text}", case.file);
                assert_eq!(
                    ours, procfs,
                    "{}: ours (left), procfs-core (right):\n{text}",
                    case.file
                );
            }
        }
    }
}
