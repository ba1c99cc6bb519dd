//! A lock between processes, waited for no longer than asked.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use nix::libc;

use super::atomic_file::make_directories;

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is held by another process for more than {} s; `fuser -v {}` names it", path.display(), waited.as_secs(), path.display())]
    Held {
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

/// The lock; it is let go when this is dropped, and when the process ends in whatever way.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] File);

/// Takes the lock of a file, which is made with mode 0600 (whoever may open it may lock it) where it is not there.
///
/// Waits for `limit` at the most. It is flock(2), so a lock that another process holds ends with that process.
pub fn lock_within(path: &Path, limit: Duration) -> Result<Lock, LockError> {
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
    // The kernel's wait has no limit: a thread of its own waits, and when nobody listens any more the lock is dropped.
    let (sender, taken) = sync_channel(1);
    thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || drop(sender.send(file.lock().map(|()| file))))
        .map_err(at)?;
    match taken.recv_timeout(limit) {
        Ok(result) => result.map(Lock).map_err(at),
        Err(RecvTimeoutError::Timeout) => Err(LockError::Held {
            path: path.to_owned(),
            waited: limit,
        }),
        Err(RecvTimeoutError::Disconnected) => Err(at(io::Error::other("the thread that waits has ended"))),
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
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink("target", &path).unwrap();
        lock_within(&path, Duration::from_secs(20)).unwrap_err();
        assert!(!dir.path().join("target").exists());
    }
}
