//! Mount points: which are refused, and how those of several disks stand to each other.

use virtfleet_wire::settings::DiskSettings;

use super::{
    super::{
        binds::PRIVATE_DIRECTORY,
        wanted::{KeySource, Wanted, WantedProblem},
    },
    bad_names, binds, problem,
};

/// Never mounted over; what lies below may be.
const NEVER: [&str; 4] = ["/", "/usr", "/var", "/var/lib"];
/// Never mounted over, nor anything below: the system's own, and our journal.
const NEVER_BELOW: [&str; 15] = [
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

/// Whether a path is absolute and has no `.`, `..`, `//` or slash at its end.
pub(super) fn is_normal(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether `path` is `above` or lies below it.
pub(super) fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The mount point and the places that the settings of a disk have, with their keys.
pub(super) fn declared(disk: &DiskSettings) -> Vec<(String, &str)> {
    let whole = disk.mount_point.as_deref();
    let places = disk.places.iter().enumerate();
    whole
        .into_iter()
        .map(|path| ("mountPoint".to_owned(), path))
        .chain(places.map(|(index, place)| (format!("places[{index}].path"), place.path.as_str())))
        .collect()
}

/// What is wrong with a mount point.
pub(super) fn objection(path: &str) -> Option<String> {
    if path == "/" {
        return Some("/ is the system's own; a secondary disk goes below it".to_owned());
    }
    if !is_normal(path) {
        return Some(format!(
            "{path:?} is not an absolute path without ., .., // and a slash at its end"
        ));
    }
    let known = |b: u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b':' | b'@' | b'+' | b'=')
    };
    if !path.bytes().all(known) || path.len() > 200 {
        return Some(format!(
            "{path:?} has other characters than letters, digits and / . _ - : @ + =, or more than 200"
        ));
    }
    let below_usr = path
        .strip_prefix("/usr")
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    let library = ["/lib", "/lib32", "/lib64", "/libx32", "/libexec"];
    if NEVER.contains(&path)
        || NEVER_BELOW.iter().any(|never| is_at_or_below(path, never))
        || library.iter().any(|library| is_at_or_below(below_usr, library))
    {
        return Some(format!(
            "{path} is needed by the system or the agent before the disk is there; choose a directory of its own"
        ));
    }
    None
}

/// Refuses disks of one mount point, disks below one that is refused, and keys that lie on a declared disk; then puts those before others that others are
/// mounted on.
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
                format!("{path} is that of {} too", same.join(", ")),
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
                    "{path} lies on the disk {:?} itself or on one that may be missing; put it on the root disk",
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
    // A disk below a refused one would be mounted on the root disk, and be hidden when the other is put right.
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
        let message = format!("lies below that of {:?}, whose settings are wrong", above.name);
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
