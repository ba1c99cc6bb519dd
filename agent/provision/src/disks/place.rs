//! Steps `make-mount-point`, `mount`, `swap-on` and `own`.

use std::time::Duration;

use virtfleet_agent_core::disks::{
    journal::{Entry, Evidence, FORMAT, Progress},
    plan::Place,
    units,
    wanted::Owner,
};
use virtfleet_agent_host::{
    Tool, clock, disk_mounts,
    disks::tools::{mount as mount_tool, swap},
    exists, node_number, swapped,
};

use super::{
    places::node,
    session::Session,
    step_result::{Effect, StepError},
};

/// A filesystem or swap area to mount or enable.
#[derive(Clone, Copy)]
pub(super) struct What<'a> {
    pub(super) name: &'a str,
    pub(super) place: &'a Place,
    pub(super) uuid: &'a str,
    pub(super) filesystem: &'a str,
}

pub(super) fn make(session: &mut Session<'_>, path: &str) -> Result<Effect, StepError> {
    let made = virtfleet_agent_host::make_folder(&session.provisioner.roots.root(path))?;
    Ok(if made { Effect::Changed } else { Effect::Unchanged })
}

pub(super) fn mount(
    session: &mut Session<'_>,
    what: What<'_>,
    mount_point: &str,
    options: &[String],
) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    may_be_mounted_on(session, what.name, mount_point)?;
    ready(session, what)?;
    let node = node(session, what.place);
    if provisioner.systemd {
        link(session, what);
        session.start(&format!("{}.mount", units::escape_path(mount_point)))?;
    } else {
        let place = provisioner.roots.root(mount_point);
        mount_tool::mount(provisioner.commands, what.filesystem, options, &node, &place)?;
    }
    session.at(what.name, "mounted");
    let number = node_number(&node);
    let mounts = disk_mounts(provisioner.roots)?;
    let there = mounts.iter().rev().find(|mount| mount.mount_point == mount_point);
    match there {
        Some(there) if Some(there.number) == number => {
            session.mounted.push(mount_point.to_owned());
            Ok(Effect::Changed)
        }
        Some(there) => Err(StepError::new(format!(
            "at {mount_point} device {} is mounted, and not {}",
            there.number,
            node.display()
        ))),
        None => Err(StepError::new(format!(
            "{mount_point} was mounted and is not any more; systemctl status {}.mount",
            units::escape_path(mount_point)
        ))),
    }
}

/// Checks the mount point again: since the plan, other disks were formatted and filled, and one
/// above may have been mounted. Refuses the mount if it would hide files that were not there then,
/// or that were changed after they were copied; the next run copies those again.
pub(super) fn may_be_mounted_on(
    session: &mut Session<'_>,
    name: &str,
    mount_point: &str,
) -> Result<(), StepError> {
    if let Some(copied) = session.copied.get(name) {
        let from = session.provisioner.roots.root(mount_point);
        let busy = virtfleet_agent_host::busy_below(session.provisioner.roots, &from);
        let same = virtfleet_agent_host::stamp_of(&from)? == *copied;
        if same && busy.is_empty() {
            return Ok(());
        }
        session.progress(name, Progress::Seeding)?;
        return Err(StepError::new(if busy.is_empty() {
            format!("{mount_point} was changed after it was copied; the next run copies it again")
        } else {
            format!(
                "{mount_point} is in use by {} since it was copied; stop them, or reboot",
                busy.join(", ")
            )
        }));
    }
    let above = |at: &String| {
        let rest = mount_point.strip_prefix(at.as_str());
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let seen = session.observed.seen.mount_points.get(mount_point);
    // The plan covers what it observed: that is copied, or may be hidden.
    if !session.mounted.iter().any(above) && seen.is_some_and(|seen| seen.entries > 0) {
        return Ok(());
    }
    let mounts = disk_mounts(session.provisioner.roots)?;
    let points: Vec<&str> = mounts.iter().map(|mount| mount.mount_point.as_str()).collect();
    let under = virtfleet_agent_host::mount_point(session.provisioner.roots, mount_point, &points);
    if let Some(why) = under.unusable {
        return Err(StepError::new(format!(
            "{mount_point} cannot be mounted on: {why}"
        )));
    }
    let hides = session
        .entry(name)
        .is_some_and(|entry| matches!(entry.progress, Progress::Seeded | Progress::Used));
    if under.entries == 0 || hides && under.busy.is_empty() {
        return Ok(());
    }
    let busy = if under.busy.is_empty() {
        String::new()
    } else {
        format!(" (in use by {})", under.busy.join(", "))
    };
    Err(StepError::new(format!(
        "{} entries lie in {mount_point}{busy} that the plan has not seen, and would be hidden; see the plan again \
         (virtfleet-agent plan disks)",
        under.entries
    )))
}

pub(super) fn swap_on(
    session: &mut Session<'_>,
    what: What<'_>,
    options: &[String],
) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    ready(session, what)?;
    let node = node(session, what.place);
    if provisioner.systemd {
        link(session, what);
        let path = match what.place {
            Place::Disk(_) => format!("/dev/disk/by-uuid/{}", what.uuid),
            Place::Mapping { mapping } => format!("/dev/mapper/{mapping}"),
        };
        session.start(&format!("{}.swap", units::escape_path(&path)))?;
    } else {
        swap::on(provisioner.commands, options, &node)?;
    }
    session.at(what.name, "swapping");
    let number = node_number(&node);
    if number.is_some_and(|number| swapped(provisioner.roots).is_ok_and(|swaps| swaps.contains(&number))) {
        Ok(Effect::Changed)
    } else {
        Err(StepError::new(format!(
            "{} is not swapped to; cat /proc/swaps",
            node.display()
        )))
    }
}

