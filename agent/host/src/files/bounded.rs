//! Reads small files of the guest safely: with a size limit, regular files only, and never blocking
//! in `open`.
//!
//! A FIFO, a terminal or an endless device returns an error.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::libc;

/// Why a file could not be read. Displays as the reason only; the caller adds the path.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no such file")]
    Missing,
    #[error("permission denied")]
    Denied,
    /// The file has more bytes than the caller permits.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// A directory, FIFO, socket or device.
    #[error("not a regular file")]
    NotAFile,
    #[error("not UTF-8 text")]
    NotText,
    #[error("{0}")]
    Other(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Other(error),
        }
    }
}

/// Reads a regular file (including files of procfs and sysfs) of at most `cap` bytes.
///
/// # Errors
/// The file is missing, unreadable, too large or not a regular file.
pub fn read_bounded(path: &Path, cap: usize) -> Result<Vec<u8>, ReadError> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ReadError::NotAFile);
    }
    read_at_most(&file, cap, path)
}

/// Like [`read_bounded`], as text.
///
/// # Errors
/// As [`read_bounded`], or the content is not UTF-8.
pub fn read_text(path: &Path, cap: usize) -> Result<String, ReadError> {
    String::from_utf8(read_bounded(path, cap)?).map_err(|_| ReadError::NotText)
}

/// The first `length` bytes of a block device or image file, or all of a shorter one.
///
/// # Errors
/// The device is missing or unreadable.
pub fn read_device(path: &Path, length: usize) -> Result<Vec<u8>, ReadError> {
    let file = open(path)?;
    let kind = file.metadata()?.file_type();
    if !(kind.is_file() || kind.is_block_device()) {
        return Err(ReadError::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names in a directory, sorted. Names that are not UTF-8 are left out; no caller searches for one.
///
/// # Errors
/// The directory is missing or unreadable.
pub fn list(path: &Path) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// True if a file masks files of its name with lower precedence, as in systemd: it is empty, or a
/// link to `/dev/null`.
pub fn is_mask(path: &Path) -> bool {
    if fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null")) {
        return true;
    }
    fs::metadata(path).is_ok_and(|metadata| {
        // Character device 1:3 is the null device, under any path.
        let null = metadata.file_type().is_char_device() && metadata.rdev() == libc::makedev(1, 3);
        null || (metadata.is_file() && metadata.len() == 0)
    })
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path)
}

fn read_at_most(file: &File, cap: usize, path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = file.take(cap as u64 + 1).read_to_end(&mut bytes);
    match read {
        Ok(length) if length > cap => Err(ReadError::TooLarge(cap)),
        Ok(_) => Ok(bytes),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "read failed");
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn everything_but_a_small_regular_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("text"), "hello\n").unwrap();
        fs::write(at("big"), [b'x'; 11]).unwrap();
        fs::write(at("binary"), [0xff, 0xfe, 0]).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!(read_text(&at("text"), 10).unwrap(), "hello\n");
        for (name, reason) in [
            ("none", "no such file"),
            ("text/below", "no such file"),
            ("big", "larger than 10 bytes"),
            ("binary", "not UTF-8 text"),
            ("fifo", "not a regular file"),
            (".", "not a regular file"),
        ] {
            assert_eq!(
                read_text(&at(name), 10).unwrap_err().to_string(),
                reason,
                "{name}"
            );
        }
        assert!(matches!(read_text(&at("loop"), 10), Err(ReadError::Other(_))));
        assert!(matches!(
            read_text(Path::new("/dev/zero"), 10),
            Err(ReadError::NotAFile)
        ));
        assert_eq!(read_device(&at("big"), 4).unwrap(), b"xxxx");
    }

    #[test]
    fn empty_files_and_links_to_null_are_masks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("empty"), "").unwrap();
        fs::write(at("full"), "a: 1").unwrap();
        symlink("/dev/null", at("null")).unwrap();
        symlink("null", at("chain")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        for (name, mask) in [
            ("empty", true),
            ("null", true),
            ("chain", true),
            ("full", false),
            ("dangling", false),
            ("none", false),
        ] {
            assert_eq!(is_mask(&at(name)), mask, "{name}");
        }
    }
}
