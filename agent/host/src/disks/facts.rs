//! One-line files of a device in sysfs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::{DevNumber, DeviceId};

pub(super) use crate::read_line as line;
use crate::{Roots, list, read_value};

/// A decimal number.
pub(super) fn number(path: &Path) -> Option<u64> {
    read_value(path)
}

/// Parses `MAJOR:MINOR`.
pub(super) fn dev_number(text: &str) -> Option<DevNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DevNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// The last component of a link's target.
pub(super) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// Directory of a disk.
pub(super) fn block(roots: &Roots, name: &str) -> PathBuf {
    // sysfs replaces slashes in names by `!`.
    roots.sys("block").join(name.replace('/', "!"))
}

/// Directory of a partition. Names are those in `/dev`; sysfs replaces their slashes by `!`.
pub(super) fn partition_folder(roots: &Roots, disk: &str, partition: &str) -> PathBuf {
    block(roots, disk).join(partition.replace('/', "!"))
}

/// Directory of a disk or partition.
pub(super) fn folder(roots: &Roots, id: &DeviceId) -> PathBuf {
    match &id.partition {
        Some(partition) => partition_folder(roots, &partition.disk, &id.name),
        None => block(roots, &id.name),
    }
}

/// Partitions of a disk by name, with their numbers.
pub(super) fn partitions(roots: &Roots, disk: &str) -> Vec<(String, Option<DevNumber>)> {
    let folder = block(roots, disk);
    let names = list(&folder).unwrap_or_default();
    names
        .into_iter()
        .filter(|name| folder.join(name).join("partition").exists())
        .map(|name| {
            let number = line(&folder.join(&name).join("dev")).and_then(|text| dev_number(&text));
            (name.replace('!', "/"), number)
        })
        .collect()
}
