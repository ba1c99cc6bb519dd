//! Detects the agent's own filesystem, in use, on a device that blkid(8) does not identify as such
//! ([`virtfleet_agent_core::disks::own`]).

use std::{io, path::Path, time::Duration};

use virtfleet_agent_core::disks::{
    OwnFilesystem, Superblock,
    journal::Entry,
    own::{FileArea, xfs_root},
    superblock::HEAD_BYTES,
};

use super::tools::{
    superblock::{bytes_at, length},
    wipefs,
};
use crate::Commands;

/// The filesystem at the start of a device, if one of the entries records it as complete. `found`
/// are the kinds that blkid has reported; wipefs(8) gets the `deadline`.
///
/// If the other signatures cannot be listed, they are not proven to be data of its files.
///
/// # Errors
/// The device cannot be opened or read.
pub fn own_filesystem(
    commands: &dyn Commands,
    device: &Path,
    entries: &[Entry],
    found: &[String],
    deadline: Duration,
) -> io::Result<Option<OwnFilesystem>> {
    let head = bytes_at(device, 0, HEAD_BYTES)?;
    let Some(superblock) = Superblock::parse(&head) else {
        return Ok(None);
    };
    if !entries.iter().any(|entry| superblock.is_of(entry)) {
        return Ok(None);
    }
    let signatures = match wipefs::signatures(commands, device, deadline) {
        Ok(signatures) => signatures,
        Err(error) => {
            let path = device.display();
            tracing::warn!(%path, %error, "cannot list what lies on the filesystem besides it");
            return Ok(Some(OwnFilesystem::unproven(superblock, found)));
        }
    };
    let root = match xfs_root(&superblock, &head) {
        Some(root) => bytes_at(
            device,
            root.offset,
            usize::try_from(root.length).unwrap_or_default(),
        )?,
        None => Vec::new(),
    };
    let area = FileArea::of(&superblock, &head, &root, length(device)?);
    Ok(Some(OwnFilesystem::new(
        superblock,
        area.as_ref(),
        &signatures,
        found,
    )))
}
