//! Owner and mode of a directory. Names are resolved by the guest's `passwd` and `group`, because a
//! static binary has no name service.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::wanted::Owner;

use crate::{Roots, files::atomic_file::make_directories, read_text};

/// Why an owner could not be set.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    #[error("{file} has no {name:?}; create it, or use a number")]
    Unknown { file: &'static str, name: String },
    #[error("cannot create {}, or set its owner or mode", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Sets owner and mode of a directory. Returns false if they were already set.
///
/// # Errors
/// A name is unknown, or the kernel refuses the change.
pub fn own(roots: &Roots, path: &Path, owner: &Owner) -> Result<bool, OwnError> {
    let at = |source| OwnError::Io {
        path: path.to_owned(),
        source,
    };
    let user = owner_number(roots, "/etc/passwd", owner.user.as_deref())?;
    let group = owner_number(roots, "/etc/group", owner.group.as_deref())?;
    let before = fs::metadata(path).map_err(at)?;
    let is_theirs =
        user.is_none_or(|user| user == before.uid()) && group.is_none_or(|group| group == before.gid());
    let moded = owner.mode.is_none_or(|mode| mode == before.mode() & 0o7777);
    if !is_theirs {
        chown(path, user, group).map_err(at)?;
    }
    // After the owner, because chown(2) clears set-id bits.
    if let Some(mode) = owner.mode.filter(|_| !(is_theirs && moded)) {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at)?;
    }
    Ok(!(is_theirs && moded))
}

/// Creates a directory and its parents with mode 0755. Returns false if it exists.
///
/// # Errors
/// A directory cannot be created.
pub fn make_folder(path: &Path) -> Result<bool, OwnError> {
    if path.is_dir() {
        return Ok(false);
    }
    make_directories(path)
        .map(|()| true)
        .map_err(|source| OwnError::Io {
            path: path.to_owned(),
            source,
        })
}

/// Creates a directory with mode 0700 if it is missing.
///
/// # Errors
/// The directory cannot be created.
pub fn make_private_folder(path: &Path) -> Result<(), OwnError> {
    let at = |source| OwnError::Io {
        path: path.to_owned(),
        source,
    };
    make_directories(path).map_err(at)?;
    for folder in path.ancestors().take(2) {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(at)?;
    }
    Ok(())
}

/// The third field of that name's line in `passwd` or `group`, or the number itself.
///
/// # Errors
/// The file has no such name or cannot be read.
pub fn owner_number(roots: &Roots, file: &'static str, name: Option<&str>) -> Result<Option<u32>, OwnError> {
    let Some(name) = name else {
        return Ok(None);
    };
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let text = read_text(&roots.root(file), 1 << 20).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    found.map(Some).ok_or_else(|| OwnError::Unknown {
        file,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_modes_are_set() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let own_id = nix::unistd::geteuid().as_raw();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/passwd"), format!("me:x:{own_id}:5::/:\n")).unwrap();
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        let owner = |user: &str, mode| Owner {
            user: Some(user.into()),
            group: None,
            mode: Some(mode),
        };
        assert!(own(&roots, &place, &owner("me", 0o711)).unwrap());
        assert!(!own(&roots, &place, &owner(&own_id.to_string(), 0o711)).unwrap());
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o7777, 0o711);
        let error = own(&roots, &place, &owner("unknown-user", 0o700)).unwrap_err();
        assert!(error.to_string().contains("/etc/passwd has no"), "{error}");
    }
}
