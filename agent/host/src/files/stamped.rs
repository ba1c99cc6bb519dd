//! A file that is replaced now and then, and what was read out of it: one `stat` tells whether
//! it must be read again.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{RereadError, slurp};

/// Such files are small.
const LIMIT: usize = 1 << 20;

/// What says that a file is still the same: device, inode, size, and the times of its content and of its inode.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// A value that was made from a file.
#[derive(Debug)]
pub struct Stamped<T> {
    path: PathBuf,
    held: Option<(Stamp, T)>,
}

impl<T> Stamped<T> {
    /// Nothing is read before the first [`Stamped::get`].
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            held: None,
        }
    }

    /// The value of the last [`Stamped::get`], if there was one.
    pub fn held(&self) -> Option<&T> {
        self.held.as_ref().map(|(_, value)| value)
    }

    /// Has the value made anew by the next [`Stamped::get`].
    pub fn forget(&mut self) {
        self.held = None;
    }

    /// The value, made anew when the file has changed.
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
            _ => (stamp, make(slurp(&self.path, &mut Vec::new(), LIMIT)?)),
        };
        Ok(&self.held.insert(held).1)
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
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
    fn read_again_only_when_replaced() {
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
