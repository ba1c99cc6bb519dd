//! A value parsed from a file that is replaced occasionally: one `stat` finds out whether it must
//! be read again.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{RereadError, read_once};

/// Maximum file size in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Identifies a version of a file: device, inode, size, mtime and ctime.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// A value parsed from a file, cached until the file changes.
#[derive(Debug)]
pub struct Stamped<T> {
    path: PathBuf,
    held: Option<(FileStamp, T)>,
}

impl<T> Stamped<T> {
    /// Does not read the file before the first [`Stamped::get`].
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            held: None,
        }
    }

    /// The value of the last [`Stamped::get`], if any.
    pub fn held(&self) -> Option<&T> {
        self.held.as_ref().map(|(_, value)| value)
    }

    /// Makes the next [`Stamped::get`] read the file again.
    pub fn forget(&mut self) {
        self.held = None;
    }

    /// The value; parsed again if the file has changed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn get(&mut self, make: impl FnOnce(&[u8]) -> T) -> Result<&T, RereadError> {
        let stamp = match stamp(&self.path) {
            Ok(stamp) => stamp,
            Err(source) => {
                self.held = None;
                return Err(RereadError::Io {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        let held = match self.held.take() {
            Some(held) if held.0 == stamp => held,
            _ => (
                stamp,
                make(read_once(&self.path, &mut Vec::new(), MAX_FILE_BYTES)?),
            ),
        };
        Ok(&self.held.insert(held).1)
    }
}

fn stamp(path: &Path) -> io::Result<FileStamp> {
    let meta = std::fs::metadata(path)?;
    Ok((
        meta.dev(),
        meta.ino(),
        meta.size(),
        (meta.mtime(), meta.mtime_nsec()),
        (meta.ctime(), meta.ctime_nsec()),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_is_read_again_only_after_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Stamped::new(&path);
        let mut made = 0;
        let mut length = |file: &mut Stamped<usize>| {
            file.get(|bytes| {
                made += 1;
                bytes.len()
            })
            .copied()
            .map(|length| (length, made))
        };
        assert!(length(&mut file).unwrap_err().is_missing());
        fs::write(&path, "abc").unwrap();
        assert_eq!(length(&mut file).unwrap(), (3, 1));
        assert_eq!(length(&mut file).unwrap(), (3, 1));
        let next = dir.path().join("next");
        fs::write(&next, "abcd").unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(length(&mut file).unwrap(), (4, 2));
        assert_eq!(file.held(), Some(&4));
        fs::remove_file(&path).unwrap();
        assert!(length(&mut file).unwrap_err().is_missing());
        assert_eq!(file.held(), None);
    }
}
