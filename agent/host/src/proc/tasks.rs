//! Going through all processes and their threads: one listing, and a reading of each one's `stat`.
//!
//! The files stay open from one round to the next, up to a bound: opening one costs the kernel several times what reading it
//! costs. An open `stat` belongs to the task and not to its number (kernel: `fs/proc/base.c`, `proc_single_show`): it says
//! ESRCH once the task is gone, whoever has the number then, and the number is looked up anew.

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

/// Tasks of one listing at the most; the kernel's largest `pid_max` is four times this.
const MOST: usize = 1 << 20;
/// A `stat` has a few hundred bytes.
const STAT: usize = 2048;
/// Files that stay open at the most, and never more than half of what this process may open. The kernel holds some 5 KiB
/// for each.
const MOST_OPEN: usize = 512;
/// How many more may stay open at each listing again, after the kernel had none left.
const MORE: usize = 8;

/// Why tasks cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The kernel does not list processes.
    #[error("cannot list processes")]
    Processes(#[source] Errno),
    /// The kernel does not list the threads of a process.
    #[error("cannot list the threads of a process")]
    Threads(#[source] Errno),
    /// A `stat` cannot be read.
    #[error("cannot read a task's stat")]
    Read(#[source] Errno),
    /// A `stat` is not as the kernel writes it.
    #[error("a task's stat is not as the kernel writes it")]
    Parse(#[source] ParseError),
}

/// A process whose `stat` stays open.
#[derive(Debug)]
struct Process {
    stat: File,
    /// Whether its first thread was listed among them.
    led: bool,
    /// The others, by number.
    threads: BTreeMap<u32, File>,
}

/// procfs, as a tree of tasks.
#[derive(Debug)]
pub struct Tasks {
    root: PathBuf,
    proc: Option<OwnedFd>,
    /// By number.
    kept: BTreeMap<u32, Process>,
    /// How many files are open, or were at the last listing and have been closed since.
    open: usize,
    /// How many may be. Less than usual for a while after the kernel had none left.
    most: usize,
    usual: usize,
    /// Kept for their memory.
    listing: Vec<MaybeUninit<u8>>,
    text: Vec<u8>,
    numbers: Vec<u32>,
}

impl Tasks {
    /// Nothing is opened before it is asked.
    pub fn new(root: PathBuf) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 2);
        let usual = usize::try_from(limit).map_or(MOST_OPEN, |limit| limit.min(MOST_OPEN));
        Self {
            root,
            proc: None,
            kept: BTreeMap::new(),
            open: 0,
            most: usual,
            usual,
            listing: Vec::new(),
            text: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Looks at procfs anew: the numbers of all processes, in place of what is in `found`.
    pub fn processes(&mut self, found: &mut Vec<u32>) -> Result<(), TaskError> {
        self.listing.resize(32 << 10, MaybeUninit::uninit());
        self.text.resize(STAT, 0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        found.clear();
        let proc = open(&self.root, flags, Mode::empty())
            .map_err(errno)
            .and_then(|proc| numbers(&proc, &mut self.listing, found).map(|()| proc))
            .map_err(TaskError::Processes)?;
        self.proc = Some(proc);
        // In the kernel's order they are sorted; nothing rests on it.
        found.sort_unstable();
        self.kept.retain(|number, _| found.binary_search(number).is_ok());
        self.open = self.kept.values().map(|process| 1 + process.threads.len()).sum();
        self.most = self.usual.min(self.most + MORE);
        Ok(())
    }

    /// What a process says of itself; none when it is gone.
    pub fn process(&mut self, process: u32) -> Result<Option<TaskStat>, TaskError> {
        if let Some(kept) = self.kept.get_mut(&process) {
            if let Ok(length @ 1..) = read(&kept.stat, &mut self.text) {
                let stat = parse(&self.text[..length])?;
                // Nobody asks for the threads of such a one.
                if stat.threads <= 1 {
                    self.open = self.open.saturating_sub(kept.threads.len());
                    kept.threads.clear();
                    kept.led = false;
                }
                return Ok(Some(stat));
            }
            self.kept.remove(&process);
        }
        let Some((stat, file)) = self.look(&format!("{process}/stat"))? else {
            return Ok(None);
        };
        if self.open < self.most {
            self.open += 1;
            let threads = BTreeMap::new();
            self.kept.insert(
                process,
                Process {
                    stat: file,
                    led: false,
                    threads,
                },
            );
        }
        Ok(Some(stat))
    }

    /// The states of the threads of a process that has just said `stat` of itself, in place of what is in `states`; none
    /// when it is gone.
    ///
    /// As many open files that all answer as it has threads are its threads: each belongs to one of them. Only otherwise
    /// are they listed.
    pub fn threads(&mut self, process: u32, stat: TaskStat, states: &mut Vec<u8>) -> Result<(), TaskError> {
        states.clear();
        if let Some(kept) = self.kept.get(&process)
            && kept.led
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
        let (mut known, mut threads, mut led) = (known.unwrap_or_default(), BTreeMap::new(), false);
        for thread in &*listed {
            if *thread == process {
                led = true;
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
            if let Some((stat, file)) = self.look(&format!("{process}/task/{thread}/stat"))? {
                states.push(stat.state);
                if self.open < self.most && self.kept.contains_key(&process) {
                    self.open += 1;
                    threads.insert(*thread, file);
                }
            }
        }
        if let Some(kept) = self.kept.get_mut(&process) {
            (kept.threads, kept.led) = (threads, led);
        }
        Ok(())
    }

    /// Opens a `stat` and reads it; none when its task is gone.
    fn look(&mut self, path: &str) -> Result<Option<(TaskStat, File)>, TaskError> {
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

    /// Opens what is at `path` below procfs. When no more files may be open, those that were kept are given back.
    fn open(&mut self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let open = |tasks: &Self| {
            let proc = tasks.proc.as_ref().ok_or(Errno::EBADF)?;
            openat(proc, path, flags, Mode::empty()).map_err(errno)
        };
        match open(self) {
            Err(Errno::EMFILE | Errno::ENFILE) if !self.kept.is_empty() => {
                self.give_back();
                open(self)
            }
            opened => opened,
        }
    }

    /// Closes what is kept, and keeps less for a while: whoever else needs files may go on needing them.
    fn give_back(&mut self) {
        self.kept.clear();
        self.most /= 2;
    }
}

fn parse(text: &[u8]) -> Result<TaskStat, TaskError> {
    task_stat(text).map_err(TaskError::Parse)
}

fn read(file: &File, text: &mut [u8]) -> Result<usize, Errno> {
    let read = file.read_at(text, 0);
    read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

/// The names in a directory that are numbers, appended to `found`.
fn numbers(directory: &OwnedFd, listing: &mut [MaybeUninit<u8>], found: &mut Vec<u32>) -> Result<(), Errno> {
    let mut entries = RawDir::new(directory, listing);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(errno)?;
        let name = entry.file_name().to_bytes();
        if name.first().is_some_and(u8::is_ascii_digit)
            && let Some(number) = str::from_utf8(name).ok().and_then(|name| name.parse().ok())
        {
            if found.len() >= MOST {
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
