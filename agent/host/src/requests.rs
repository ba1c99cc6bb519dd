//! Reconcile requests: a file in `/run/virtfleet/ask` makes systemd start
//! `virtfleet-reconcile.service`, as long as any file exists (`PathExistsGlob=` is level-triggered,
//! so no request is lost). Only the names matter; the contents are never read.
//!
//! The unprivileged agent can write here, so the directory is untrusted: no file is opened, no link
//! is followed, and the number of files handled in one reconcile run is bounded.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use nix::libc;
use virtfleet_agent_core::pass::trigger_names;

use crate::Roots;

/// Path of the directory in the guest.
pub const REQUEST_DIRECTORY: &str = "/run/virtfleet/ask";
/// Maximum number of requests that one reconcile run takes; the rest starts the next run.
const MAX_REQUESTS: usize = 1024;

/// Source of a reconcile request; its name is the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// The agent, or a stage that could not acquire the lock.
    Agent,
    /// The agent's DNS watch.
    Dns,
    /// An unfinished change of queues.
    Nic,
}

impl Requester {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Dns => "dns",
            Self::Nic => "nic",
        }
    }
}

/// Why a request could not be queued.
#[derive(Debug, thiserror::Error)]
#[error("cannot request a reconcile run: cannot create {}", path.display())]
pub struct RequestError {
    path: PathBuf,
    source: io::Error,
}

/// Requests a reconcile run. Has no effect if the requester already has a queued request.
///
/// # Errors
/// The file cannot be created, e.g. because the directory is missing.
pub fn request_reconcile(roots: &Roots, requester: Requester) -> Result<(), RequestError> {
    let path = roots.root(REQUEST_DIRECTORY).join(requester.name());
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
        .map(drop)
        .map_err(|source| RequestError { path, source })
}

/// Withdraws a request whose reason no longer applies.
pub fn withdraw_request(roots: &Roots, requester: Requester) {
    // A file that cannot be removed costs one more reconcile run.
    fs::remove_file(roots.root(REQUEST_DIRECTORY).join(requester.name())).ok();
}

/// The requests that a reconcile run took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakenRequests {
    /// Names of the requests, for the record.
    pub names: Vec<String>,
    /// Why a request could not be removed. It starts another run.
    pub stuck: Option<String>,
}

/// Takes all requests: reads the names, then removes the files. Call it before the run begins, so
/// that a request created meanwhile starts another run.
pub fn take_requests(roots: &Roots) -> TakenRequests {
    let directory = roots.root(REQUEST_DIRECTORY);
    let mut taken = TakenRequests::default();
    let mut names = Vec::new();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return taken,
        Err(error) => {
            taken.stuck = Some(format!("{REQUEST_DIRECTORY} cannot be read: {error}"));
            return taken;
        }
    };
    for entry in entries.take(MAX_REQUESTS).flatten() {
        let path = entry.path();
        // Neither call follows symbolic links.
        let removed = fs::remove_file(&path).or_else(|error| match error.kind() {
            ErrorKind::IsADirectory => fs::remove_dir(&path),
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        if let Err(error) = removed {
            let path = path.display().to_string().escape_debug().to_string();
            taken.stuck = Some(format!(
                "{path} cannot be removed, so it requests another run: {error}"
            ));
        }
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    taken.names = trigger_names(names.iter().map(String::as_str));
    taken
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn roots() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        (dir, roots)
    }

    #[test]
    fn names_are_taken_and_links_are_not_followed() {
        let (dir, roots) = roots();
        assert_eq!(
            take_requests(&roots),
            TakenRequests::default(),
            "without the directory there is no request"
        );
        let at = roots.root(REQUEST_DIRECTORY);
        fs::create_dir_all(&at).unwrap();
        fs::write(dir.path().join("kept"), "x").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        symlink(dir.path().join("kept"), at.join("device")).unwrap();
        symlink(dir.path().join("folder"), at.join("link")).unwrap();
        fs::create_dir(at.join("empty")).unwrap();
        nix::unistd::mkfifo(&at.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        request_reconcile(&roots, Requester::Agent).unwrap();
        request_reconcile(&roots, Requester::Agent).unwrap();
        let taken = take_requests(&roots);
        assert_eq!(taken.names, ["agent", "device", "empty", "fifo", "link"]);
        assert_eq!(taken.stuck, None);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
        assert!(dir.path().join("kept").exists() && dir.path().join("folder").exists());
    }

    #[test]
    fn a_request_that_cannot_be_removed_is_reported() {
        let (_dir, roots) = roots();
        let at = roots.root(REQUEST_DIRECTORY);
        fs::create_dir_all(at.join("full/x")).unwrap();
        let taken = take_requests(&roots);
        assert_eq!(taken.names, ["full"]);
        assert!(taken.stuck.unwrap().contains("/full cannot be removed"));
    }

    #[test]
    fn one_run_takes_a_bounded_number() {
        let (_dir, roots) = roots();
        let at = roots.root(REQUEST_DIRECTORY);
        fs::create_dir_all(&at).unwrap();
        for name in 0..=MAX_REQUESTS {
            fs::write(at.join(name.to_string()), "").unwrap();
        }
        take_requests(&roots);
        assert_eq!(
            fs::read_dir(&at).unwrap().count(),
            1,
            "the rest starts the next run"
        );
    }

    #[test]
    fn without_the_directory_no_request_is_possible() {
        let (_dir, roots) = roots();
        let error = request_reconcile(&roots, Requester::Agent)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("run/virtfleet/ask/agent"), "{error}");
    }
}
