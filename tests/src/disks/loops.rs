//! A disk of a stage: a sparse file behind a loop device.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{loops::Loop, process::Launch};

const SOON: Duration = Duration::from_secs(30);

/// The disk; it goes away with its drop, or with this process, as soon as nobody has it mounted.
#[derive(Debug)]
pub struct LoopDisk {
    /// Its node, e.g. `/dev/loop3`.
    pub node: String,
    /// The file behind it, in a folder that goes away with the stage.
    pub file: PathBuf,
    _device: Loop,
}

impl LoopDisk {
    /// A blank one of so many bytes, which take no space.
    pub fn new(folder: &Path, name: &str, bytes: u64) -> Result<Self> {
        let file = format!("{name}.img");
        let device = Loop::blank(folder, &file, bytes)?;
        Ok(Self {
            node: device.node().display().to_string(),
            file: folder.join(file),
            _device: device,
        })
    }

    /// A disk with a partition table, from a script of sfdisk(8).
    ///
    /// partx(8) hands the partitions to the kernel, because a kernel without parsers of partition
    /// tables finds none.
    pub fn partitioned(folder: &Path, name: &str, bytes: u64, script: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.img"));
        File::create(&path)?.set_len(bytes)?;
        Launch::new("sfdisk")
            .arg("--quiet")
            .arg(&path)
            .stdin(script)
            .text(SOON)?;
        Self::with_table(path)
    }

    /// A disk from a file that has a partition table.
    pub fn with_table(file: PathBuf) -> Result<Self> {
        let device = Loop::attach_with(&file, &["--partscan"])?;
        let disk = Self {
            node: device.node().display().to_string(),
            file,
            _device: device,
        };
        disk.read_table()?;
        Ok(disk)
    }

    /// Has the kernel's partitions follow the table on the disk.
    pub fn read_table(&self) -> Result<()> {
        Launch::new("partx")
            .args(["--update", &self.node])
            .text(SOON)
            .map(drop)
    }

    /// The node of a partition.
    pub fn part(&self, index: u32) -> String {
        format!("{}p{index}", self.node)
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
        File::options()
            .write(true)
            .open(&self.file)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("grow {}", self.file.display()))?;
        Launch::new("losetup")
            .args(["-c", &self.node])
            .text(SOON)
            .map(drop)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.file));
    }
}
