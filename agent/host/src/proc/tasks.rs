//! Reads `stat` of all processes and their threads.
//!
//! The files stay open between rounds, up to a bound, because opening a file costs the kernel
//! several times as much as reading it. An open `stat` belongs to the task, not to its number
//! (kernel: `fs/proc/base.c`, `proc_single_show`): after the task has exited it returns ESRCH, even
//! if the number is reused; then the number is opened again.

use std::{
    collections::BTreeMap, fs::File, mem::MaybeUninit, os::fd::OwnedFd, os::unix::fs::FileExt as _,
    path::PathBuf,
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit},
};
use rustix::fs::{Mode, OFlags, RawDir, open, openat};
use virtfleet_agent_core::procfs::{
    ParseError,
    task_stat::{TaskStat, task_stat},
};

/// Maximum number of tasks per listing; the kernel's largest `pid_max` is four times this.
const MAX_TASKS: usize = 1 << 20;
/// Buffer for a `stat`, which has a few hundred bytes.
const STAT_BYTES: usize = 2048;
/// Maximum number of files that stay open, and at most half of this process's limit. Each costs
/// the kernel about 5 KiB.
const MAX_OPEN: usize = 512;
/// How many more files may stay open after each listing, once the limit of open files was reached.
const OPEN_INCREMENT: usize = 8;

