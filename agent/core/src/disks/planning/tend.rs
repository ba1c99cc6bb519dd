//! Plans a mounted disk: its files, its owner, its growth.

use virtfleet_wire::settings::DiskFilesystem;

use super::{
    super::{
        journal::{Entry, Progress},
        plan::{DiskStep, Refusal, RefusalKind},
        probe::Probe,
        seen::{Mounted, Seen},
        wanted::Owner,
    },
    Run,
    case::Case,
    placing::History,
};

/// Maximum space that a fully grown filesystem leaves unused on its device, in bytes: twice the
/// size of the last ext4 group or xfs allocation group that is too small to be used (16 MiB for
/// xfs).
pub(super) const MAX_SLACK_BYTES: u64 = 32 << 20;

impl<'a> Run<'a> {
    /// Returns the remaining steps for a disk that is mounted, or active swap, as requested.
    pub(super) fn tend(
        &mut self,
        case: &Case<'a>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let disk = case.disk;
        let mut steps = Vec::new();
        let mounted = case.mounted().filter(|_| disk.filesystem != DiskFilesystem::Swap);
        if let Some(mount) = mounted.filter(|mount| mount.filesystem != disk.filesystem.word()) {
            return Err(case.refuse(
                RefusalKind::ForeignData,
                format!(
                    "{} is mounted at {} and holds {}, but {} is declared",
                    case.device.node(),
                    mount.mount_point,
                    mount.filesystem,
                    disk.filesystem.word()
                ),
                "change `filesystem` to the existing one; the agent never replaces a filesystem",
                vec![("kind", mount.filesystem.clone())],
            ));
        }
        let uuid = uuid(case);
        let several = case.several_devices();
        if let Some(devices) = several {
            notes.push(format!(
                "{} is a device of one filesystem on {devices} devices: it stays mounted and does not grow, and its unit for the next \
                 boot is not changed",
                case.device.node()
            ));
        }
        if let (DiskFilesystem::Btrfs, Probe::Unknown(doubt)) = (disk.filesystem, case.content_probe()) {
            // It may have several devices. The next run decides.
            notes.push(format!(
                "{}: {}; it stays as it is mounted, and nothing else is done now",
                case.device.node(),
                doubt.reason
            ));
            return Ok(steps);
        }
        let binds = self.binds(case, uuid.as_deref(), History::New, notes);
        match uuid {
            Some(uuid) if several.is_some() => steps.extend(unknown(case, &uuid)),
            Some(uuid) => {
                case.check_unique_uuid(&uuid)?;
                steps.extend(unknown(case, &uuid));
                let held: Vec<&str> = binds.refusals.iter().map(|(path, _)| path.as_str()).collect();
                self.files(case, &uuid, &held, &mut steps)?;
            }
            None => notes.push(
                "the UUID of the filesystem is unknown, so no unit for the next boot is written".to_owned(),
            ),
        }
        if let Some(mount) = mounted {
            steps.extend(Self::upkeep(case, mount, notes));
        }
        steps.extend(binds.steps);
        let refusals = binds.refusals.into_iter().map(|(_, refusal)| refusal);
        self.refused_places.extend(refusals);
        Ok(steps)
    }

    /// Steps for options, owner and size of a mounted filesystem.
    fn upkeep(case: &Case<'a>, mount: &Mounted, notes: &mut Vec<String>) -> Vec<DiskStep> {
        let disk = case.disk;
        let mut steps = Vec::new();
        let remount = Self::options(case, mount, notes);
        let asked = |word: &str| disk.options.iter().any(|option| option == word);
        if asked("ro") {
            return steps;
        }
        if mount.options.iter().any(|option| option == "ro") {
            notes.push(format!(
                "{} is mounted read-only, although the settings do not request it",
                mount.mount_point
            ));
            return steps;
        }
        steps.extend(remount);
        steps.extend(ownership(case, disk.owner.as_ref(), mount, notes));
        steps.extend(Self::growth(case, mount.filesystem_bytes, notes));
        steps
    }

