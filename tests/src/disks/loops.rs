//! A disk that is a sparse file behind a loop device.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::process::{AtEnd, Launch};

const SOON: Duration = Duration::from_secs(30);

/// The disk; it goes away with its drop, or with this process.
#[derive(Debug)]
pub struct LoopDisk {
    /// Its node, e.g. `/dev/loop3`.
    pub node: String,
    /// The file behind it.
    pub file: PathBuf,
    _end: AtEnd,
}

impl LoopDisk {
    /// A blank one of so many bytes, which take no space.
    pub fn new(folder: &Path, name: &str, bytes: u64) -> Result<Self> {
        let file = folder.join(format!("{name}.img"));
        File::create(&file)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("make {}", file.display()))?;
        let node = Launch::new("losetup")
            .args(["--find", "--show"])
            .arg(&file)
            .text(SOON)?
            .trim()
            .to_owned();
        let script = "n=0; while ! losetup -d \"$1\" 2>/dev/null && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done; rm -f \"$2\"";
        let end = AtEnd::new(script, [node.as_str().as_ref(), file.as_os_str()])?;
        Ok(Self {
            node,
            file,
            _end: end,
        })
    }

    /// Major and minor number, as udev's data has them in a file's name.
    pub fn number(&self) -> Result<String> {
        let number = fs::metadata(&self.node)?.rdev();
        Ok(format!(
            "{}:{}",
            nix::sys::stat::major(number),
            nix::sys::stat::minor(number)
        ))
    }

    /// Makes it larger, as a hypervisor would.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        File::options().write(true).open(&self.file)?.set_len(bytes)?;
        Launch::new("losetup")
            .args(["-c", &self.node])
            .text(SOON)
            .map(drop)
    }
}
