//! Validation of mount points: forbidden paths, and paths of several disks.

pub(super) use super::paths::is_at_or_below;
pub(super) use super::paths::is_normal;
pub(super) use super::paths::{declared, objection};
use virtfleet_wire::settings::DiskSettings;

use super::{
    super::wanted::{KeySource, Wanted, WantedProblem},
    binds,
    one::{bad_names, problem},
};

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
