//! The machine-wide locks of guests: two test processes at a time run guests, because more would
//! compete for the CPU. Scenes of the process that holds a lock share it.

use std::{
    env,
    fs::{self, File},
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

use super::{netns, say};

/// Number of test processes that may run guests at the same time.
const PROCESSES: u32 = 2;

/// One of the locks; held as long as a clone of it exists.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: Flock<File>,
}

static MINE: Mutex<Weak<Turn>> = Mutex::new(Weak::new());

/// Prefix of the folders of scenes.
pub(super) const FOLDERS: &str = "virtfleet-guests-";

impl Turn {
    /// Waits for a lock, then removes what dead holders left.
    pub(super) fn take(cache: &Path) -> Result<Arc<Self>> {
        let mut mine = MINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = mine.upgrade() {
            return Ok(turn);
        }
        let mut lock = any(cache)?;
        lock.set_len(0)?;
        lock.rewind()?;
        let program = env::current_exe().context("path of this executable")?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        writeln!(lock, "process {} ({name})", process::id())?;
        sweep()?;
        let turn = Arc::new(Self { _lock: lock });
        *mine = Arc::downgrade(&turn);
        Ok(turn)
    }
}

/// Takes a lock that is free, or waits for the one that this process' id selects.
fn any(cache: &Path) -> Result<Flock<File>> {
    let path = |number: u32| cache.join(format!("turn-{number}"));
    for number in 0..PROCESSES {
        if let Ok(lock) = Flock::lock(open(&path(number))?, FlockArg::LockExclusiveNonblock) {
            return Ok(lock);
        }
    }
    let path = path(process::id() % PROCESSES);
    let holder = fs::read_to_string(&path).unwrap_or_default();
    say(&format!("waiting for {}, which runs guests", holder.trim()));
    lock(&path)
}

/// Waits for the lock on a file, which is created if it does not exist.
pub(super) fn lock(path: &Path) -> Result<Flock<File>> {
    Flock::lock(open(path)?, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .with_context(|| format!("lock {}", path.display()))
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// Ends QEMUs and removes folders of scenes whose process is dead. QEMU normally ends with its
/// process; this handles those that were started just before that was arranged.
fn sweep() -> Result<()> {
    netns::sweep();
    let temporary = env::temp_dir();
    for entry in fs::read_dir(&temporary).with_context(|| format!("read {}", temporary.display()))? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(rest) = name.strip_prefix(FOLDERS) else {
            continue;
        };
        let maker = rest.split('-').next().and_then(|id| id.parse::<u32>().ok());
        if maker.is_none_or(|id| id == process::id() || fs::exists(format!("/proc/{id}")).unwrap_or(true)) {
            continue;
        }
        end_qemus(&folder);
        say(&format!(
            "removing {}, left by a process that was killed",
            folder.display()
        ));
        if let Err(error) = fs::remove_dir_all(&folder) {
            say(&format!("{}: {error}", folder.display()));
        }
    }
    Ok(())
}

/// Kills the process named by a QEMU pid file in `folder`, if its command line contains this
/// folder.
fn end_qemus(folder: &Path) {
    let guests: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    for guest in guests {
        let id = fs::read_to_string(guest.join("qemu.pid"))
            .ok()
            .and_then(|text| text.trim().parse::<i32>().ok());
        let Some(id) = id else { continue };
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&*guest.to_string_lossy()) {
            let pid = nix::unistd::Pid::from_raw(id);
            if let Err(error) = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL) {
                say(&format!("QEMU {id}: {error}"));
            }
        }
    }
}