/// Records that a disk is in use which was mounted by something else.
pub(super) fn remember(session: &mut Session<'_>, what: What<'_>) -> Result<Effect, StepError> {
    ready(session, what)?;
    Ok(Effect::Changed)
}

/// Changes mount options. Device and mount point are both given, so that mount(8) adds no option
/// from fstab.
pub(super) fn remount(
    session: &mut Session<'_>,
    place: &Place,
    mount_point: &str,
    options: &[String],
) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    if let Place::Disk(id) = place {
        session.same(id)?;
    }
    let node = node(session, place);
    mount_tool::remount(
        provisioner.commands,
        options,
        &node,
        &provisioner.roots.root(mount_point),
    )?;
    Ok(Effect::Changed)
}

pub(super) fn own(session: &mut Session<'_>, mount_point: &str, owner: &Owner) -> Result<Effect, StepError> {
    let roots = session.provisioner.roots;
    let changed = virtfleet_agent_host::own(roots, &roots.root(mount_point), owner)?;
    Ok(if changed {
        Effect::Changed
    } else {
        Effect::Unchanged
    })
}

/// Records in the journal that the disk is in use, before others can write to it.
fn ready(session: &mut Session<'_>, what: What<'_>) -> Result<(), StepError> {
    let boot_id = session.provisioner.boot_id;
    let device = match what.place {
        Place::Disk(id) => {
            session.same(id)?;
            Some(id.clone())
        }
        Place::Mapping { .. } => {
            let plans = &session.observed.plan.disks;
            let plan = plans.iter().find(|plan| plan.name == what.name);
            plan.and_then(|plan| plan.device.clone())
        }
    };
    let known = session.entry(what.name).cloned();
    let entry = match (known, device) {
        (Some(mut entry), device) => {
            let before = entry.clone();
            entry.progress = Progress::Used;
            // The records of directories are those of another filesystem.
            if entry.uuid != what.uuid {
                entry.binds.clear();
            }
            what.uuid.clone_into(&mut entry.uuid);
            what.filesystem.clone_into(&mut entry.filesystem);
            entry.device = device.unwrap_or(entry.device);
            boot_id.clone_into(&mut entry.boot_id);
            if entry == before {
                return Ok(());
            }
            entry
        }
        (None, Some(device)) => {
            let plans = &session.observed.plan.disks;
            let key = plans.iter().find(|plan| plan.name == what.name);
            let key = key.and_then(|plan| plan.key.clone());
            Entry {
                format: FORMAT,
                name: what.name.to_owned(),
                key: key.ok_or_else(|| StepError::new("the key that it was found by is unknown"))?,
                progress: Progress::Used,
                device,
                boot_id: boot_id.to_owned(),
                filesystem: what.filesystem.to_owned(),
                uuid: what.uuid.to_owned(),
                luks_uuid: header(session, what.place),
                evidence: Evidence::Found,
                at_ns: clock().realtime_ns,
                arguments: Vec::new(),
                others_wrote: false,
                binds: Vec::new(),
            }
        }
        (None, None) => return Err(StepError::new("its device is unknown")),
    };
    let begun = session
        .entry(what.name)
        .is_some_and(|entry| entry.progress != Progress::Used);
    match session.write(entry) {
        Ok(()) => {}
        Err(error) if begun => return Err(error),
        // Existing data is mounted even if the journal cannot be written: without a journal no disk
        // is formatted.
        Err(StepError(reason)) => {
            tracing::warn!(
                disk = what.name,
                reason,
                "mounted without an entry in the journal"
            );
        }
    }
    session.at(what.name, "used");
    Ok(())
}

/// The UUID of the container of a filesystem.
fn header(session: &Session<'_>, place: &Place) -> Option<String> {
    let Place::Mapping { mapping } = place else {
        return None;
    };
    let mapping = session.observed.seen.mappings.get(mapping);
    mapping.map(|mapping| mapping.luks_uuid.clone())
}

/// Makes udev create the link by which the unit finds a new filesystem. If it fails, the unit's
/// start times out and reports it.
fn link(session: &Session<'_>, what: What<'_>) {
    let Place::Disk(id) = what.place else {
        return;
    };
    let path = format!("/dev/disk/by-uuid/{}", what.uuid);
    if !exists(&session.provisioner.roots.root(path)) {
        let tool = Tool::new("udevadm")
            .args(["trigger", "--action=change", "--settle"])
            .arg(format!("--name-match=/dev/{}", id.name))
            .deadline(Duration::from_secs(30));
        if let Err(error) = session.provisioner.commands.check(&tool) {
            tracing::warn!(%error, "cannot trigger udev for the new filesystem");
        }
    }
}
