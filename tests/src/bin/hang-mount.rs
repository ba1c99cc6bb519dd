//! Mounts a FUSE filesystem that never answers and runs a program: simulates a dead NFS server.
//!
//! ```text
//! hang-mount DIR PROGRAM [ARGUMENT]…
//! ```
//! The mount is made in the mount namespace of this process. Run it in a separate namespace
//! (`unshare --mount`), so that the mount disappears with the process. Closing `/dev/fuse` ends
//! every call that hangs (kernel: `Documentation/filesystems/fuse`).

use std::{ffi::OsString, fs::OpenOptions, os::fd::AsRawFd as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};
use virtfleet_tests::process::Launch;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let target = PathBuf::from(
        arguments
            .next()
            .context("usage: hang-mount DIR PROGRAM [ARGUMENT]…")?,
    );
    let program = arguments
        .next()
        .context("usage: hang-mount DIR PROGRAM [ARGUMENT]…")?;
    let rest: Vec<OsString> = arguments.collect();
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("open /dev/fuse")?;
    // 40000 is the mode of a directory: the kernel needs the type of the root before its first
    // request.
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    mount(
        Some("hangs"),
        &target,
        Some("fuse"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .with_context(|| format!("mount on {}", target.display()))?;
    let mut process = Launch::new(program).args(rest).start(&std::env::temp_dir())?;
    process.wait(Duration::from_mins(5))?;
    drop(device);
    Ok(())
}
