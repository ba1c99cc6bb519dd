//! A declared disk with its matched device and all that is known about both.

use std::collections::BTreeSet;

use virtfleet_wire::settings::DiskFilesystem;

use super::super::{
    device::{DevNumber, Device, DeviceId},
    journal::{Entry, Evidence, Journal, Progress},
    keys,
    plan::{FormatIntent, Place, Refusal, RefusalKind},
    probe::{Doubt, Probe},
    seen::{Mapping, Mounted, Seen},
    uuids,
    wanted::{Key, Wanted},
};

/// Directory in which the agent mounts filesystems while it copies files to them. A mount left
/// there is the agent's.
pub(super) const SEED_DIRECTORY: &str = "/run/virtfleet/seed";

pub(super) struct Case<'a> {
    pub(super) disk: &'a Wanted,
    pub(super) key: Key,
    pub(super) device: &'a Device,
    pub(super) seen: &'a Seen,
    pub(super) journal: &'a Journal,
    /// Journal entry of this name.
    pub(super) entry: Option<&'a Entry>,
    /// Whether that entry is about this device, which may have grown since.
    pub(super) same: bool,
    /// Used if there is no probe result.
    unseen: Probe,
}

impl<'a> Case<'a> {
    pub(super) fn new(
        disk: &'a Wanted,
        key: Key,
        device: &'a Device,
        seen: &'a Seen,
        journal: &'a Journal,
    ) -> Self {
        let entry = journal.entries.iter().find(|entry| entry.name == disk.name);
        let same = entry.is_some_and(|entry| {
            (entry.key == key || given(&key, entry)) && entry.device.may_have_become(&device.id)
        });
        Self {
            disk,
            key,
            device,
            seen,
            journal,
            entry,
            same,
            unseen: Probe::Unknown(Doubt {
                reason: "it was not probed".to_owned(),
                passing: true,
            }),
        }
    }

