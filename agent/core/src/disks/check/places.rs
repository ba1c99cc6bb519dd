//! Validation of mount points: forbidden paths, and paths of several disks.

use virtfleet_wire::settings::DiskSettings;

use super::{
    super::{
        binds::PRIVATE_DIRECTORY,
        wanted::{KeySource, Wanted, WantedProblem},
    },
    bad_names, binds, problem,
};

/// Paths that no disk may be mounted on; paths below them are allowed.
const FORBIDDEN_PATHS: [&str; 4] = ["/", "/usr", "/var", "/var/lib"];
/// Paths that no disk may be mounted on or below: system directories and the agent's journal.
const FORBIDDEN_TREES: [&str; 15] = [
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

/// Refuses disks with the same mount point, disks below a refused one, and key files on a declared
/// disk. Then sorts disks so that each comes before those mounted on it.
pub(super) fn check_together(
    settings: &[DiskSettings],
    wanted: &mut Vec<Wanted>,
    problems: &mut Vec<WantedProblem>,
) {
    for (index, disk) in settings.iter().enumerate() {
        let Some(path) = disk.mount_point.as_deref() else {
            continue;
        };
        let same: Vec<&str> = settings
            .iter()
            .enumerate()
            .filter(|(other, at)| *other != index && at.mount_point.as_deref() == Some(path))
            .map(|(_, other)| other.name.as_str())
            .collect();
        if !same.is_empty() {
            problems.push(problem(
                index,
                disk,
                "mountPoint",
                format!("{path} is also the mount point of {}", same.join(", ")),
            ));
        }
    }
    binds::check_together(settings, problems);
    for disk in wanted.iter() {
        let Some(encryption) = &disk.encryption else {
            continue;
        };
        let key = match &encryption.key {
            KeySource::File(path) => Some(("key", path)),
            KeySource::Tpm2 => None,
        };
        let recovery = encryption.recovery.as_ref().map(|path| ("recoveryKey", path));
        for (word, path) in key.into_iter().chain(recovery) {
            let on = settings.iter().find(|other| {
                let places = declared(other);
                places
                    .into_iter()
                    .any(|(_, place)| is_normal(place) && is_at_or_below(path, place))
            });
            let at = settings.iter().position(|other| other.name == disk.name);
            if let (Some(on), Some(at)) = (on, at) {
                let message = format!(
                    "{path} is on the disk {:?} itself or on one that may be missing; store it on the root disk",
                    on.name
                );
                problems.push(problem(
                    at,
                    &settings[at],
                    &format!("encryption.luks2.{word}"),
                    message,
                ));
            }
        }
    }
    // A disk below a refused one would be mounted on the root disk, and hidden once the other is
    // fixed.
    loop {
        let bad = bad_names(problems);
        let below = settings.iter().enumerate().find_map(|(index, disk)| {
            let is_above = |above: &&DiskSettings, path: &str| {
                let mut places = declared(above).into_iter();
                above.name != disk.name
                    && bad.contains(&above.name)
                    && places
                        .any(|(_, place)| is_normal(place) && place != path && is_at_or_below(path, place))
            };
            let found = declared(disk).into_iter().find_map(|(key, path)| {
                let above = settings.iter().find(|above| is_above(above, path))?;
                Some((key, above))
            });
            let (key, above) = found?;
            (!bad.contains(&disk.name)).then_some((index, disk, key, above))
        });
        let Some((index, disk, key, above)) = below else {
            break;
        };
        let message = format!(
            "is below the mount point of {:?}, whose settings are invalid",
            above.name
        );
        problems.push(problem(index, disk, &key, message));
    }
    let bad = bad_names(problems);
    wanted.retain(|disk| !bad.contains(&disk.name));
    let places: Vec<String> = wanted
        .iter()
        .filter_map(|disk| disk.mount_point.clone())
        .collect();
    wanted.sort_by_key(|disk| {
        let path = disk.mount_point.as_deref().unwrap_or_default();
        places
            .iter()
            .filter(|above| is_at_or_below(path, above))
            .count()
            .max(1)
    });
}
