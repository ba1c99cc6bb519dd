//! `/proc/stat`: CPU times and a few counters (kernel: `fs/proc/stat.c`).

use super::{ParseError, counter, words};

/// Ticks per second in `/proc/stat`: the kernel's `USER_HZ`, 100 on all architectures of KubeVirt.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Times of one CPU in ticks, in the order of the columns. Columns that the kernel does not have
/// are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode; includes `guest`.
    pub user: u64,
    /// In user mode at low priority; includes `guest_nice`.
    pub nice: u64,
    /// In kernel mode.
    pub system: u64,
    pub idle: u64,
    /// Idle while a request to a disk was outstanding.
    pub iowait: u64,
    /// In interrupt handlers.
    pub irq: u64,
    /// In soft interrupts.
    pub softirq: u64,
    /// Ready to run while the hypervisor ran something else.
    pub steal: u64,
    /// Running virtual CPUs of guests of this machine.
    pub guest: u64,
    /// Running virtual CPUs at low priority.
    pub guest_nice: u64,
}

impl CpuTimes {
    /// Number of columns of a CPU's line.
    pub const COLUMNS: usize = 10;

    /// Returns the times in the order of the columns.
    pub fn columns(&self) -> [u64; Self::COLUMNS] {
        [
            self.user,
            self.nice,
            self.system,
            self.idle,
            self.iowait,
            self.irq,
            self.softirq,
            self.steal,
            self.guest,
            self.guest_nice,
        ]
    }

    /// Creates the times from columns in that order.
    pub fn from_columns(columns: [u64; Self::COLUMNS]) -> Self {
        let [
            user,
            nice,
            system,
            idle,
            iowait,
            irq,
            softirq,
            steal,
            guest,
            guest_nice,
        ] = columns;
        Self {
            user,
            nice,
            system,
            idle,
            iowait,
            irq,
            softirq,
            steal,
            guest,
            guest_nice,
        }
    }
}

/// Counters below the CPU lines; `None` if the line is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Interrupts since boot.
    pub interrupts: Option<u64>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// Processes and threads started since boot.
    pub forks: Option<u64>,
    /// Boot time, seconds since 1970.
    pub boot_time: Option<u64>,
    /// Number of runnable tasks.
    pub running: Option<u64>,
    /// Number of tasks that wait for I/O.
    pub blocked: Option<u64>,
}

/// Lines behind those of the CPUs.
const OTHER_LINES: [&str; 6] = ["intr", "ctxt", "btime", "processes", "procs_", "softirq"];

/// Parses the `cpuN` lines as `(N, times)`, without the total. Only online CPUs have a line.
/// Their numbers ascend, so another one has lost a digit.
pub fn cpus(text: &str) -> impl Iterator<Item = Result<(u32, CpuTimes), ParseError>> {
    let mut last = None;
    text.lines()
        .enumerate()
        // The CPU lines come first; stop before the `intr` line, which can be long.
        .take_while(|(_, line)| !OTHER_LINES.iter().any(|other| line.starts_with(other)))
        .filter_map(move |(index, line)| {
            let cpu = cpu(index, line).transpose()?;
            Some(cpu.and_then(|(id, times)| {
                if last.replace(id).is_some_and(|last| last >= id) {
                    return Err(ParseError::at(index, "a CPU's number above the one before", line));
                }
                Ok((id, times))
            }))
        })
}

/// Returns the number of the CPU that a line is about, even if its times are malformed.
pub fn cpu_number(line: &str) -> Option<u32> {
    words(line).next()?.strip_prefix("cpu")?.parse().ok()
}

fn cpu(index: usize, line: &str) -> Result<Option<(u32, CpuTimes)>, ParseError> {
    let mut words = words(line);
    let name = words.next().unwrap_or_default();
    if matches!(name, "cpu" | "") {
        return Ok(None);
    }
    let id = cpu_number(name).ok_or_else(|| ParseError::at(index, "cpu and its number", name))?;
    let mut columns = [0; CpuTimes::COLUMNS];
    let mut found = 0;
    for (column, word) in columns.iter_mut().zip(words) {
        *column = counter(Some(word), index, "a number of ticks")?;
        found += 1;
    }
    // user, nice, system and idle exist since Linux 2.4.
    if found < 4 {
        return Err(ParseError::at(index, "at least 4 times of a CPU", line));
    }
    Ok(Some((id, CpuTimes::from_columns(columns))))
}

/// Parses the counters below the CPU lines, and passes malformed ones to `bad`.
pub fn counters(text: &str, mut bad: impl FnMut(ParseError)) -> Counters {
    let mut counters = Counters::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = words(line);
        let slot = match words.next() {
            Some("intr") => &mut counters.interrupts,
            Some("ctxt") => &mut counters.context_switches,
            Some("processes") => &mut counters.forks,
            Some("btime") => &mut counters.boot_time,
            Some("procs_running") => &mut counters.running,
            Some("procs_blocked") => &mut counters.blocked,
            _ => continue,
        };
        *slot = counter(words.next(), index, "a counter").map_err(&mut bad).ok();
    }
    counters
}

