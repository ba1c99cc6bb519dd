//! Running programs that affect DNS. Processes of containers, which have a second PID, are
//! excluded.

use nix::unistd::{SysconfVar, sysconf};

use crate::{Roots, list, read_bounded, read_text};

/// Maximum length of a program's name in `comm`.
const MAX_COMM_LENGTH: usize = 15;
const PROGRAMS: [&str; 9] = [
    "systemd-resolved",
    "systemd-networkd",
    "NetworkManager",
    "dhclient",
    "dhcpcd",
    "kubelet",
    "k3s-server",
    "k3s-agent",
    "kubelite",
];

/// The running programs with their arguments.
#[derive(Debug, Default)]
pub(in super::super) struct Processes(Vec<Process>);

#[derive(Debug)]
struct Process {
    program: &'static str,
    args: Vec<String>,
    started_ns: Option<u64>,
}

impl Processes {
    pub(in super::super) fn of(roots: &Roots) -> Self {
        let mut found = Vec::new();
        for id in list(&roots.procfs).unwrap_or_default() {
            if !id.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let read = |name: &str, cap| read_text(&roots.proc(&id).join(name), cap);
            let Ok(comm) = read("comm", 64) else { continue };
            let is = |program: &&&str| program.get(..MAX_COMM_LENGTH).unwrap_or(program) == comm.trim_end();
            let Some(program) = PROGRAMS.iter().find(is) else {
                continue;
            };
            let contained = read("status", 1 << 16).is_ok_and(|status| {
                let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
                ids.is_some_and(|ids| ids.split_whitespace().count() > 1)
            });
            if contained {
                continue;
            }
            let line = read_bounded(&roots.proc(&id).join("cmdline"), 1 << 16).unwrap_or_default();
            let args = line
                .split(|byte| *byte == 0)
                .map(|arg| String::from_utf8_lossy(arg).into_owned());
            found.push(Process {
                program,
                args: args.collect(),
                started_ns: read("stat", 4096).ok().and_then(|stat| started(&stat)),
            });
        }
        Self(found)
    }

    /// True if the program runs.
    pub(in super::super) fn runs(&self, program: &str) -> bool {
        self.args(program).next().is_some()
    }

    /// Start of the first process of the program, `CLOCK_BOOTTIME` in nanoseconds. `None` if it
    /// does not run.
    pub(super) fn started_ns(&self, program: &str) -> Option<u64> {
        let named = self.0.iter().filter(|one| one.program == program);
        named.filter_map(|one| one.started_ns).min()
    }

    /// Arguments of each running process of the program.
    pub(super) fn args(&self, program: &str) -> impl Iterator<Item = &[String]> {
        self.0
            .iter()
            .filter(move |one| one.program == program)
            .map(|one| one.args.as_slice())
    }
}

/// The 22nd field of `/proc/<pid>/stat` in clock ticks since boot (proc_pid_stat(5)). The second
/// field, the name, may contain spaces and parentheses.
fn started(stat: &str) -> Option<u64> {
    let ticks: u64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let a_second = a_second
        .and_then(|ticks| u64::try_from(ticks).ok())
        .filter(|ticks| *ticks > 0)?;
    Some(ticks.saturating_mul(1_000_000_000 / a_second))
}
