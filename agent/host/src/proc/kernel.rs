//! Kernel queries of the collectors by system call, behind small traits for tests.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::unistd::{SysconfVar, sysconf};
use nix::{
    errno::Errno,
    sys::{statvfs::statvfs, utsname::uname},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsSpace {
    /// Total bytes.
    pub size: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes available to unprivileged users.
    pub available: u64,
    /// Total inodes.
    pub files: u64,
    pub files_free: u64,
}

/// Filesystem usage (statfs). The call may block as long as the filesystem hangs.
pub trait Statfs: Send + Sync {
    /// Space of the filesystem that contains `path`.
    ///
    /// # Errors
    /// The error of statfs(2).
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno>;
}

/// The strings of uname(2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uname {
    /// Name of the kernel, `Linux`.
    pub sysname: String,
    /// Release of the kernel, e.g. `6.12.30-amd64`.
    pub release: String,
    /// Build of the kernel.
    pub version: String,
    /// Name of the hardware, e.g. `x86_64`.
    pub machine: String,
    pub nodename: String,
    /// NIS domain, usually `(none)`.
    pub domainname: String,
}

pub trait MachineCalls: Send + Sync {
    /// The strings of uname(2).
    ///
    /// # Errors
    /// The error of uname(2).
    fn uname(&self) -> Result<Uname, Errno>;
    /// Wall clock since 1970; 0 for a time before that.
    fn realtime(&self) -> Duration;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Statfs for Kernel {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let answer = statvfs(path)?;
        // Blocks are counted in fragments (statvfs(3)); filesystems without fragments report the
        // block size here.
        let unit = answer.fragment_size();
        Ok(FsSpace {
            size: answer.blocks().saturating_mul(unit),
            free: answer.blocks_free().saturating_mul(unit),
            available: answer.blocks_available().saturating_mul(unit),
            files: answer.files(),
            files_free: answer.files_free(),
        })
    }
}

impl MachineCalls for Kernel {
    fn uname(&self) -> Result<Uname, Errno> {
        let answer = uname()?;
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        Ok(Uname {
            sysname: text(answer.sysname()),
            release: text(answer.release()),
            version: text(answer.version()),
            machine: text(answer.machine()),
            nodename: text(answer.nodename()),
            domainname: text(answer.domainname()),
        })
    }
    fn realtime(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Size of a memory page in bytes; 4096 if unknown.
pub fn page_size() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        let space = Kernel.statfs(Path::new("/")).unwrap();
        assert!(space.size >= space.free && space.free >= space.available && space.size > 0);
        assert_eq!(Kernel.statfs(Path::new("/does/not/exist")), Err(Errno::ENOENT));
        assert_eq!(Kernel.uname().unwrap().sysname, "Linux");
        assert!(Kernel.realtime().as_secs() > 1_700_000_000);
    }
}
