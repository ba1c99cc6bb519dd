//! Finds the disk that carries the root filesystem.

use std::{fs, path::PathBuf};

use super::super::{Disks, Kinds, facts, uses};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootDisk {
    pub(super) name: String,
    pub(super) node: PathBuf,
    /// Size in bytes.
    pub(super) size: u64,
    /// Logical block size in bytes.
    pub(super) logical_block: u32,
}

/// The disk with the partition that is mounted at `/` in the mount namespace of PID 1.
///
/// # Errors
/// The root filesystem is not on a partition of a disk (LVM, md, overlay, network), or sysfs lacks
/// the information.
pub(super) fn root_disk(disks: &Disks<'_>) -> Result<RootDisk, String> {
    let name = match disks.kinds {
        Kinds::LoopRoot(number) => format!("loop{number}"),
        Kinds::Real | Kinds::WithLoop => below_root(disks)?,
    };
    let folder = facts::block(disks.roots, &name);
    let size = facts::number(&folder.join("size")).and_then(|size| size.checked_mul(512));
    let size = size.ok_or_else(|| format!("the size of the root disk {name} is unknown"))?;
    let block = facts::number(&folder.join("queue/logical_block_size"));
    Ok(RootDisk {
        node: disks.roots.root(format!("/dev/{name}")),
        size,
        logical_block: block.and_then(|bytes| bytes.try_into().ok()).unwrap_or(512),
        name,
    })
}

fn below_root(disks: &Disks<'_>) -> Result<String, String> {
    let mounts = uses::mounts(disks.roots).map_err(|error| error.to_string())?;
    let mut mounts = mounts.iter().filter(|mount| mount.first && mount.at == "/");
    // An initrd's root filesystem that is mounted over has two entries; then it is unknown which
    // one is in effect.
    let (Some(mount), None) = (mounts.next(), mounts.next()) else {
        return Err("it is unknown which filesystem is mounted at /".to_owned());
    };
    let link = disks.roots.sys(format!("dev/block/{}", mount.number));
    let folder = fs::canonicalize(&link).map_err(|error| {
        format!(
            "the root filesystem is not on a block device: {}: {error}",
            link.display()
        )
    })?;
    let disk = folder
        .parent()
        .and_then(|disk| disk.file_name())
        .and_then(|name| name.to_str());
    match disk.filter(|_| folder.join("partition").exists()) {
        Some(name) => Ok(name.replace('!', "/")),
        None => Err("the root filesystem is not on a partition of a disk".to_owned()),
    }
}
