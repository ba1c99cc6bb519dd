//! Saves the first and the last MiB of a disk before it is erased by approval, so that an admin can
//! restore them: most signatures, partition tables and superblocks are there.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::DeviceId;

use super::{
    Disks, claim, ioctl,
    reader::{Aligned, Failure, chunks, read_all},
};

/// Maximum number of kept files of all disks, 1 MiB each.
const MAX_FILES: usize = 16;
/// Bytes that must stay free on the journal's filesystem.
const MIN_FREE_BYTES: u64 = 256 << 20;

impl Disks<'_> {
    /// Writes the first and the last MiB of the disk to files in `folder` (0700, files 0600),
    /// synced.
    ///
    /// A file is named `<disk>-<seconds since 1970>-at-<offset on the device>.bin`. At most 16
    /// files are kept; the oldest are removed. The caller may hold the disk.
    ///
    /// # Errors
    /// The disk cannot be read, the files cannot be written, or less than 256 MiB would stay free.
    pub fn keep_for_undo(
        &self,
        folder: &Path,
        name: &str,
        id: &DeviceId,
        at_seconds: u64,
    ) -> io::Result<Vec<PathBuf>> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let room = rustix::fs::statvfs(folder)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < MIN_FREE_BYTES {
            return Err(io::Error::other(format!(
                "less than {MIN_FREE_BYTES} bytes are free in {}",
                folder.display()
            )));
        }
        let device = OpenOptions::new()
            .read(true)
            .custom_flags(ioctl::DIRECT)
            .open(self.node(id))?;
        super::identity::check(&device, id).map_err(io::Error::other)?;
        let mut buffer = Aligned::new();
        let mut kept = Vec::new();
        for (offset, length) in chunks(&claim::ends(id.size)) {
            let chunk = buffer.chunk(length);
            read_all(&device, chunk, offset).map_err(|failure| match failure {
                Failure::Doubt(doubt) => io::Error::other(doubt.reason),
                Failure::CallerGone => io::Error::other("the read was canceled"),
            })?;
            let path = folder.join(format!("{name}-{at_seconds}-at-{offset}.bin"));
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(nix::libc::O_NOFOLLOW)
                .open(&path)?;
            file.write_all(chunk)?;
            file.sync_all()?;
            kept.push(path);
        }
        remove_oldest(folder)?;
        fs::File::open(folder)?.sync_all()?;
        Ok(kept)
    }
}

/// Removes the oldest files beyond the maximum.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(u64, PathBuf)> = fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| Some((kept(entry.file_name().to_str()?)?.1, entry.path())))
        .collect();
    files.sort();
    let over = files.len().saturating_sub(MAX_FILES);
    files
        .drain(..over)
        .try_for_each(|(_, path)| fs::remove_file(path))
}

/// Disk, seconds since 1970 and offset on the device, from a kept file's name.
fn kept(file: &str) -> Option<(&str, u64, u64)> {
    let (rest, place) = file.strip_suffix(".bin")?.rsplit_once("-at-")?;
    let (name, second) = rest.rsplit_once('-')?;
    Some((name, second.parse().ok()?, place.parse().ok()?))
}

/// When bytes of that disk were saved last, in seconds since 1970. `None` if never.
pub fn kept_for_undo(folder: &Path, name: &str) -> Option<u64> {
    let files = fs::read_dir(folder).ok()?.flatten();
    files
        .filter_map(|entry| {
            let file = entry.file_name();
            let (of, second, _) = kept(file.to_str()?)?;
            (of == name).then_some(second)
        })
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_the_oldest_files_are_removed() {
        assert_eq!(kept("my-data-17-at-4096.bin"), Some(("my-data", 17, 4096)));
        for other in ["data-17-at-x.bin", "data.bin", "data-17-at-1", "-at-1.bin"] {
            assert_eq!(kept(other), None, "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        for second in 0..MAX_FILES + 5 {
            fs::write(folder.path().join(format!("data-{second}-at-0.bin")), "x").unwrap();
        }
        fs::write(folder.path().join("other"), "x").unwrap();
        remove_oldest(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MAX_FILES + 1);
        assert!(!folder.path().join("data-4-at-0.bin").exists());
        assert_eq!(kept_for_undo(folder.path(), "data"), Some(20));
        assert_eq!(kept_for_undo(folder.path(), "dat"), None);
    }
}
