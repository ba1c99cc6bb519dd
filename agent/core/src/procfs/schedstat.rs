//! `/proc/schedstat`: run and wait times of tasks per CPU (kernel: `kernel/sched/stats.c`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSchedule {
    pub cpu: u32,
    /// Run time of tasks in nanoseconds.
    pub running_ns: u64,
    /// Wait time of tasks in nanoseconds.
    pub waiting_ns: u64,
    /// Number of time slices.
    pub timeslices: u64,
}

/// Starts of the other lines: headings and domains.
const OTHER_LINES: [&str; 3] = ["version", "timestamp", "domain"];

/// Parses the CPUs, and skips the lines of domains and headings.
pub fn cpus(text: &str) -> impl Iterator<Item = Result<CpuSchedule, ParseError>> {
    let other = |line: &str| OTHER_LINES.iter().any(|start| line.starts_with(start));
    let lines = text.lines().enumerate();
    let lines = lines.filter(move |(_, line)| !line.trim().is_empty() && !other(line));
    lines.map(|(index, line)| match line.strip_prefix("cpu") {
        Some(rest) => cpu(index, rest),
        None => Err(ParseError::at(index, "cpu and its number", line)),
    })
}

fn cpu(index: usize, rest: &str) -> Result<CpuSchedule, ParseError> {
    let mut words = words(rest);
    let number = words.next().unwrap_or_default();
    let cpu = number
        .parse()
        .map_err(|_| ParseError::at(index, "cpu and its number", number))?;
    // Preceded by counters of sched_yield, the scheduler and wakeups.
    for _ in 0..6 {
        counter(words.next(), index, "9 counters of a CPU")?;
    }
    let mut next = || counter(words.next(), index, "9 counters of a CPU");
    Ok(CpuSchedule {
        cpu,
        running_ns: next()?,
        waiting_ns: next()?,
        timeslices: next()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "version 17\ntimestamp 4295205732\n\
                          cpu0 0 0 0 0 0 0 2045936778163 343796328169 4767485\n\
                          domain0 MC 00000000,0000000f 100 1 2 3\ncpu3 5 0 6 7 8 9 10 11 12\n";

    #[test]
    fn cpus_keep_their_numbers() {
        let all: Vec<_> = cpus(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].running_ns, 2_045_936_778_163);
        assert_eq!(
            all[1],
            CpuSchedule {
                cpu: 3,
                running_ns: 10,
                waiting_ns: 11,
                timeslices: 12
            }
        );
        for text in [
            "cpu0 1 2 3",
            "cpX0 0 0 0 0 0 0 1 2 3",
            "cpux 0 0 0 0 0 0 1 2 3",
            "cpu1 0 0 0 0 0 0 1 x 3",
        ] {
            assert_eq!(cpus(text).next().unwrap().unwrap_err().line, 1, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = cpus(&text).count();
        }
    }
}
