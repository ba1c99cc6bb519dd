//! Going through all processes and their threads (room: `agent/src/host`): one listing, and for each one opening and one reading.

use std::{fs::File, io::Read as _, mem::MaybeUninit, os::fd::OwnedFd, path::PathBuf};

use nix::errno::Errno;
use rustix::fs::{Mode, OFlags, RawDir, open, openat};

/// Tasks of one listing at the most; the kernel's largest `pid_max` is four times this.
const MOST: usize = 1 << 20;
/// A `stat` has a few hundred bytes.
const STAT: usize = 2048;

/// procfs, as a tree of tasks.
#[derive(Debug)]
pub struct Tasks {
    root: PathBuf,
    proc: Option<OwnedFd>,
    /// Kept for its memory.
    listing: Vec<MaybeUninit<u8>>,
    text: Vec<u8>,
}

impl Tasks {
    /// Nothing is opened before it is asked.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            proc: None,
            listing: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Looks at procfs anew.
    pub fn begin(&mut self) -> Result<(), Errno> {
        self.listing.resize(32 << 10, MaybeUninit::uninit());
        self.text.resize(STAT, 0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.proc = Some(open(&self.root, flags, Mode::empty()).map_err(errno)?);
        Ok(())
    }

    /// The names in `directory` below procfs that are numbers, appended to `found`.
    pub fn numbers(&mut self, directory: &str, found: &mut Vec<u32>) -> Result<(), Errno> {
        let proc = self.proc.as_ref().ok_or(Errno::EBADF)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(proc, directory, flags, Mode::empty()).map_err(errno)?;
        let mut entries = RawDir::new(&directory, &mut self.listing);
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

    /// What the file `path` below procfs holds, of which there is less than 2 KiB; none when its task is gone.
    pub fn read(&mut self, path: &str) -> Result<Option<&[u8]>, Errno> {
        let proc = self.proc.as_ref().ok_or(Errno::EBADF)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let read = openat(proc, path, flags, Mode::empty())
            .map_err(errno)
            .and_then(|file| {
                let read = File::from(file).read(&mut self.text);
                read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
            });
        match read {
            Ok(0) | Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
            Ok(length) => Ok(Some(&self.text[..length])),
            Err(errno) => Err(errno),
        }
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_there_and_a_vanished_one_is_not() {
        let mut tasks = Tasks::new("/proc".into());
        tasks.begin().unwrap();
        let mut found = Vec::new();
        tasks.numbers(".", &mut found).unwrap();
        assert!(found.contains(&std::process::id()));
        let text = tasks.read("self/stat").unwrap().unwrap();
        assert!(text.starts_with(std::process::id().to_string().as_bytes()));
        assert_eq!(tasks.read("4294967295/stat"), Ok(None));
        assert_eq!(tasks.numbers("4294967295/task", &mut found), Err(Errno::ENOENT));
    }
}
