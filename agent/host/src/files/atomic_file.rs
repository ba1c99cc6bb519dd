//! Replaces a file atomically: a reader, and a crash, see either the old or the new content.
//!
//! Steps: temporary file in the same directory, mode and owner, sync, rename, sync of the
//! directory.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, fchown},
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub struct WriteError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl WriteError {
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// Replaces the content of `path`, with permission bits `mode` (independent of the umask) and, if
/// given, a group.
///
/// Missing directories are created with mode 0755, independent of the umask.
///
/// # Errors
/// A step failed; the old file is unchanged.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32, group: Option<u32>) -> Result<(), WriteError> {
    let at = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| WriteError { step, path, source }
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    make_directories(parent).map_err(at("create directory", parent))?;
    // Created with mode 0600; removed if a later step fails.
    let mut file = tempfile::Builder::new()
        .prefix(".virtfleet-")
        .tempfile_in(parent)
        .map_err(at("create a temporary file in", parent))?;
    file.write_all(content).map_err(at("write", path))?;
    if group.is_some() {
        fchown(file.as_file(), None, group).map_err(at("set the group of", path))?;
    }
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))
        .map_err(at("set the mode of", path))?;
    file.as_file().sync_all().map_err(at("sync", path))?;
    file.persist(path)
        .map_err(|error| at("rename to", path)(error.error))?;
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(at("sync directory", parent))
}

/// Existing directories keep their mode. An umask such as 077 would otherwise exclude the readers
/// that the file's mode permits.
pub(crate) fn make_directories(path: &Path) -> io::Result<()> {
    let absent: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    fs::create_dir_all(path)?;
    absent
        .into_iter()
        .try_for_each(|directory| fs::set_permissions(directory, Permissions::from_mode(0o755)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn content_and_mode_are_set_and_no_temporary_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/state.json");
        for (content, mode) in [("one", 0o640), ("two", 0o644)] {
            write_atomic(&path, content.as_bytes(), mode, None).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_strict_umask_does_not_exclude_readers() {
        use nix::sys::stat::{Mode, umask};
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
        fs::create_dir(dir.path().join("kept")).unwrap();
        fs::set_permissions(dir.path().join("kept"), Permissions::from_mode(0o750)).unwrap();
        let before = umask(Mode::from_bits_truncate(0o077));
        write_atomic(&dir.path().join("kept/a/b/f"), b"", 0o644, None).unwrap();
        umask(before);
        assert_eq!(
            [mode("kept"), mode("kept/a"), mode("kept/a/b")],
            [0o750, 0o755, 0o755]
        );
    }

    #[test]
    fn a_failure_reports_the_step_and_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kept"), "x").unwrap();
        let error = write_atomic(&path, b"new", 0o644, None).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot rename to {}", path.display()));
        assert!(path.join("kept").exists());
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
