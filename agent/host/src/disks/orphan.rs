//! Tools of an earlier run that are still running: the agent was killed, but its `mkfs` was not.
//!
//! Such a tool holds the lock of the whole disk, which it inherited as its standard input
//! ([`crate::Commands::run_with_lock`]), so nothing else modifies the disk. The agent waits for it,
//! and kills it if it is stopped or takes too long.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use virtfleet_agent_core::disks::{DevNumber, journal::Entry};

use super::{Disks, observe::node_number, tools::mkfs};
use crate::list;

/// Maximum time to wait for a tool that makes progress.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for a killed tool to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that is verified to be a tool of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Orphan {
    pid: i32,
    /// Clock ticks after boot when it started (proc_pid_stat(5), field 22).
    start: u64,
    /// `T` if it is stopped.
    state: char,
}

impl Disks<'_> {
    /// Waits for the tool that the entry records as begun if it still runs on its device, and kills
    /// it if it is stopped or does not exit in 20 s. Returns a description of the killed tool for
    /// the log.
    ///
    /// A process is that tool only if its program, the UUID in its arguments, the device as its
    /// last argument and the locked disk as its standard input match the entry.
    pub fn end_orphan(&self, entry: &Entry) -> Option<String> {
        let begun = Instant::now();
        let mut ended = None;
        let mut last: Option<Orphan> = None;
        loop {
            let Some(orphan) = self.orphan(entry) else {
                return ended;
            };
            if last
                .as_ref()
                .is_some_and(|last| (last.pid, last.start) != (orphan.pid, orphan.start))
            {
                return ended;
            }
            if ended.is_none() && (orphan.state == 'T' || begun.elapsed() >= ORPHAN_TIMEOUT) {
                // The process was just verified by its arguments and open device; PIDs are not
                // reused that fast.
                kill(Pid::from_raw(orphan.pid), Signal::SIGKILL).ok();
                let program = program(entry).unwrap_or_default();
                ended = Some(format!(
                    "{program} (process {}) on {}",
                    orphan.pid, entry.device.name
                ));
            }
            if begun.elapsed() >= ORPHAN_TIMEOUT + KILL_TIMEOUT {
                // It hangs in the kernel; the lock that it holds makes the disk unreadable.
                return ended;
            }
            last = Some(orphan);
            #[expect(
                clippy::disallowed_methods,
                reason = "the exit of another run's process cannot be waited for"
            )]
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn orphan(&self, entry: &Entry) -> Option<Orphan> {
        let processes = list(&self.roots.procfs).ok()?;
        // The lock is that of the whole disk, for a partition too.
        let locked = self.roots.root(format!("/dev/{}", entry.device.disk()));
        let number = node_number(&locked)?;
        processes
            .iter()
            .filter_map(|name| name.parse().ok())
            .find_map(|pid| self.as_orphan(pid, entry, number))
    }

    fn as_orphan(&self, pid: i32, entry: &Entry, number: DevNumber) -> Option<Orphan> {
        let folder = self.roots.proc(pid.to_string());
        let line = fs::read(folder.join("cmdline")).ok()?;
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .filter(|word| !word.is_empty())
            .collect();
        let program = program(entry)?;
        let uuid = entry.luks_uuid.as_ref().unwrap_or(&entry.uuid);
        let named = |word: &String| word == uuid || word.strip_prefix("uuid=") == Some(uuid);
        let file = words.first().and_then(|word| Path::new(word).file_name())?;
        let node = self.node(&entry.device);
        let fits = file == program
            && words.iter().any(named)
            && words.last().is_some_and(|word| Path::new(word) == node)
            && node_number(&folder.join("fd/0")) == Some(number);
        let stat = fs::read_to_string(folder.join("stat")).ok().filter(|_| fits)?;
        parse_stat(&stat).map(|(state, start)| Orphan { pid, start, state })
    }
}

/// The tool that the entry records as begun on the disk itself.
fn program(entry: &Entry) -> Option<&'static str> {
    if entry.luks_uuid.is_some() {
        Some("cryptsetup")
    } else {
        mkfs::program(&entry.filesystem)
    }
}

/// State and start time. `None` for a zombie.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields
        .next()?
        .chars()
        .next()
        .filter(|state| !matches!(state, 'Z' | 'X'))?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse_stat;

    #[test]
    fn state_and_start_are_fields_3_and_22() {
        let text = |state: &str| {
            format!("71 (a) b) {state} 1 71 71 0 -1 4194560 94 0 0 0 0 0 0 0 20 0 1 0 4242 2310144 0\n")
        };
        assert_eq!(parse_stat(&text("T")), Some(('T', 4242)));
        assert_eq!(parse_stat(&text("Z")), None);
        assert_eq!(parse_stat("71 (a) T 1"), None);
        assert_eq!(parse_stat(""), None);
    }
}
