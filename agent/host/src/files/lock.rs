//! A lock between processes, waited for no longer than asked. Who holds it says in its file who that is, since when, and what it does.

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

use crate::{Witness, clock, files::atomic_file::make_directories, read_text};

/// How often somebody who waits is told what for.
const EVERY: Duration = Duration::from_secs(5);
/// The file has one line.
const CAP: usize = 4096;
/// The longest word about what is being done.
const WORDS: usize = 200;

/// Who holds a lock, as its file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Since when, by the boot clock, nanoseconds.
    pub since_boottime_ns: u64,
    /// What it does now.
    pub doing: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = clock().boottime_ns.saturating_sub(self.since_boottime_ns) / 1_000_000_000;
        write!(f, "process {}, for {seconds} s, at: {}", self.pid, self.doing)
    }
}

/// Whoever holds the lock of that file says so; none when that cannot be read.
fn holder(path: &Path) -> Option<Holder> {
    serde_json::from_str(&read_text(path, CAP).ok()?).ok()
}

/// In a message: who, or how to find out.
fn who(path: &Path) -> String {
    holder(path).map_or_else(
        || format!("another process; `fuser -v {}` names it", path.display()),
        |holder| holder.to_string(),
    )
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is held by {holder}; waited for {} s", path.display(), waited.as_secs())]
    Held {
        /// Who that is.
        holder: String,
        /// The file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The file cannot be used.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// The lock; it is let go when this is dropped, and with the last thread of the process. A thread that hangs in the kernel on a dead disk outlives a kill, and the
/// lock with it.
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

    /// Tells those who wait what is being done. That it cannot be written down stops nothing.
    pub fn say(&self, doing: &str) {
        let holder = Holder {
            pid: std::process::id(),
            since_boottime_ns: self.since_boottime_ns,
            doing: doing.chars().filter(|c| !c.is_control()).take(WORDS).collect(),
        };
        let Ok(text) = serde_json::to_string(&holder) else {
            return;
        };
        // Who reads in between may find the end of what was there: then it is not known for that moment.
        let line = format!("{text}\n");
        let written = self.file.write_all_at(line.as_bytes(), 0);
        drop(written.and_then(|()| self.file.set_len(line.len() as u64)));
    }
}

/// What is done to disks is what the holder does.
impl Witness for Lock {
    fn at(&self, point: &str) {
        self.say(&format!("disk {point}"));
    }
}

/// Takes the lock of a file, which is made with mode 0600 (whoever may open it may lock it) where it is not there.
///
/// Waits for `limit` at the most. It is flock(2), so a lock that another process holds ends with the last thread of that process.
pub fn lock_within(path: &Path, limit: Duration) -> Result<Lock, LockError> {
    lock_waiting(path, limit, "", &mut |_| {})
}

/// The same. `doing` is what the holder is about to do; `tell` hears every few seconds who is waited for, and how long still.
pub fn lock_waiting(
    path: &Path,
    limit: Duration,
    doing: &str,
    tell: &mut dyn FnMut(&str),
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
    // The kernel's wait has no limit: a thread of its own waits, and when nobody listens any more the lock is dropped.
    let (sender, taken) = sync_channel(1);
    thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || drop(sender.send(file.lock().map(|()| file))))
        .map_err(at)?;
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        match taken.recv_timeout(left.min(EVERY)) {
            Ok(result) => return result.map(|file| Lock::held(file, doing)).map_err(at),
            Err(RecvTimeoutError::Timeout) if left <= EVERY => {
                return Err(LockError::Held {
                    holder: who(path),
                    path: path.to_owned(),
                    waited: limit,
                });
            }
            Err(RecvTimeoutError::Timeout) => {
                let left = limit.saturating_sub(begun.elapsed()).as_secs();
                tell(&format!(
                    "waiting for another pass ({}); {left} s left",
                    who(path)
                ));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(at(io::Error::other("the thread that waits has ended")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn one_holds_it_and_the_next_waits_no_longer_than_asked() {
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
    fn who_waits_is_told_for_whom() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock_waiting(&path, Duration::ZERO, "a long thing to be done", &mut |_| {}).unwrap();
        held.at("data before seed");
        let told = |error: LockError| error.to_string();
        let at_once = told(lock_within(&path, Duration::ZERO).unwrap_err());
        let pid = format!("process {}, for ", std::process::id());
        assert!(
            at_once.contains(&pid) && at_once.contains("at: disk data before seed; waited for 0 s"),
            "{at_once}"
        );
        let mut lines = Vec::new();
        lock_waiting(&path, EVERY * 3 / 2, "", &mut |line| lines.push(line.to_owned())).unwrap_err();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains(&pid) && lines[0].ends_with(" s left"),
            "{lines:?}"
        );
        drop(held);
        // What somebody else has left there is overwritten, and what cannot be read is no reason not to wait.
        fs::write(
            &path,
            "nonsense that is longer than what is written over it, by far, so that its end would show",
        )
        .unwrap();
        let held = lock_waiting(&path, Duration::ZERO, "b", &mut |_| {}).unwrap();
        assert_eq!(holder(&path).unwrap().doing, "b");
        fs::write(&path, "nonsense").unwrap();
        let error = told(lock_within(&path, Duration::ZERO).unwrap_err());
        assert!(error.contains("fuser -v"), "{error}");
        drop(held);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink("target", &path).unwrap();
        lock_within(&path, Duration::from_secs(20)).unwrap_err();
        assert!(!dir.path().join("target").exists());
    }
}