    /// Progress that the journal records for this device.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.entry.filter(|_| self.same).map(|entry| entry.progress)
    }

    pub(super) fn probe(&self) -> &Probe {
        self.seen.probes.get(&self.disk.name).unwrap_or(&self.unseen)
    }

    pub(super) fn id(&self) -> &DeviceId {
        &self.device.id
    }

    /// Name of the LUKS mapping.
    pub(super) fn mapping_name(&self) -> String {
        keys::mapping(&self.disk.name)
    }

    /// The open container, if the disk is declared as encrypted.
    pub(super) fn mapping(&self) -> Option<&'a Mapping> {
        let seen = self.seen;
        self.disk.encryption.as_ref()?;
        seen.mappings.get(&self.mapping_name())
    }

    /// Block device on which the filesystem resides.
    pub(super) fn place(&self) -> Place {
        if self.disk.encryption.is_some() {
            Place::Mapping {
                mapping: self.mapping_name(),
            }
        } else {
            Place::Disk(self.id().clone())
        }
    }

    /// Device number of the block device of the filesystem; `None` for a container that is not
    /// open.
    pub(super) fn number(&self) -> Option<DevNumber> {
        if self.disk.encryption.is_some() {
            self.mapping().map(|mapping| mapping.number)
        } else {
            Some(self.id().number)
        }
    }

    /// Size of that block device in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.mapping().map_or(self.id().size, |mapping| mapping.could_be)
    }

    /// Current mount at the declared mount point.
    pub(super) fn mounted(&self) -> Option<&'a Mounted> {
        let seen = self.seen;
        let path = self.disk.mount_point.as_deref()?;
        seen.mounts.iter().rfind(|mount| mount.mount_point == path)
    }

    /// Whether the disk is in its declared place: the whole filesystem is mounted there, or it is
    /// active swap.
    pub(super) fn in_place(&self) -> bool {
        let Some(number) = self.number() else { return false };
        if self.disk.filesystem == DiskFilesystem::Swap {
            return self.seen.swaps.contains(&number);
        }
        // A subvolume that btrfs mounts by default counts as the whole filesystem. The mount of a
        // btrfs on several devices shows one of them.
        self.mounted().is_some_and(|mount| {
            let btrfs = mount.filesystem == "btrfs";
            mount.number == number && (mount.root == "/" || btrfs)
                || btrfs && self.siblings().any(|other| other == mount.number)
        })
    }

    /// Other devices of the mounted btrfs that the disk is a device of: also partitions that the
    /// settings do not name, and devices of other kinds.
    fn siblings(&self) -> impl Iterator<Item = DevNumber> {
        let this = self.id().number;
        let own = self.seen.btrfs.values().find(|members| members.contains(&this));
        own.into_iter()
            .flatten()
            .copied()
            .filter(move |other| *other != this)
    }

    /// What is on the disk, or in its open container.
    pub(super) fn content_probe(&self) -> &Probe {
        self.mapping()
            .map_or_else(|| self.probe(), |mapping| &mapping.probe)
    }

    /// Number of devices of the btrfs on the disk or in its open container, if it has several.
    pub(super) fn several_devices(&self) -> Option<u64> {
        let written = match self.content_probe() {
            Probe::HasData(content) => content.devices,
            Probe::Blank(_) | Probe::Unknown(_) => None,
        };
        let mounted = 1 + self.siblings().count() as u64;
        Some(written.unwrap_or(1).max(mounted)).filter(|devices| *devices > 1)
    }

    /// Refuses one of several devices of a btrfs. Their UUID is equal by design: none is a copy.
    pub(super) fn one_device(&self) -> Result<(), Refusal> {
        let Some(devices) = self.several_devices() else {
            return Ok(());
        };
        let disk = self.disk;
        let could = disk.filesystem == DiskFilesystem::Btrfs && disk.encryption.is_none();
        let kept = disk.mount_point.as_ref().filter(|_| could).map_or(String::new(), |path| {
            format!(", or mount the filesystem at {path} yourself (e.g. in /etc/fstab): the agent keeps it there")
        });
        Err(self.refuse(
            RefusalKind::SeveralDevices,
            format!(
                "{} is a device of one filesystem (btrfs) on {devices} devices; the agent mounts filesystems on one device",
                self.device.node()
            ),
            format!(
                "declare another disk{kept}. Do not change the UUID of a device: that takes it out of the filesystem"
            ),
            vec![("devices", devices.to_string())],
        ))
    }

    /// Whether the disk was matched by size and order, or by a UUID that the probe must confirm.
    /// Then the agent mounts only filesystems that it made itself.
    pub(super) fn by_position(&self) -> bool {
        matches!(self.key, Key::Position { .. } | Key::Uuid(_))
    }

    pub(super) fn refuse(
        &self,
        kind: RefusalKind,
        message: impl Into<String>,
        remedy: impl Into<String>,
        facts: Vec<(&str, String)>,
    ) -> Refusal {
        Refusal::new(kind, Some(self.id()), message, remedy, facts)
    }

    /// UUID for the new filesystem; `None` if the VM has no UUID of its own.
    pub(super) fn planned_uuid(&self) -> Option<String> {
        uuids::filesystem(&self.seen.vm_uuid, &self.disk.name)
    }

    /// UUID for the new LUKS header.
    pub(super) fn planned_luks(&self) -> Option<String> {
        uuids::luks(&self.seen.vm_uuid, &self.disk.name)
    }

    /// Returns the UUID, or a refusal if there is none.
    pub(super) fn uuid_to_make(&self, uuid: Option<String>) -> Result<String, Refusal> {
        let uuid = uuid.ok_or_else(|| {
            self.refuse(
                RefusalKind::NotEligible,
                "the VM has no SMBIOS UUID, from which the agent derives the UUID of the filesystem",
                "set spec.domain.firmware.uuid of the VM; `virtfleet-agent report` shows the value",
                Vec::new(),
            )
        })?;
        self.unclaimed(&uuid)?;
        Ok(uuid)
    }

    /// Refuses if the journal has the UUID under another name and on another device. A disk that
    /// was made under this name and then renamed in the settings keeps its UUID.
    fn unclaimed(&self, uuid: &str) -> Result<(), Refusal> {
        let claims = |entry: &&Entry| {
            let has = entry.uuid == uuid || entry.luks_uuid.as_deref() == Some(uuid);
            // Without a serial, another disk of the same size cannot be told from this one.
            let exact = entry.device.serial.is_some() || entry.key == self.key;
            let this = exact && entry.device.may_have_become(self.id());
            has && entry.name != self.disk.name && !this
        };
        let Some(entry) = self.journal.entries.iter().find(claims) else {
            return Ok(());
        };
        let (name, other) = (&self.disk.name, &entry.name);
        Err(self.duplicate(
            uuid,
            &format!("the disk {other}"),
            format!(
                                "{} would get the UUID {uuid}, which is derived from the name {name:?}; the journal records it for the \
                                 disk {other:?} on {}, which had that name before",
                self.device.node(),
                entry.key
            ),
            format!("give the new disk another name in the settings; {other:?} keeps its UUID"),
        ))
    }

    /// Refusal of a disk whose UUID is also on `others`.
    fn duplicate(
        &self,
        uuid: &str,
        others: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Refusal {
        self.refuse(
            RefusalKind::DuplicateUuid,
            message,
            remedy,
            vec![("uuid", uuid.to_owned()), ("others", others.to_owned())],
        )
    }

    /// Refusal of a copy: `others` have the same UUID.
    pub(super) fn duplicate_uuid(&self, uuid: &str, others: &str) -> Refusal {
        self.duplicate(
            uuid,
            others,
            format!("the UUID {uuid} is on {} and on {others}", self.device.node()),
            "one is a copy of the other: detach it, or give it another UUID (`tune2fs -U`, `xfs_admin -U`, `btrfstune -u`)",
        )
    }

    /// Refuses if another device has the same UUID.
    pub(super) fn check_unique_uuid(&self, uuid: &str) -> Result<(), Refusal> {
        let own: Vec<DevNumber> = [Some(self.id().number), self.number()]
            .into_iter()
            .flatten()
            .collect();
        let mut others: BTreeSet<String> = BTreeSet::new();
        for carrier in self.seen.uuids.get(uuid).into_iter().flatten() {
            if !own.contains(&carrier.number) {
                others.insert(carrier.name.clone());
            }
        }
        for (name, probe) in &self.seen.probes {
            let same = matches!(probe, Probe::HasData(content) if content.uuid.as_deref() == Some(uuid));
            if same && *name != self.disk.name {
                others.insert(format!("the disk {name}"));
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        let others: Vec<String> = others.into_iter().collect();
        Err(self.duplicate_uuid(uuid, &others.join(", ")))
    }

    /// Refuses if a required tool is missing.
    pub(super) fn tools(&self, programs: &[&str]) -> Result<(), Refusal> {
        let missing: Vec<&str> = programs
            .iter()
            .filter(|program| self.seen.missing_tools.contains(**program))
            .copied()
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(self.refuse(
            RefusalKind::NoTool,
            format!("not installed: {}", missing.join(", ")),
            "install it in the image: e2fsprogs, xfsprogs, btrfs-progs, cryptsetup, util-linux",
            vec![("tools", missing.join(", "))],
        ))
    }

    /// Returns the step that makes something on the disk, as the journal records it.
    pub(super) fn intent(
        &self,
        evidence: Evidence,
        filesystem: &str,
        uuid: &str,
        arguments: Vec<String>,
    ) -> FormatIntent {
        FormatIntent {
            name: self.disk.name.clone(),
            key: self.key.clone(),
            device: self.id().clone(),
            evidence,
            filesystem: filesystem.to_owned(),
            uuid: uuid.to_owned(),
            arguments,
        }
    }
}

/// Whether the disk was matched by the UUID in the entry.
fn given(key: &Key, entry: &Entry) -> bool {
    matches!(key, Key::Uuid(uuid) if entry.uuid == *uuid || entry.luks_uuid.as_ref() == Some(uuid))
}
