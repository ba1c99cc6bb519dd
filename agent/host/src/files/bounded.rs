//! Reads small files of the guest so that none can hurt us: a size cap, regular files only, no waiting in `open`.
//!
//! A path that ends in a FIFO, a terminal or an endless device answers with an error instead of hanging.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::libc;

/// Why a file could not be read. Displays as the reason alone; the caller knows the path and names it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not exist.
    #[error("no such file")]
    Missing,
    /// We may not.
    #[error("permission denied")]
    Denied,
    /// More bytes than the caller allows.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// A directory, FIFO, socket or device.
    #[error("not a regular file")]
    NotAFile,
    /// Bytes that are not text.
    #[error("not UTF-8 text")]
    NotText,
    /// Anything else that the kernel says.
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

/// The whole of a regular file (procfs and sysfs files are such) of at most `cap` bytes.
pub fn read_bounded(path: &Path, cap: usize) -> Result<Vec<u8>, ReadError> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ReadError::NotAFile);
    }
    read_at_most(&file, cap, path)
}

/// The same as text.
pub fn read_text(path: &Path, cap: usize) -> Result<String, ReadError> {
    String::from_utf8(read_bounded(path, cap)?).map_err(|_| ReadError::NotText)
}

/// The first `length` bytes of a block device or image file; fewer when it is shorter.
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

/// Names in a directory, sorted. Names that are not UTF-8 are left out: nothing that we look for has one.
pub fn list(path: &Path) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Whether a file masks the weaker ones of its name, as systemd has it: it is empty, or a link to `/dev/null`.
pub fn is_mask(path: &Path) -> bool {
    if fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null")) {
        return true;
    }
    fs::metadata(path).is_ok_and(|metadata| {
        // Character device 1:3 is the null device, however it is reached.
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
    fn what_is_no_small_file_is_refused_by_name() {
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
    fn empty_files_and_links_to_null_mask() {
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
