//! The dependencies of a run over the declared disks.

use virtfleet_agent_core::disks::{
    Wanted, binds, units,
    wanted::{self, WantedProblem},
};
use virtfleet_agent_host::{
    Commands, FailPoints, JournalStore, NoFailPoints, Roots, SystemCommands,
    disks::{Disks, Kinds},
};
use virtfleet_wire::settings::DiskSettings;

use crate::{engine::error_chain, machine::BootIdentity};

/// Dependencies of a run over the disks of one guest.
#[derive(Clone, Copy)]
pub struct DiskProvisioner<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// Runs the tools.
    pub commands: &'a dyn Commands,
    /// Which devices count as disks.
    pub kinds: Kinds,
    /// Fail point, reached between effects.
    pub fail_points: &'a dyn FailPoints,
    /// The VM's SMBIOS UUID; empty if it has none.
    pub vm_uuid: &'a str,
    /// Identity of the current boot.
    pub boot_id: &'a str,
    /// True if systemd is the guest's init.
    pub systemd: bool,
    /// Why the declared disks are unknown, as returned by [`super::unusable`].
    pub unusable: Option<&'a str>,
}

impl<'a> DiskProvisioner<'a> {
    /// The dependencies of a run over the disks of the running guest. `unusable` is the result of
    /// [`super::unusable`] for its settings.
    pub fn of_guest(roots: &'a Roots, boot: &'a BootIdentity, unusable: Option<&'a str>) -> Self {
        Self {
            roots,
            commands: &SystemCommands,
            kinds: Kinds::Real,
            fail_points: &NoFailPoints,
            vm_uuid: &boot.vm_uuid,
            boot_id: &boot.boot_id,
            systemd: boot.systemd,
            unusable,
        }
    }

    pub(super) fn disks(&self) -> Disks<'a> {
        Disks {
            roots: self.roots,
            commands: self.commands,
            kinds: self.kinds,
        }
    }

    /// The declared disks whose settings are valid, and the problems of the others.
    pub(super) fn checked(&self, declared: &[DiskSettings]) -> (Vec<Wanted>, Vec<WantedProblem>) {
        let (wanted, mut problems) = wanted::check(declared);
        // One of them may be required, so the start gate stays closed.
        problems.extend(self.unusable.map(|reason| WantedProblem {
            disk: String::new(),
            required: true,
            path: "disks".to_owned(),
            message: reason.to_owned(),
        }));
        (wanted, problems)
    }

    /// The journal, unless it lies on a disk that is or was declared.
    pub(super) fn off_disks(
        &self,
        store: Option<JournalStore>,
        declared: &[DiskSettings],
    ) -> Result<Option<JournalStore>, String> {
        let files = virtfleet_agent_host::disk_files(self.roots, self.systemd);
        let before = files.values().flat_map(|text| units::places_of(text));
        let now: Vec<String> = declared.iter().flat_map(binds::mount_points).collect();
        let places: Vec<&str> = now.iter().map(String::as_str).chain(before).collect();
        store
            .map(|store| store.off(&places))
            .transpose()
            .map_err(error_chain)
    }

    /// True if there is nothing to do: no disk is declared, and no file or journal entry of earlier
    /// declarations is left.
    pub fn is_idle(&self, declared: &[DiskSettings]) -> bool {
        declared.is_empty()
            && self.unusable.is_none()
            && virtfleet_agent_host::disk_files(self.roots, self.systemd)
                .values()
                .all(|text| {
                    units::disk_of(text).is_none()
                        && !units::is_gates(text)
                        && !text.contains("# virtfleet disk ")
                })
    }
}