/// Number of soft interrupt vectors.
pub const SOFTIRQS: usize = 10;

/// Parses the soft interrupts since boot, by vector, in the kernel's order (kernel:
/// `include/linux/interrupt.h`). `None` if the line is missing.
///
/// # Errors
///
/// A counter is malformed.
pub fn softirqs(text: &str) -> Result<Option<[u64; SOFTIRQS]>, ParseError> {
    let mut lines = text.lines().enumerate();
    let Some((index, rest)) =
        lines.find_map(|(index, line)| line.strip_prefix("softirq ").map(|rest| (index, rest)))
    else {
        return Ok(None);
    };
    // The total comes first.
    let mut words = words(rest).skip(1);
    let mut vectors = [0; SOFTIRQS];
    for vector in &mut vectors {
        *vector = counter(words.next(), index, "10 counters of soft interrupts")?;
    }
    Ok(Some(vectors))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::hostile::{self, with_bad},
        *,
    };

    const SAMPLE: &str = "cpu  10 1 5 900 3 0 1 2 0 0\ncpu0 6 1 3 450 2 0 1 1 4 5\ncpu3 4 0 2 450 1 0 0 1 0 0\n\
                          intr 77 9 0 0\nctxt 123\nbtime 1700000000\nprocesses 42\nprocs_running 2\nprocs_blocked 1\n\
                          softirq 5 1 1\n";

    #[test]
    fn cpus_keep_their_numbers_when_one_is_offline() {
        let cpus: Vec<_> = cpus(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!(cpus.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(cpus[0].1.columns(), [6, 1, 3, 450, 2, 0, 1, 1, 4, 5]);
    }

    #[test]
    fn columns_of_other_kernels() {
        let old: Vec<_> = cpus("cpu0 1 2 3 4\n").collect::<Result<_, _>>().unwrap();
        assert_eq!(old[0].1.columns(), [1, 2, 3, 4, 0, 0, 0, 0, 0, 0]);
        let new: Vec<_> = cpus("cpu0 1 2 3 4 5 6 7 8 9 10 11 x\n")
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(new[0].1.guest_nice, 10);
    }

    #[test]
    fn counters_are_found_or_absent() {
        let (found, bad) = with_bad(|bad| counters(SAMPLE, bad));
        assert!(bad.is_empty());
        assert_eq!(found.interrupts, Some(77));
        assert_eq!(found.boot_time, Some(1_700_000_000));
        assert_eq!(found.blocked, Some(1));
        assert_eq!(counters("", |_| panic!()), Counters::default());
    }

    #[test]
    fn soft_interrupts() {
        let text = "ctxt 1\nsoftirq 55 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(softirqs(text), Ok(Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])));
        assert_eq!(softirqs("ctxt 1\n"), Ok(None));
        assert_eq!(softirqs(SAMPLE).unwrap_err().line, 10);
    }

    #[test]
    fn malformed_lines_are_reported() {
        let error = cpus("cpu  1 1 1 1\ncpu0 1 2\n").collect::<Result<Vec<_>, _>>();
        assert_eq!(error.unwrap_err().line, 2);
        assert!(cpus("cpux 1 2 3 4").next().unwrap().is_err());
        // The CPUs behind it are found, and nothing behind the CPUs is an error.
        let broken = SAMPLE.replace("cpu0 6", "noise\ncpu0 x");
        let all: Vec<_> = cpus(&broken)
            .map(|one| one.map(|cpu| cpu.0).map_err(|error| error.line))
            .collect();
        assert_eq!(all, [Err(2), Err(3), Ok(3)]);
        assert!(cpus("cpu0 1 2 -3 4").next().unwrap().is_err());
        // The second one was cpu12.
        let lost = "cpu0 1 1 1 1\ncpu1 1 1 1 1\ncpu1 9 9 9 9\ncpu13 1 1 1 1\n";
        let all: Vec<_> = cpus(lost)
            .map(|one| one.map(|cpu| cpu.0).map_err(|error| error.line))
            .collect();
        assert_eq!(all, [Ok(0), Ok(1), Err(3), Ok(13)]);
        let (found, bad) = with_bad(|bad| counters("ctxt 1\nbtime\nprocesses 2", bad));
        assert_eq!(
            (found.context_switches, found.boot_time, found.forks),
            (Some(1), None, Some(2))
        );
        assert_eq!(bad, [2]);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            cpus(&text).count();
            counters(&text, |_| {});
            softirqs(&text).ok();
        }
    }
}
