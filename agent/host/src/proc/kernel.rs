//! What the collectors ask the kernel by a call and not by a file, behind two small traits, so
//! that tests can answer instead.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::unistd::{SysconfVar, sysconf};
use nix::{
    errno::Errno,
    sys::{statvfs::statvfs, utsname::uname},
};

/// A filesystem's space and file nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsSpace {
    /// Bytes in all.
    pub size: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are free to processes other than root's.
    pub available: u64,
    /// File nodes in all.
    pub files: u64,
    /// File nodes that are free.
    pub files_free: u64,
}

/// Asks a filesystem for its space. The call may hang for as long as the filesystem does.
pub trait Statfs: Send + Sync {
    /// The space of the filesystem that `path` lies on.
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno>;
}

/// The strings of uname(2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uname {
    /// The kernel's name, `Linux`.
    pub sysname: String,
    /// The kernel's release, e.g. `6.12.30-amd64`.
    pub release: String,
    /// The kernel's build.
    pub version: String,
    /// The hardware's name, e.g. `x86_64`.
    pub machine: String,
    /// The host's name.
    pub nodename: String,
    /// The NIS domain, mostly `(none)`.
    pub domainname: String,
}

/// Asks the kernel about the machine.
pub trait Machine: Send + Sync {
    /// The strings of uname(2).
    fn uname(&self) -> Result<Uname, Errno>;
    /// The wall clock, since 1970; 0 before that.
    fn realtime(&self) -> Duration;
}

/// The kernel that runs us.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Statfs for Kernel {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let answer = statvfs(path)?;
        // Blocks are counted in fragments (statvfs(3)); filesystems that know no fragments say the block's size here.
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

impl Machine for Kernel {
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

/// Size of a memory page in bytes; 4096 if the kernel does not say.
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
