//! Plans the mount of an existing or planned filesystem: mount point, files, mount, owner.

use virtfleet_wire::settings::{DiskFilesystem, SeedFrom};

use super::{
    super::{
        journal::Progress,
        plan::{DiskStep, Refusal, RefusalKind},
        probe::Probe,
        seen::MountPoint,
        wanted::Wanted,
    },
    Run,
    case::Case,
};

/// Origin of a filesystem. It decides what happens to files below the mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    /// The current plan makes it.
    Made,
    /// The agent made it before, and it is still empty.
    New,
    /// The agent made it, and the files below the mount point are copied to it.
    Seeded,
    /// The agent mounted it there before.
    Used,
    /// Not made by the agent, or made by the agent on another root disk.
    Adopted,
}

impl History {
    /// Origin according to the journal.
    pub(super) fn of(case: &Case<'_>, uuid: &str, fresh: bool) -> Self {
        let known = case.entry.is_some_and(|entry| entry.uuid == uuid);
        match case.progress().filter(|_| known) {
            Some(Progress::Used) => Self::Used,
            Some(Progress::Seeded) => Self::Seeded,
            Some(_) if fresh => Self::New,
            _ => Self::Adopted,
        }
    }
}

impl<'a> Run<'a> {
    /// Returns the steps that mount a filesystem that is not mounted yet.
    pub(super) fn place(
        &mut self,
        case: &Case<'a>,
        uuid: &str,
        history: History,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let disk = case.disk;
        let mut steps = Vec::new();
        if disk.filesystem == DiskFilesystem::Swap {
            self.files(case, uuid, &[], &mut steps)?;
            steps.push(DiskStep::SwapOn {
                place: case.place(),
                uuid: uuid.to_owned(),
                options: disk.options.clone(),
            });
            return Ok(steps);
        }
        let Some(path) = disk.mount_point.as_deref() else {
            return Ok(steps);
        };
        if let Some(other) = case.mounted() {
            let message = format!(
                "{path}: another filesystem ({}, {}) is mounted there",
                other.filesystem, other.number
            );
            return Err(taken(case, path, message, "unmount it, or change mountPoint"));
        }
        let above = self.above(case, path)?;
        let under = mount_point(case, path)?;
        // Nothing should be below the private mount point of a disk with places.
        let seeds = disk.seed_from == SeedFrom::Existing && disk.binds.is_empty();
        if Self::must_seed(case, path, under, seeds, history, notes)? {
            steps.push(DiskStep::Seed {
                place: case.place(),
                filesystem: disk.filesystem.word().to_owned(),
                mount_point: path.to_owned(),
            });
        }
        let binds = self.binds(case, Some(uuid), history, notes);
        // A disk is mounted at all its places or at none.
        if let Some((_, refusal)) = binds.refusals.into_iter().next() {
            return Err(refusal);
        }
        self.files(case, uuid, &[], &mut steps)?;
        // The mount of a disk above hides the directory that was inspected.
        if !under.exists || above {
            steps.push(DiskStep::MakeMountPoint {
                path: path.to_owned(),
            });
        }
        steps.push(DiskStep::Mount {
            place: case.place(),
            uuid: uuid.to_owned(),
            filesystem: disk.filesystem.word().to_owned(),
            mount_point: path.to_owned(),
            options: disk.options.clone(),
        });
        let writable = !disk.options.iter().any(|option| option == "ro");
        if let Some(owner) = disk.owner.clone().filter(|_| writable) {
            steps.push(DiskStep::Own {
                mount_point: path.to_owned(),
                owner,
            });
        }
        if history != History::Made && writable {
            steps.extend(Self::growth(case, filesystem_bytes(case), notes));
        }
        steps.extend(binds.steps);
        Ok(steps)
    }

    /// Whether this plan mounts a declared disk above the path. Refuses if that disk should be
    /// mounted there and is not.
    fn above(&self, case: &Case<'a>, path: &str) -> Result<bool, Refusal> {
        let place = |other: &'a Wanted| {
            let at = other.mount_point.as_deref()?;
            path.strip_prefix(at)
                .filter(|rest| rest.starts_with('/'))
                .map(|_| (other, at))
        };
        let mut mounted_now = false;
        for (other, at) in self.wanted.iter().filter_map(place) {
            if !self.placed.contains(at) {
                let message = format!(
                    "{path} is on the disk {:?}, which is not mounted in its place",
                    other.name
                );
                return Err(taken(case, path, message, "fix that disk first"));
            }
            let there = self.seen.mounts.iter().any(|mount| mount.mount_point == at);
            mounted_now |= !there;
        }
        Ok(mounted_now)
    }

    /// Whether the files below the mount point are copied first. Refuses if the mount would hide
    /// them and the settings do not permit that.
    pub(super) fn must_seed(
        case: &Case<'a>,
        path: &str,
        under: &MountPoint,
        seeds: bool,
        history: History,
        notes: &mut Vec<String>,
    ) -> Result<bool, Refusal> {
        if let Some(first) = under.busy.first() {
            let message = format!(
                "{path} is in use: {first} has open files below it, and would keep using those on the root disk"
            );
            return Err(taken(
                case,
                path,
                message,
                "stop it, or reboot: at boot the disk is mounted before services start",
            ));
        }
        if under.entries == 0 {
            return Ok(false);
        }
        let hidden = format!(
            "{} entries are below {path} and are hidden while the disk is mounted",
            under.entries
        );
        match history {
            History::Made | History::New if seeds => Ok(true),
            History::Seeded | History::Used => {
                notes.push(hidden);
                Ok(false)
            }
            History::Adopted if seeds => {
                notes.push(format!(
                    "{hidden}: they are not copied, because the disk contains data"
                ));
                Ok(false)
            }
            History::Made | History::New | History::Adopted => Err(taken(
                case,
                path,
                format!("{} entries are in {path} and would be hidden", under.entries),
                "move them away, or set seedFrom: existing",
            )),
        }
    }
}

/// Size of the filesystem according to the probe of the device or the container.
fn filesystem_bytes(case: &Case<'_>) -> Option<u64> {
    let probe = case
        .mapping()
        .map_or_else(|| case.probe(), |mapping| &mapping.probe);
    match probe {
        Probe::HasData(content) if content.kind == case.disk.filesystem.word() => content.filesystem_bytes,
        _ => None,
    }
}

/// State of the mount point. The agent mounts nothing on a path that it did not inspect.
pub(super) fn mount_point<'a>(case: &Case<'a>, path: &str) -> Result<&'a MountPoint, Refusal> {
    let seen = case.seen;
    let Some(under) = seen.mount_points.get(path) else {
        return Err(taken(
            case,
            path,
            format!("{path} was not inspected"),
            "run the plan again",
        ));
    };
    match &under.unusable {
        Some(why) => Err(taken(
            case,
            path,
            format!("{path} cannot be mounted on: {why}"),
            "make it a directory whose path has no symbolic link, or change mountPoint",
        )),
        None => Ok(under),
    }
}

pub(super) fn taken(case: &Case<'_>, path: &str, message: String, remedy: &str) -> Refusal {
    case.refuse(
        RefusalKind::MountPointTaken,
        message,
        remedy,
        vec![("mountPoint", path.to_owned())],
    )
}
