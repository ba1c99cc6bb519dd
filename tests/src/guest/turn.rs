//! The machine-wide lock of guests: one test process at a time runs guests, because two would
//! compete for the CPU. Scenes of the process that holds the lock share it.

use std::{
    env,
    fs::{self, File},
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

use super::{netns, say};

/// The lock; held as long as a clone of it exists.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: Flock<File>,
}

static MINE: Mutex<Weak<Turn>> = Mutex::new(Weak::new());

/// Prefix of the folders of scenes.
pub(super) const FOLDERS: &str = "virtfleet-guests-";

impl Turn {
    /// Waits for the lock, then removes what dead holders left.
    pub(super) fn take(cache: &Path) -> Result<Arc<Self>> {
        let mut mine = MINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = mine.upgrade() {
            return Ok(turn);
        }
        let path = cache.join("turn");
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, _)) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).ok();
                say(&format!("waiting for {}, which runs guests", holder.trim()));
                Flock::lock(file, FlockArg::LockExclusive)
                    .map_err(|(_, error)| error)
                    .with_context(|| format!("lock {}", path.display()))?
            }
        };
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
