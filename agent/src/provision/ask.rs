//! `/run/virtfleet/ask`: who wants a reconcile leaves a file here, and systemd starts one as long as there is any
//! (`PathExistsGlob=` is level-triggered, so no wish is lost). Only names count; contents are never looked at.
//!
//! The agent without rights may write here, so what lies here is hostile until proven otherwise: nothing is opened or
//! followed, and no more than a bounded number is looked at in one pass.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use nix::libc;
use virtfleet_agent_core::pass::trigger_names;

use crate::host::Roots;

/// The directory, by its path in the guest.
pub const ASK_DIRECTORY: &str = "/run/virtfleet/ask";
/// The name that the agent asks by.
const AGENT: &str = "agent";
/// The name that its watch over DNS asks by.
const DNS: &str = "dns";
/// The name that a change of queues asks by, as long as it is not over.
const NIC: &str = "nic";
/// The most names that one pass takes; the rest starts the next one.
const MOST: usize = 1024;

/// Why a wish could not be left.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask for a reconcile: cannot make {}", path.display())]
pub struct AskError {
    path: PathBuf,
    source: io::Error,
}

/// Asks for a reconcile, as the agent. Asked already is as good.
pub fn ask(roots: &Roots) -> Result<(), AskError> {
    ask_as(roots, AGENT)
}

/// Asks for a reconcile because of DNS.
pub fn ask_for_dns(roots: &Roots) -> Result<(), AskError> {
    ask_as(roots, DNS)
}

/// Asks for a reconcile in case this pass does not come to the end of a change of queues.
pub(super) fn ask_for_nic(roots: &Roots) -> Result<(), AskError> {
    ask_as(roots, NIC)
}

/// The change came to its end: who is asked by a wish that stays would try in vain again and again what the driver does not do.
pub(super) fn withdraw_for_nic(roots: &Roots) {
    // Nothing else lies there by this name; what cannot be removed costs one pass more.
    fs::remove_file(roots.root(ASK_DIRECTORY).join(NIC)).ok();
}

fn ask_as(roots: &Roots, name: &str) -> Result<(), AskError> {
    let path = roots.root(ASK_DIRECTORY).join(name);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
        .map(drop)
        .map_err(|source| AskError { path, source })
}

/// What was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The names, as they are recorded.
    pub(super) names: Vec<String>,
    /// What could not be taken away, and so will ask again for ever.
    pub(super) stuck: Option<String>,
}

/// Reads the names and takes the files away. First take, then work: who asks meanwhile asks for another pass.
pub(super) fn take(roots: &Roots) -> Taken {
    let directory = roots.root(ASK_DIRECTORY);
    let mut taken = Taken::default();
    let mut names = Vec::new();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return taken,
        Err(error) => {
            taken.stuck = Some(format!("{ASK_DIRECTORY} cannot be read: {error}"));
            return taken;
        }
    };
    for entry in entries.take(MOST).flatten() {
        let path = entry.path();
        // Neither of the two follows a link.
        let removed = fs::remove_file(&path).or_else(|error| match error.kind() {
            ErrorKind::IsADirectory => fs::remove_dir(&path),
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        if let Err(error) = removed {
            let path = path.display().to_string().escape_debug().to_string();
            taken.stuck = Some(format!("{path} cannot be removed, and so asks again: {error}"));
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
        assert_eq!(take(&roots), Taken::default(), "no directory, no wish");
        let at = roots.root(ASK_DIRECTORY);
        fs::create_dir_all(&at).unwrap();
        fs::write(dir.path().join("kept"), "x").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        symlink(dir.path().join("kept"), at.join("device")).unwrap();
        symlink(dir.path().join("folder"), at.join("link")).unwrap();
        fs::create_dir(at.join("empty")).unwrap();
        nix::unistd::mkfifo(&at.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        ask(&roots).unwrap();
        ask(&roots).unwrap();
        let taken = take(&roots);
        assert_eq!(taken.names, ["agent", "device", "empty", "fifo", "link"]);
        assert_eq!(taken.stuck, None);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
        assert!(dir.path().join("kept").exists() && dir.path().join("folder").exists());
    }

    #[test]
    fn what_cannot_be_taken_away_is_told() {
        let (_dir, roots) = roots();
        let at = roots.root(ASK_DIRECTORY);
        fs::create_dir_all(at.join("full/x")).unwrap();
        let taken = take(&roots);
        assert_eq!(taken.names, ["full"]);
        assert!(taken.stuck.unwrap().contains("/full cannot be removed"));
    }

    #[test]
    fn one_pass_takes_a_bounded_number() {
        let (_dir, roots) = roots();
        let at = roots.root(ASK_DIRECTORY);
        fs::create_dir_all(&at).unwrap();
        for name in 0..=MOST {
            fs::write(at.join(name.to_string()), "").unwrap();
        }
        take(&roots);
        assert_eq!(
            fs::read_dir(&at).unwrap().count(),
            1,
            "the rest starts the next pass"
        );
    }

    #[test]
    fn without_the_directory_nobody_can_be_asked() {
        let (_dir, roots) = roots();
        let error = ask(&roots).unwrap_err().to_string();
        assert!(error.ends_with("run/virtfleet/ask/agent"), "{error}");
    }
}
