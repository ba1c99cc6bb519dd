//! A lock between processes with a bounded wait. The holder writes its PID, start time and current
//! activity to the lock file.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use nix::libc;
use serde::{Deserialize, Serialize};

use crate::{FailPoints, clock, files::atomic_file::make_directories, read_text};

/// Interval of progress reports to a waiting caller.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of the lock file in bytes; it has one line.
const MAX_FILE_BYTES: usize = 4096;
/// Maximum length of the description of an activity in bytes.
const MAX_ACTIVITY_BYTES: usize = 200;

/// The holder of a lock, from the lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub pid: u32,
    /// When the lock was acquired: boot clock, nanoseconds.
    pub since_boottime_ns: u64,
    /// Current activity.
    pub doing: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = clock().boottime_ns.saturating_sub(self.since_boottime_ns) / 1_000_000_000;
        write!(f, "process {}, for {seconds} s, at: {}", self.pid, self.doing)
    }
}

/// The holder of the lock; `None` if the file cannot be read.
fn holder(path: &Path) -> Option<Holder> {
    serde_json::from_str(&read_text(path, MAX_FILE_BYTES).ok()?).ok()
}

/// Description of the holder for a message.
fn holder_text(path: &Path) -> String {
    holder(path).map_or_else(
        || format!("another process; `fuser -v {}` shows it", path.display()),
        |holder| holder.to_string(),
    )
}

/// Why the lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is held by {holder}; waited for {} s", path.display(), waited.as_secs())]
    Held {
        holder: String,
        /// The lock file.
        path: PathBuf,
        /// How long the caller waited.
        waited: Duration,
    },
    #[error("cannot lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        source: io::Error,
    },
}

/// An acquired lock. It is released on drop, or when the last thread of the process ends. A thread
/// that hangs in the kernel on a dead disk survives SIGKILL, and so does the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    since_boottime_ns: u64,
}

impl Lock {
    fn held(file: File, doing: &str) -> Self {
        let since_boottime_ns = clock().boottime_ns;
        let lock = Self {
            file,
            since_boottime_ns,
        };
        lock.say(doing);
        lock
    }

    /// Updates the activity in the lock file. Write errors are ignored.
    pub fn say(&self, doing: &str) {
        let holder = Holder {
            pid: std::process::id(),
            since_boottime_ns: self.since_boottime_ns,
            doing: doing
                .chars()
                .filter(|c| !c.is_control())
                .take(MAX_ACTIVITY_BYTES)
                .collect(),
        };
        let Ok(text) = serde_json::to_string(&holder) else {
            return;
        };
        // A concurrent reader may see the end of the previous text; then the holder is unknown for
        // that moment.
        let line = format!("{text}\n");
        let written = self.file.write_all_at(line.as_bytes(), 0);
        drop(written.and_then(|()| self.file.set_len(line.len() as u64)));
    }
}

/// Records each fail point as the holder's activity.
impl FailPoints for Lock {
    fn at(&self, point: &str) {
        self.say(&format!("disk {point}"));
    }
}

/// Acquires the lock of a file, which is created with mode 0600 if it is missing (every process
/// that can open the file can lock it).
///
/// Waits at most `limit`. The lock is a flock(2), so another process's lock ends with the last
/// thread of that process.
///
/// # Errors
/// Another process holds the lock, or the file is unusable.
pub fn lock_within(path: &Path, limit: Duration) -> Result<Lock, LockError> {
    lock_waiting(path, limit, "", &mut |_| {})
}

/// Like [`lock_within`]. `doing`: what the holder is about to do. `report` receives a description
/// of the holder and the remaining time every few seconds.
///
/// # Errors
/// As [`lock_within`].
pub fn lock_waiting(
    path: &Path,
    limit: Duration,
    doing: &str,
    report: &mut dyn FnMut(&str),
) -> Result<Lock, LockError> {
    let at = |source| LockError::Io {
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path.parent() {
        make_directories(parent).map_err(at)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(at)?;
    if file.try_lock().is_ok() {
        return Ok(Lock::held(file, doing));
    }
    let begun = Instant::now();
    // The kernel's wait has no timeout, so a thread waits. If the caller has given up, the thread
    // drops the lock.
    let (sender, taken) = sync_channel(1);
    thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || drop(sender.send(file.lock().map(|()| file))))
        .map_err(at)?;
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        match taken.recv_timeout(left.min(PROGRESS_INTERVAL)) {
            Ok(result) => return result.map(|file| Lock::held(file, doing)).map_err(at),
            Err(RecvTimeoutError::Timeout) if left <= PROGRESS_INTERVAL => {
                return Err(LockError::Held {
                    holder: holder_text(path),
                    path: path.to_owned(),
                    waited: limit,
                });
            }
            Err(RecvTimeoutError::Timeout) => {
                let left = limit.saturating_sub(begun.elapsed()).as_secs();
                report(&format!(
                    "waiting for another reconcile run ({}); {left} s left",
                    holder_text(path)
                ));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(at(io::Error::other("the waiting thread has ended")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn the_wait_for_a_held_lock_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/apply.lock");
        let held = lock_within(&path, Duration::from_secs(20)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let error = lock_within(&path, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        let (waiting, path) = (path.clone(), path);
        let waiter = thread::spawn(move || lock_within(&waiting, Duration::from_secs(20)));
        drop(held);
        waiter.join().unwrap().unwrap();
        lock_within(&path, Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_waiting_caller_is_informed_about_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock_waiting(&path, Duration::ZERO, "a long thing to be done", &mut |_| {}).unwrap();
        held.at("data before seed");
        let message = |error: LockError| error.to_string();
        let at_once = message(lock_within(&path, Duration::ZERO).unwrap_err());
        let pid = format!("process {}, for ", std::process::id());
        assert!(
            at_once.contains(&pid) && at_once.contains("at: disk data before seed; waited for 0 s"),
            "{at_once}"
        );
        let mut lines = Vec::new();
        lock_waiting(&path, PROGRESS_INTERVAL * 3 / 2, "", &mut |line| {
            lines.push(line.to_owned());
        })
        .unwrap_err();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains(&pid) && lines[0].ends_with(" s left"),
            "{lines:?}"
        );
        drop(held);
        // Old content of the file is overwritten, and malformed content does not prevent waiting.
        fs::write(
            &path,
            "nonsense that is longer than what is written over it, by far, so that its end would show",
        )
        .unwrap();
        let held = lock_waiting(&path, Duration::ZERO, "b", &mut |_| {}).unwrap();
        assert_eq!(holder(&path).unwrap().doing, "b");
        fs::write(&path, "nonsense").unwrap();
        let error = message(lock_within(&path, Duration::ZERO).unwrap_err());
        assert!(error.contains("fuser -v"), "{error}");
        drop(held);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink("target", &path).unwrap();
        lock_within(&path, Duration::from_secs(20)).unwrap_err();
        assert!(!dir.path().join("target").exists());
    }
}
