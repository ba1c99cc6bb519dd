//! Validation of places that share one disk, and of their paths relative to those of other disks.

use std::collections::BTreeMap;

use virtfleet_wire::settings::DiskSettings;

use super::{
    super::{
        binds::{Bind, default_directory},
        wanted::WantedProblem,
    },
    one::{One, problem},
    paths::is_at_or_below,
};

/// Maximum number of places of one disk.
const MAX_PLACES: usize = 16;
/// Maximum length of a directory's name in bytes. Linux allows 255, and the agent adds a prefix
/// while it fills the directory.
const MAX_DIRECTORY_BYTES: usize = 200;

impl One<'_> {
    /// Checks the places of the disk. The result is valid only if no problem was found.
    pub(super) fn binds(&mut self) -> Vec<Bind> {
        let places = &self.disk.places;
        if places.len() > MAX_PLACES {
            self.refuse(
                "places",
                format!("{} places; a disk has at most {MAX_PLACES}", places.len()),
            );
        }
        let mut binds: Vec<Bind> = Vec::new();
        let mut directories: BTreeMap<String, &str> = BTreeMap::new();
        for (index, place) in places.iter().enumerate() {
            let at = |key: &str| format!("places[{index}].{key}");
            let path = place.path.as_str();
            let wrong_path = super::paths::objection(path);
            let has_path = wrong_path.is_none();
            if let Some(message) = wrong_path {
                self.refuse(&at("path"), message);
            }
            for earlier in &binds {
                if is_at_or_below(path, &earlier.path) || is_at_or_below(&earlier.path, path) {
                    self.refuse(
                        &at("path"),
                        format!(
                            "{path} and {}, another place of the disk, are equal or nested; declare only the upper one",
                            earlier.path
                        ),
                    );
                }
            }
            let directory = place.directory.clone().unwrap_or_else(|| default_directory(path));
            if let Some(message) = objection(&directory).filter(|_| has_path || place.directory.is_some()) {
                self.refuse(&at("directory"), message);
            }
            if let Some(other) = directories.insert(directory.clone(), path) {
                self.refuse(
                    &at("directory"),
                    format!(
                        "{directory:?} is also the directory of {other}; set `directory` to another name for one of them"
                    ),
                );
            }
            let owner = place.owner.as_ref().map(|owner| self.owner(&at("owner"), owner));
            binds.push(Bind {
                path: path.to_owned(),
                directory,
                owner,
            });
        }
        binds
    }
}

/// Returns the problem with a directory name, if any.
fn objection(name: &str) -> Option<String> {
    let known =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'@' | b'+' | b'=');
    let wrong = name.is_empty()
        || name.len() > MAX_DIRECTORY_BYTES
        || name.starts_with(['.', '-'])
        || !name.bytes().all(known);
    if wrong {
        return Some(format!(
            "{name:?} is not a valid directory name: use 1 to {MAX_DIRECTORY_BYTES} letters, digits and . _ - : @ + =, not . or \
             - first, without a slash"
        ));
    }
    // fsck.ext4 stores files there.
    (name == "lost+found").then(|| "lost+found belongs to the filesystem; choose another name".to_owned())
}

/// Refuses places that are equal to, below or above a mount point or place of another disk. The
/// mount order is decided per disk, and two disks with places could each need the other one first.
pub(super) fn check_together(settings: &[DiskSettings], problems: &mut Vec<WantedProblem>) {
    for (index, disk) in settings.iter().enumerate() {
        for (at, place) in disk.places.iter().enumerate() {
            let path = place.path.as_str();
            let mut others = settings.iter().enumerate().filter(|(other, _)| *other != index);
            let found = others.find_map(|(_, other)| {
                let theirs = super::paths::declared(other).into_iter();
                theirs
                    .map(|(_, theirs)| theirs)
                    .find(|theirs| is_at_or_below(path, theirs) || is_at_or_below(theirs, path))
                    .map(|theirs| (other, theirs))
            });
            if let Some((other, theirs)) = found {
                problems.push(problem(
                    index,
                    disk,
                    &format!("places[{at}].path"),
                    format!(
                                                "{path} and {theirs} of the disk {:?} are equal or nested; a place must not overlap with another \
                                                 disk",
                        other.name
                    ),
                ));
            }
        }
    }
}
