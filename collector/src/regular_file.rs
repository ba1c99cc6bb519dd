//! Opens regular files only. Opening a FIFO waits for another process, and a thread that waits
//! there does not end at a shutdown. Writes files that only this user reads.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Opens a file of a folder that only this program writes, so a symbolic link is refused, too.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub(crate) fn open_regular(path: &Path, options: &OpenOptions) -> io::Result<File> {
    open(path, options, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

/// Opens a file for reading. It may be a symbolic link, as files of mounted Secrets are.
///
/// # Errors
/// As [`open_regular`].
pub(crate) fn read_regular(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true), OFlags::NONBLOCK)
}

/// Writes a new file with mode 0600 in place of what is there, and syncs it. Also what a crash left
/// there may have another mode or type.
///
/// # Errors
/// The old file cannot be removed, or the new one not written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn open(path: &Path, options: &OpenOptions, flags: OFlags) -> io::Result<File> {
    let other = |what: &str| {
        let message = format!("{what}, not a regular file; remove it, or restore the file");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let opened = options
        .clone()
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => other("a symbolic link"),
        // A FIFO that no process reads, opened for writing; a socket.
        Some(Errno::NXIO) => other("a FIFO or a socket"),
        _ => error,
    })?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(other("a FIFO, a device or a folder"))
    }
}

/// Makes a FIFO, for tests.
#[cfg(test)]
pub(crate) fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        make_fifo(&at("fifo"));
        let mut write = OpenOptions::new();
        write.write(true).create(true);
        let mut read = OpenOptions::new();
        read.read(true);
        for options in [&read, &write] {
            open_regular(&at("file"), options).unwrap();
            for (name, part) in [("link", "a symbolic link"), ("fifo", "a FIFO")] {
                let error = open_regular(&at(name), options).unwrap_err();
                assert!(error.to_string().contains(part), "{name}: {error}");
            }
        }
        open_regular(folder.path(), &read).unwrap_err();
        read_regular(&at("link")).unwrap();
        read_regular(&at("fifo")).unwrap_err();
        let error = open_regular(&at("none"), &read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        open_regular(&at("none"), &write).unwrap();
    }

    #[test]
    fn a_private_file_replaces_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        make_fifo(&path);
        for text in ["a", "b"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