/// Why tasks cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("cannot list processes")]
    Processes(#[source] Errno),
    #[error("cannot list the threads of a process")]
    Threads(#[source] Errno),
    #[error("cannot read a task's stat")]
    Read(#[source] Errno),
    #[error("cannot parse a task's stat")]
    Parse(#[source] ParseError),
}

/// A process whose `stat` is open.
#[derive(Debug)]
struct Process {
    stat: File,
    /// True if the listing contained its main thread.
    has_main_thread: bool,
    /// The other threads by number.
    threads: BTreeMap<u32, File>,
}

#[derive(Debug)]
pub struct Tasks {
    root: PathBuf,
    proc: Option<OwnedFd>,
    /// Open processes by number.
    kept: BTreeMap<u32, Process>,
    /// Number of open files, including those closed since the last listing.
    open: usize,
    /// Maximum number of open files. Reduced for some time after the limit of open files was
    /// reached.
    max_open: usize,
    usual: usize,
    /// Reused buffer.
    listing: Vec<MaybeUninit<u8>>,
    text: Vec<u8>,
    numbers: Vec<u32>,
}

impl Tasks {
    /// Does not open anything before the first call.
    pub fn new(root: PathBuf) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 2);
        let usual = usize::try_from(limit).map_or(MAX_OPEN, |limit| limit.min(MAX_OPEN));
        Self {
            root,
            proc: None,
            kept: BTreeMap::new(),
            open: 0,
            max_open: usual,
            usual,
            listing: Vec::new(),
            text: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Lists all processes; `found` is replaced by their numbers.
    ///
    /// # Errors
    /// procfs cannot be listed.
    pub fn processes(&mut self, found: &mut Vec<u32>) -> Result<(), TaskError> {
        self.listing.resize(32 << 10, MaybeUninit::uninit());
        self.text.resize(STAT_BYTES, 0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        found.clear();
        let proc = open(&self.root, flags, Mode::empty())
            .map_err(errno)
            .and_then(|proc| numbers(&proc, &mut self.listing, found).map(|()| proc))
            .map_err(TaskError::Processes)?;
        self.proc = Some(proc);
        // The kernel's order is sorted, but this is not guaranteed.
        found.sort_unstable();
        self.kept.retain(|number, _| found.binary_search(number).is_ok());
        self.open = self.kept.values().map(|process| 1 + process.threads.len()).sum();
        self.max_open = self.usual.min(self.max_open + OPEN_INCREMENT);
        Ok(())
    }

    /// The `stat` of a process. `None` if it has exited.
    ///
    /// # Errors
    /// The `stat` cannot be read or parsed.
    pub fn process(&mut self, process: u32) -> Result<Option<TaskStat>, TaskError> {
        if let Some(kept) = self.kept.get_mut(&process) {
            if let Ok(length @ 1..) = read(&kept.stat, &mut self.text) {
                let stat = parse(&self.text[..length])?;
                // The threads of a single-threaded process are not requested.
                if stat.threads <= 1 {
                    self.open = self.open.saturating_sub(kept.threads.len());
                    kept.threads.clear();
                    kept.has_main_thread = false;
                }
                return Ok(Some(stat));
            }
            self.kept.remove(&process);
        }
        let Some((stat, file)) = self.open_stat(&format!("{process}/stat"))? else {
            return Ok(None);
        };
        if self.open < self.max_open {
            self.open += 1;
            let threads = BTreeMap::new();
            self.kept.insert(
                process,
                Process {
                    stat: file,
                    has_main_thread: false,
                    threads,
                },
            );
        }
        Ok(Some(stat))
    }

    /// Replaces `states` by the states of the threads of a process whose `stat` was just read.
    /// Empty if the process has exited.
    ///
    /// If the number of open files that can be read equals the number of threads, these are the
    /// threads, because each file belongs to one thread. Otherwise the threads are listed again.
    ///
    /// # Errors
    /// The threads cannot be listed, or a `stat` cannot be read or parsed.
    pub fn threads(&mut self, process: u32, stat: TaskStat, states: &mut Vec<u8>) -> Result<(), TaskError> {
        states.clear();
        if let Some(kept) = self.kept.get(&process)
            && kept.has_main_thread
            && kept.threads.len() + 1 == stat.threads as usize
        {
            states.push(stat.state);
            for file in kept.threads.values() {
                let Ok(length @ 1..) = read(file, &mut self.text) else {
                    break;
                };
                states.push(parse(&self.text[..length])?.state);
            }
            if states.len() == stat.threads as usize {
                return Ok(());
            }
            states.clear();
        }
        let mut listed = std::mem::take(&mut self.numbers);
        let counted = self.list_threads(process, stat, &mut listed, states);
        self.numbers = listed;
        counted
    }

    fn list_threads(
        &mut self,
        process: u32,
        stat: TaskStat,
        listed: &mut Vec<u32>,
        states: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        listed.clear();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = self.open(&format!("{process}/task"), flags);
        match directory.and_then(|directory| numbers(&directory, &mut self.listing, listed)) {
            Ok(()) => {}
            Err(Errno::ENOENT | Errno::ESRCH) => return Ok(()),
            Err(errno) => return Err(TaskError::Threads(errno)),
        }
        let known = self
            .kept
            .get_mut(&process)
            .map(|kept| std::mem::take(&mut kept.threads));
        let (mut known, mut threads, mut has_main_thread) =
            (known.unwrap_or_default(), BTreeMap::new(), false);
        for thread in &*listed {
            if *thread == process {
                has_main_thread = true;
                states.push(stat.state);
                continue;
            }
            if let Some(file) = known.remove(thread)
                && let Ok(length @ 1..) = read(&file, &mut self.text)
            {
                states.push(parse(&self.text[..length])?.state);
                threads.insert(*thread, file);
                continue;
            }
            if let Some((stat, file)) = self.open_stat(&format!("{process}/task/{thread}/stat"))? {
                states.push(stat.state);
                if self.open < self.max_open && self.kept.contains_key(&process) {
                    self.open += 1;
                    threads.insert(*thread, file);
                }
            }
        }
        if let Some(kept) = self.kept.get_mut(&process) {
            (kept.threads, kept.has_main_thread) = (threads, has_main_thread);
        }
        Ok(())
    }

    /// Opens and reads a `stat`. `None` if the task has exited.
    fn open_stat(&mut self, path: &str) -> Result<Option<(TaskStat, File)>, TaskError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = self.open(path, flags).and_then(|file| {
            let file = File::from(file);
            Ok((read(&file, &mut self.text)?, file))
        });
        match opened {
            Ok((0, _)) | Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
            Ok((length, file)) => Ok(Some((parse(&self.text[..length])?, file))),
            Err(errno) => Err(TaskError::Read(errno)),
        }
    }

    /// Opens a path below procfs. If the limit of open files is reached, the kept files are closed.
    fn open(&mut self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let open = |tasks: &Self| {
            let proc = tasks.proc.as_ref().ok_or(Errno::EBADF)?;
            openat(proc, path, flags, Mode::empty()).map_err(errno)
        };
        match open(self) {
            Err(Errno::EMFILE | Errno::ENFILE) if !self.kept.is_empty() => {
                self.close_kept();
                open(self)
            }
            opened => opened,
        }
    }

    /// Closes the kept files and keeps fewer for some time, so that other code can open files.
    fn close_kept(&mut self) {
        self.kept.clear();
        self.max_open /= 2;
    }
}

fn parse(text: &[u8]) -> Result<TaskStat, TaskError> {
    task_stat(text).map_err(TaskError::Parse)
}

fn read(file: &File, text: &mut [u8]) -> Result<usize, Errno> {
    let read = file.read_at(text, 0);
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

/// Appends the numeric names in a directory to `found`.
fn numbers(directory: &OwnedFd, listing: &mut [MaybeUninit<u8>], found: &mut Vec<u32>) -> Result<(), Errno> {
    let mut entries = RawDir::new(directory, listing);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(errno)?;
        let name = entry.file_name().to_bytes();
        if name.first().is_some_and(u8::is_ascii_digit)
            && let Some(number) = str::from_utf8(name).ok().and_then(|name| name.parse().ok())
        {
            if found.len() >= MAX_TASKS {
                return Err(Errno::E2BIG);
            }
            found.push(number);
        }
    }
    Ok(())
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

#[cfg(test)]
mod tests;
