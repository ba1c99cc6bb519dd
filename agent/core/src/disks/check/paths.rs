//! Rules for the paths of mount points.

use virtfleet_wire::settings::DiskSettings;

use super::super::binds::PRIVATE_DIRECTORY;

/// Whether `path` is `above` or below it.
pub(super) fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the mount point and the places in the settings of a disk, with their keys.
pub(super) fn declared(disk: &DiskSettings) -> Vec<(String, &str)> {
    let whole = disk.mount_point.as_deref();
    let places = disk.places.iter().enumerate();
    whole
        .into_iter()
        .map(|path| ("mountPoint".to_owned(), path))
        .chain(places.map(|(index, place)| (format!("places[{index}].path"), place.path.as_str())))
        .collect()
}

/// Returns the problem with a mount point, if any.
pub(super) fn objection(path: &str) -> Option<String> {
    if path == "/" {
        return Some("/ is the root filesystem; choose a directory below it".to_owned());
    }
    if !is_normal(path) {
        return Some(format!(
            "{path:?} must be an absolute path without ., .., // and a trailing slash"
        ));
    }
    let known = |b: u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b':' | b'@' | b'+' | b'=')
    };
    if !path.bytes().all(known) || path.len() > 200 {
        return Some(format!(
            "{path:?} has characters other than letters, digits and / . _ - : @ + =, or more than 200 characters"
        ));
    }
    let below_usr = path
        .strip_prefix("/usr")
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    let library = ["/lib", "/lib32", "/lib64", "/libx32", "/libexec"];
    if FORBIDDEN_PATHS.contains(&path)
        || FORBIDDEN_TREES.iter().any(|never| is_at_or_below(path, never))
        || library.iter().any(|library| is_at_or_below(below_usr, library))
    {
        return Some(format!(
            "{path} is needed by the system or the agent before the disk is mounted; choose another directory"
        ));
    }
    None
}

/// Paths that no disk may be mounted on; paths below them are allowed.
pub(super) const FORBIDDEN_PATHS: [&str; 4] = ["/", "/usr", "/var", "/var/lib"];

/// Paths that no disk may be mounted on or below: system directories and the agent's journal.
pub(super) const FORBIDDEN_TREES: [&str; 15] = [
    "/bin",
    "/boot",
    "/dev",
    "/efi",
    "/etc",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/sbin",
    "/var/lib/virtfleet",
    PRIVATE_DIRECTORY,
    "/var/lock",
    "/var/run",
];

/// Whether a path is absolute and has no `.`, `..`, `//` or trailing slash.
pub(super) fn is_normal(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
