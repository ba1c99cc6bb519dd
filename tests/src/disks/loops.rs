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

/// The disk. The loop device is detached when this value is dropped or the process ends, as soon as
/// nothing has it mounted.
#[derive(Debug)]
pub struct LoopDisk {
    /// The device node, e.g. `/dev/loop3`.
    pub node: String,
    /// The file behind it, in a folder that is removed with the stage.
    pub file: PathBuf,
    _device: Loop,
}

impl LoopDisk {
    /// Creates a blank disk of so many bytes as a sparse file.
    pub fn new(folder: &Path, name: &str, bytes: u64) -> Result<Self> {
        let file = format!("{name}.img");
        let device = Loop::blank(folder, &file, bytes)?;
        Ok(Self {
            node: device.node().display().to_string(),
            file: folder.join(file),
            _device: device,
        })
    }

    /// Creates a disk with a partition table, from an sfdisk(8) script.
    ///
    /// partx(8) adds the partitions to the kernel, because a kernel without partition table parsers
    /// finds none.
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

    /// Creates a disk from a file that has a partition table.
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

    /// Updates the kernel's partitions from the table on the disk.
    pub fn read_table(&self) -> Result<()> {
        Launch::new("partx")
            .args(["--update", &self.node])
            .text(SOON)
            .map(drop)
    }

    /// The device node of a partition.
    pub fn part(&self, index: u32) -> String {
        format!("{}p{index}", self.node)
    }

    /// Major and minor number, as used in the file names of udev's database.
    pub fn number(&self) -> Result<String> {
        let number = fs::metadata(&self.node)?.rdev();
        Ok(format!(
            "{}:{}",
            nix::sys::stat::major(number),
            nix::sys::stat::minor(number)
        ))
    }

    /// Enlarges the disk, as a hypervisor would.
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
