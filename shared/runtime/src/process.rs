//! Metrics of the program's own process, with the names of Prometheus' client libraries ("Writing
//! client libraries", section "Process metrics").
//!
//! Reads `<procfs>/self` and `<procfs>/stat`. Families that cannot be read are omitted.

use std::{fs, io, path::Path};

use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::{SysconfVar, sysconf},
};
use virtfleet_wire::exposition::Page;

/// Units of the kernel's counters, from `sysconf`.
#[derive(Debug, Clone, Copy)]
struct Units {
    /// `_SC_CLK_TCK`: ticks in a second.
    ticks: f64,
    /// `_SC_PAGESIZE`, in bytes.
    page: f64,
}

/// Fields of `/proc/self/stat`, numbered as in proc_pid_stat(5).
#[derive(Debug, Clone, Copy, PartialEq)]
struct SelfStat {
    /// 14 and 15: user and system time, in ticks.
    cpu_ticks: f64,
    /// 20.
    threads: f64,
    /// 22: ticks from boot to the start of the process.
    start_ticks: f64,
    /// 23, in bytes.
    virtual_bytes: f64,
    /// 24, in pages.
    resident_pages: f64,
}

/// Raises the soft limit on open files to the hard limit, and returns it. The soft limit is often
/// 1024, for programs that use select(2).
///
/// # Errors
/// The limit cannot be read or set.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Appends `process_*` of this process to `page`. `procfs` is the mount point of proc, usually
/// `/proc`.
pub fn append_process_metrics(page: &mut Page, procfs: &Path) {
    let units = units();
    let stat = fs::read_to_string(procfs.join("self/stat")).ok();
    if let Some((stat, units)) = stat.as_deref().and_then(parse_self_stat).zip(units) {
        let boot = fs::read_to_string(procfs.join("stat"))
            .ok()
            .and_then(|text| boot_time(&text));
        append_stat(page, stat, units, boot);
    }
    if let Some(open) = open_files(procfs) {
        page.gauge("process_open_fds", "Open file descriptors.", open as f64);
    }
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_AS) {
        page.gauge(
            "process_virtual_memory_max_bytes",
            "Maximum virtual memory of the process (soft limit), in bytes; 2^64 - 1 without a limit.",
            soft as f64,
        );
    }
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        page.gauge(
            "process_max_fds",
            "Maximum open file descriptors (soft limit).",
            soft as f64,
        );
    }
}

/// Number of open files of this process.
fn open_files(procfs: &Path) -> Option<u64> {
    let directory = procfs.join("self/fd");
    // Since Linux 6.2 the number is the size of the directory (kernel: `fs/proc/fd.c`), which
    // avoids listing all of them; before it was 0. Only the kernel's own proc has it.
    if procfs == Path::new("/proc")
        && let Ok(told) = fs::metadata(&directory)
        && told.len() > 0
    {
        return Some(told.len());
    }
    // The listing itself has one of them open.
    Some((fs::read_dir(directory).ok()?.count() as u64).saturating_sub(1))
}

fn append_stat(page: &mut Page, stat: SelfStat, units: Units, boot: Option<f64>) {
    page.counter(
        "process_cpu_seconds_total",
        "User and system CPU time spent, in seconds.",
        stat.cpu_ticks / units.ticks,
    );
    page.gauge(
        "process_resident_memory_bytes",
        "Resident memory, in bytes.",
        stat.resident_pages * units.page,
    );
    page.gauge(
        "process_virtual_memory_bytes",
        "Virtual memory, in bytes.",
        stat.virtual_bytes,
    );
    page.gauge("process_threads", "Threads of the process.", stat.threads);
    if let Some(boot) = boot {
        page.gauge(
            "process_start_time_seconds",
            "Start time of the process, in seconds since 1970.",
            boot + stat.start_ticks / units.ticks,
        );
    }
}

fn units() -> Option<Units> {
    let read = |var| sysconf(var).ok().flatten().filter(|value| *value > 0);
    Some(Units {
        ticks: read(SysconfVar::CLK_TCK)? as f64,
        page: read(SysconfVar::PAGE_SIZE)? as f64,
    })
}

/// The second field is the program's name in parentheses, which may contain spaces and parentheses:
/// count from the last one.
fn parse_self_stat(text: &str) -> Option<SelfStat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field here is field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(SelfStat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// `btime` of `/proc/stat`: the boot time in seconds since 1970.
fn boot_time(text: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 500 0 0 0 250 50 0 0 20 0 3 0 1000 104857600 2560 \
                        18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn the_soft_limit_on_files_is_raised_to_the_hard_one() {
        let limit = raise_file_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }

    #[test]
    fn open_files_are_counted_on_all_kernels() {
        let kept: Vec<_> = (0..100).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open files as well.
        let close = |_| {
            let (told, listed) = (open_files(Path::new("/proc")), open_files(Path::new("/proc/.")));
            told.zip(listed)
                .is_some_and(|(told, listed)| told == listed && told > 100)
        };
        assert!((0..1000).any(close), "{}", kept.len());
        assert_eq!(open_files(Path::new("/no/such/proc")), None);
    }

    #[test]
    fn a_stat_line_with_a_hostile_name_gives_its_metrics() {
        let stat = parse_self_stat(STAT).unwrap();
        let units = Units {
            ticks: 100.0,
            page: 4096.0,
        };
        let mut page = Page::new();
        append_stat(&mut page, stat, units, boot_time("cpu 1 2\nbtime 1700000000\n"));
        let text = page.to_text();
        for line in [
            "process_cpu_seconds_total 3\n",
            "process_resident_memory_bytes 10485760\n",
            "process_virtual_memory_bytes 104857600\n",
            "process_threads 3\n",
            "process_start_time_seconds 1700000010\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn malformed_stat_lines_are_ignored() {
        for text in ["", "1 (x", "1 (x) S 1 2", &STAT.replace("2560", "many")] {
            assert_eq!(parse_self_stat(text), None, "{text:?}");
        }
        assert_eq!(boot_time("cpu 1\n"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut page = Page::new();
        append_process_metrics(&mut page, Path::new("/proc"));
        assert_eq!(page.samples(), 8, "{}", page.to_text());
    }

    #[test]
    fn an_empty_procfs_leaves_only_the_limits() {
        let root = tempfile::tempdir().unwrap();
        let mut page = Page::new();
        append_process_metrics(&mut page, root.path());
        assert_eq!(page.samples(), 2, "{}", page.to_text());
    }
}
