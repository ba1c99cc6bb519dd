//! State of a path: absent, a file or a link. Read without following links, and written so that a
//! reader, and a crash, see either the old or the new state.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{link_atomic, read_bounded, remove_durably, write_atomic};

/// Maximum size of a resolver's configuration file in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(super) enum PathState {
    /// Absent.
    Nothing,
    /// A regular file.
    File {
        content: Content,
        /// Permission bits.
        mode: u32,
        group: u32,
    },
    /// A symbolic link.
    Link { target: String },
}

/// Content of a file: text, so that the journal is readable, or bytes if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl PathState {
    /// A file owned by root.
    pub(super) fn text(text: &str, mode: u32) -> Self {
        Self::File {
            content: Content::Text(text.to_owned()),
            mode,
            group: nix::unistd::getegid().as_raw(),
        }
    }

    /// Reads the state of a path. A directory, a device or a file above 1 MiB is an error.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(Self::Nothing);
            }
            Err(error) => return Err(error),
        };
        if metadata.is_symlink() {
            let target = fs::read_link(path)?;
            let target = target
                .into_os_string()
                .into_string()
                .map_err(|_| io::Error::other("a link to a name that is not UTF-8"))?;
            return Ok(Self::Link { target });
        }
        let bytes = read_bounded(path, MAX_FILE_BYTES).map_err(io::Error::other)?;
        let content =
            String::from_utf8(bytes).map_or_else(|error| Content::Bytes(error.into_bytes()), Content::Text);
        Ok(Self::File {
            content,
            mode: metadata.mode() & 0o7777,
            group: metadata.gid(),
        })
    }

    /// Replaces what is at the path, durably.
    pub(super) fn put(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        match self {
            Self::Nothing => {
                if remove_durably(path)? && is_drop_in_folder(folder) {
                    // Fails if the directory has other entries.
                    fs::remove_dir(folder).ok();
                }
                Ok(())
            }
            Self::File { content, mode, group } => {
                make_folders(folder)?;
                write_atomic(path, content.bytes(), *mode, Some(*group)).map_err(io::Error::other)
            }
            Self::Link { target } => {
                make_folders(folder)?;
                link_atomic(path, target)
            }
        }
    }

    /// True if the content or the link target is equal. Owner and mode are ignored.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content: one, .. }, Self::File { content: two, .. }) => one == two,
            _ => self == other,
        }
    }
}

/// True for a directory that only has drop-ins, such as `10-eth.network.d` and `resolved.conf.d`.
fn is_drop_in_folder(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".network.d") || name == "resolved.conf.d"
}

/// Creates missing directories with mode 0755, each synced with its parent.
pub(super) fn make_folders(path: &Path) -> io::Result<()> {
    let absent: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    for folder in absent.into_iter().rev() {
        fs::DirBuilder::new().mode(0o755).create(folder)?;
        // Independent of the umask.
        fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_state_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/x.network.d/90.conf");
        assert_eq!(PathState::read(&path).unwrap(), PathState::Nothing);
        let ours = PathState::text("ours\n", 0o600);
        ours.put(&path).unwrap();
        assert_eq!(PathState::read(&path).unwrap(), ours);
        PathState::Nothing.put(&path).unwrap();
        assert!(!path.parent().unwrap().exists() && dir.path().join("etc").exists());

        let path = dir.path().join("resolv.conf");
        for content in [&b"text\n"[..], b"\xff\xfe", b""] {
            fs::write(&path, content).unwrap();
            let before = PathState::read(&path).unwrap();
            let json = serde_json::to_string(&before).unwrap();
            ours.put(&path).unwrap();
            serde_json::from_str::<PathState>(&json)
                .unwrap()
                .put(&path)
                .unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
            fs::remove_file(&path).unwrap();
        }
        symlink("../run/stub", &path).unwrap();
        let before = PathState::read(&path).unwrap();
        ours.put(&path).unwrap();
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        before.put(&path).unwrap();
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("../run/stub"));
    }

    #[test]
    fn a_directory_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(PathState::read(dir.path()).is_err());
    }
}
