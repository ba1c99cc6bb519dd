//! Input of the rules, and their common conditions.

use regex_lite::Regex;
use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::{Multiqueue, NicSettings},
};

use super::disks::works;
use crate::{
    nic::state::{NicState, NicStatus, QueueStatus},
    virtio::{Device, Disk, Machine, Nic, NicKind},
};

pub(super) struct View<'a> {
    pub(super) machine: &'a Machine,
    pub(super) state: Option<&'a NicState>,
    pub(super) settings: &'a NicSettings,
    /// `None` if no interface is excluded, or if the pattern is invalid, which `check-config`
    /// reports.
    exclude: Option<Regex>,
    /// Number of online vCPUs; 0 if unknown.
    pub(super) cpus: u32,
}

impl<'a> View<'a> {
    pub(super) fn new(machine: &'a Machine, state: Option<&'a NicState>, settings: &'a NicSettings) -> Self {
        let exclude = Some(settings.exclude.as_str()).filter(|text| !text.is_empty());
        Self {
            machine,
            state,
            settings,
            exclude: exclude.and_then(|text| Regex::new(text).ok()),
            cpus: u32::try_from(machine.cpus.online.len()).unwrap_or(u32::MAX),
        }
    }

    /// Whether several queues are useful.
    pub(super) fn several_cpus(&self) -> bool {
        self.cpus > 1
    }

    /// State of an interface after the last run; `None` for another interface of the same name.
    pub(super) fn standing(&self, nic: &Nic) -> Option<&'a NicStatus> {
        let standing = self.state?.nics.get(&nic.name)?;
        (standing.mac == nic.mac).then_some(standing)
    }

    /// Whether the agent manages its number of queues.
    pub(super) fn counts(&self, nic: &Nic) -> bool {
        let excluded = self.exclude.as_ref().is_some_and(|text| text.is_match(&nic.name));
        let standing = self.standing(nic).map(|one| one.standing);
        nic.kind == NicKind::Virtio
            && self.settings.multiqueue != Multiqueue::Off
            && !excluded
            && standing != Some(QueueStatus::Excluded)
    }

    /// Whether the performance of a device matters: not for a read-only disk or one with settings.
    pub(super) fn works(&self, device: &Device) -> bool {
        let disks = self.machine.disks.iter();
        let mut own = disks
            .filter(|disk| disk.device.as_deref() == Some(device.name.as_str()))
            .peekable();
        own.peek().is_none() || own.any(works)
    }

    pub(super) fn nic_of(&self, device: &Device) -> Option<&'a Nic> {
        let mut nics = self.machine.nics.iter();
        nics.find(|nic| nic.device.as_deref() == Some(device.name.as_str()))
    }
}

pub(super) fn of_nic(
    id: &str,
    severity: Severity,
    nic: &Nic,
    reason: &str,
    message: impl Into<String>,
) -> Finding {
    let finding = Finding::new(id, severity, ("Interface", &nic.name), reason, message);
    match &nic.device {
        Some(device) => finding.with("device", device),
        None => finding,
    }
}

pub(super) fn of_disk(
    id: &str,
    severity: Severity,
    disk: &Disk,
    reason: &str,
    message: impl Into<String>,
) -> Finding {
    let mut finding = Finding::new(id, severity, ("BlockDevice", &disk.name), reason, message);
    if let Some(device) = &disk.device {
        finding = finding.with("device", device);
    }
    if let Some(serial) = &disk.serial {
        finding = finding.with("serial", serial);
    }
    finding
}

pub(super) fn of_device(
    id: &str,
    severity: Severity,
    device: &Device,
    reason: &str,
    message: impl Into<String>,
) -> Finding {
    Finding::new(id, severity, ("VirtioDevice", &device.name), reason, message)
        .with("type", device.kind)
        .with("address", &device.address)
}

pub(super) fn of_vm(
    id: &str,
    severity: Severity,
    what: &str,
    reason: &str,
    message: impl Into<String>,
) -> Finding {
    Finding::new(id, severity, ("VM", what), reason, message)
}