    /// Steps that grow a mounted filesystem of `from` bytes; none if its size is unknown, as for
    /// swap.
    pub(super) fn growth(case: &Case<'a>, from: Option<u64>, notes: &mut Vec<String>) -> Vec<DiskStep> {
        let disk = case.disk;
        let (Some(from), Some(path)) = (from, disk.mount_point.as_deref()) else {
            return Vec::new();
        };
        // The partition table has changed: the kernel's end of the partition may be in another
        // partition. Of several devices, the tool would grow the first one only. Notes report both.
        if case.device.fault.is_some() || case.several_devices().is_some() {
            return Vec::new();
        }
        let to = case.bytes();
        let device_bytes = case.mapping().map_or(to, |mapping| mapping.size);
        if from > device_bytes {
            notes.push(format!(
                "the filesystem has {from} bytes, its device {device_bytes}: the volume was shrunk"
            ));
            return Vec::new();
        }
        if to - from <= MAX_SLACK_BYTES.min(to) {
            return Vec::new();
        }
        if !disk.grow {
            notes.push(format!(
                "the filesystem uses {from} of {to} bytes; set grow: true to use all of them"
            ));
            return Vec::new();
        }
        let tool = match disk.filesystem {
            DiskFilesystem::Xfs => "xfs_growfs",
            DiskFilesystem::Btrfs => "btrfs",
            DiskFilesystem::Ext4 | DiskFilesystem::Swap => "resize2fs",
        };
        let mapping = case.mapping().zip(disk.encryption.as_ref());
        let smaller = mapping.filter(|(mapping, _)| mapping.size < mapping.could_be);
        for needed in [Some(tool), smaller.map(|_| "cryptsetup")].into_iter().flatten() {
            if case.seen.missing_tools.contains(needed) {
                notes.push(format!(
                    "the filesystem uses {from} of {to} bytes and cannot grow: {needed} is not installed"
                ));
                return Vec::new();
            }
        }
        let mut steps = Vec::new();
        if let Some((_, encryption)) = smaller {
            steps.push(DiskStep::GrowMapping {
                mapping: case.mapping_name(),
                encryption: encryption.clone(),
            });
        }
        steps.push(DiskStep::Grow {
            place: case.place(),
            filesystem: disk.filesystem.word().to_owned(),
            mount_point: path.to_owned(),
            from,
            to,
        });
        steps
    }
}

/// Step that records a mounted filesystem in the journal, also if something else mounted it: if the
/// disk is blank one day, data was lost.
fn unknown(case: &Case<'_>, uuid: &str) -> Option<DiskStep> {
    let known = |entry: &Entry| entry.progress == Progress::Used && entry.uuid == uuid;
    (!case.entry.is_some_and(known)).then(|| DiskStep::RecordUse {
        place: case.place(),
        uuid: uuid.to_owned(),
        filesystem: case.disk.filesystem.word().to_owned(),
    })
}

/// UUID of the mounted filesystem: from the probe, else from udev, else from the journal.
fn uuid(case: &Case<'_>) -> Option<String> {
    let probe = case
        .mapping()
        .map_or_else(|| case.probe(), |mapping| &mapping.probe);
    if let Probe::HasData(content) = probe
        && content.kind == case.disk.filesystem.word()
    {
        return content.uuid.clone();
    }
    let number = case.number()?;
    let mut known = case
        .seen
        .uuids
        .iter()
        .filter(|(_, carriers)| carriers.iter().any(|carrier| carrier.number == number))
        .map(|(uuid, _)| uuid.clone());
    let only = known.next().filter(|_| known.next().is_none());
    let journaled = || case.entry.filter(|_| case.same).map(|entry| entry.uuid.clone());
    only.or_else(journaled)
}

/// Step that sets the declared owner and mode if they differ. A name without a numeric id is
/// ignored.
pub(super) fn ownership(
    case: &Case<'_>,
    owner: Option<&Owner>,
    mount: &Mounted,
    notes: &mut Vec<String>,
) -> Option<DiskStep> {
    let owner = owner?;
    let has = mount.owner.as_ref()?;
    let differs = |wanted: &Option<String>,
                   has: &Option<String>,
                   names: fn(&Seen, &str) -> Option<u32>,
                   notes: &mut Vec<String>| {
        let (Some(wanted), Some(has)) = (wanted, has) else {
            return false;
        };
        let number = wanted.parse().ok().or_else(|| names(case.seen, wanted));
        if number.is_none() {
            notes.push(format!(
                "the owner {wanted:?} of {} does not exist in this guest",
                mount.mount_point
            ));
        }
        number.is_some_and(|number| number.to_string() != *has)
    };
    let user = differs(&owner.user, &has.user, |seen, name| id(name, &seen.users), notes);
    let group = differs(
        &owner.group,
        &has.group,
        |seen, name| id(name, &seen.groups),
        notes,
    );
    let mode = owner.mode.is_some() && has.mode.is_some() && owner.mode != has.mode;
    (user || group || mode).then(|| DiskStep::Own {
        mount_point: mount.mount_point.clone(),
        owner: owner.clone(),
    })
}

fn id(name: &str, names: &std::collections::BTreeMap<String, u32>) -> Option<u32> {
    names.get(name).copied().or_else(|| (name == "root").then_some(0))
}
