//! Bind mounts: several directories of one disk are mounted at several places.
//!
//! The plan does not know the contents of the filesystem. When a step runs, it creates the
//! directory if it is missing. The journal records which directories were already in use at their
//! places.

use virtfleet_wire::settings::SeedFrom;

use super::{
    super::{
        binds::{Bind, is_directory},
        journal::BindRecord,
        plan::{DiskStep, Refusal, RefusalKind},
        seen::Mounted,
    },
    Run,
    case::Case,
    placing::{History, mount_point, taken},
    tend::ownership,
};

/// Plan for the places of a disk.
#[derive(Debug, Default)]
pub(super) struct Binds {
    pub(super) steps: Vec<DiskStep>,
    /// Refusals by place.
    pub(super) refusals: Vec<(String, Refusal)>,
}

impl<'a> Run<'a> {
    /// Returns the steps for each place of a disk whose filesystem is mounted, or will be by then.
    /// `history` is that of the filesystem.
    pub(super) fn binds(
        &self,
        case: &Case<'a>,
        uuid: Option<&str>,
        history: History,
        notes: &mut Vec<String>,
    ) -> Binds {
        let mut binds = Binds::default();
        let Some(whole) = case.disk.mount_point.as_deref() else {
            return binds;
        };
        let known: &[BindRecord] = match case.entry {
            Some(entry) if history != History::Made && uuid == Some(entry.uuid.as_str()) => &entry.binds,
            _ => &[],
        };
        for bind in &case.disk.binds {
            let record = known
                .iter()
                .find(|record| (&record.directory, &record.path) == (&bind.directory, &bind.path));
            let used = record.is_some_and(|record| record.used);
            let mounts = &self.seen.mounts;
            let there = mounts.iter().rfind(|mount| mount.mount_point == bind.path);
            let steps = match there {
                // Without the filesystem's UUID the journal cannot record anything about it.
                Some(there) => in_place(case, bind, there, used || uuid.is_none(), notes),
                None if uuid.is_none() => Err(no_uuid(case, bind)),
                None if case.several_devices().is_some() => Err(several_devices(case, bind, whole)),
                None => Self::bind(case, bind, whole, used, notes),
            };
            match steps {
                Ok(steps) => binds.steps.extend(steps),
                Err(refusal) => binds.refusals.push((bind.path.clone(), refusal)),
            }
        }
        notes.extend(known.iter().filter_map(|record| withdrawn(case, record)));
        binds
    }

    /// Plans a place where nothing is mounted.
    fn bind(
        case: &Case<'a>,
        bind: &Bind,
        whole: &str,
        used: bool,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DiskStep>, Refusal> {
        let path = bind.path.as_str();
        let under = mount_point(case, path)?;
        let history = if used { History::Used } else { History::New };
        let seeds = case.disk.seed_from == SeedFrom::Existing;
        let copy = Self::must_seed(case, path, under, seeds, history, notes)?;
        let mut steps = Vec::new();
        if !under.exists {
            steps.push(DiskStep::MakeMountPoint {
                path: path.to_owned(),
            });
        }
        steps.push(DiskStep::MakeDirectory {
            mount_point: whole.to_owned(),
            directory: bind.directory.clone(),
            path: path.to_owned(),
            copy,
            owner: bind.owner.clone(),
        });
        steps.push(DiskStep::Bind {
            place: case.place(),
            mount_point: whole.to_owned(),
            directory: bind.directory.clone(),
            path: path.to_owned(),
        });
        Ok(steps)
    }
}

/// The agent writes no unit for a filesystem on several devices, so it mounts no place of it.
fn several_devices(case: &Case<'_>, bind: &Bind, whole: &str) -> Refusal {
    case.refuse(
        RefusalKind::SeveralDevices,
        format!(
            "nothing is mounted at {}: the agent mounts no directory of a filesystem (btrfs) on several devices",
            bind.path
        ),
        format!(
            "mount {whole}/{} there yourself (e.g. with the option `bind` in /etc/fstab): the agent keeps it there",
            bind.directory
        ),
        vec![("path", bind.path.clone())],
    )
}

fn no_uuid(case: &Case<'_>, bind: &Bind) -> Refusal {
    case.refuse(
        RefusalKind::Unreadable,
        format!(
            "nothing is mounted at {}: the UUID of the filesystem is unknown, so the journal cannot record the mount",
            bind.path
        ),
        format!(
            "run the plan again; `blkid --probe {}` shows the filesystem",
            case.device.node()
        ),
        vec![("path", bind.path.clone())],
    )
}

/// Plans a place where something is mounted: the declared directory, or a refusal.
fn in_place(
    case: &Case<'_>,
    bind: &Bind,
    there: &Mounted,
    used: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<DiskStep>, Refusal> {
    let whole = case.mounted().filter(|_| case.in_place());
    if !whole.is_some_and(|whole| bind.is(there, whole)) {
        let message = format!(
            "{}: {} of another filesystem or directory ({}, {}) is mounted there",
            bind.path, there.root, there.filesystem, there.number
        );
        return Err(taken(
            case,
            &bind.path,
            message,
            "unmount it, or change the path in `places`",
        ));
    }
    let mut steps = Vec::new();
    if !used {
        steps.push(DiskStep::RecordBind {
            directory: bind.directory.clone(),
            path: bind.path.clone(),
        });
    }
    let read_only = case.disk.options.iter().any(|option| option == "ro")
        || there.options.iter().any(|option| option == "ro");
    if !read_only {
        // Notes about options that only the next mount changes concern the whole filesystem.
        steps.extend(Run::options(case, there, &mut Vec::new()));
        steps.extend(ownership(case, bind.owner.as_ref(), there, notes));
    }
    Ok(steps)
}

/// Describes a place that is no longer declared but still mounted. It may be in use, so it stays
/// mounted until the next boot.
fn withdrawn(case: &Case<'_>, record: &BindRecord) -> Option<String> {
    let declared = |bind: &Bind| bind.path == record.path;
    let whole = case.mounted().filter(|_| case.in_place())?;
    let mounts = &case.seen.mounts;
    let there = mounts.iter().rfind(|mount| mount.mount_point == record.path)?;
    let ours = is_directory(&record.directory, there, whole);
    (ours && !case.disk.binds.iter().any(declared)).then(|| {
        format!(
            "{} is no longer a place of this disk, and stays mounted until the next boot; its files stay in {}/{}",
            record.path, whole.mount_point, record.directory
        )
    })
}
