//! What a run over the declared disks works with.

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

/// What a run over the disks of one guest works with.
#[derive(Clone, Copy)]
pub struct DiskProvisioner<'a> {
    /// The guest's trees.
    pub roots: &'a Roots,
    /// Runs the tools.
    pub commands: &'a dyn Commands,
    /// Which devices count as disks.
    pub kinds: Kinds,
    /// Is told of each effect.
    pub fail_points: &'a dyn FailPoints,
    /// The VM's SMBIOS UUID; empty when there is none.
    pub vm_uuid: &'a str,
    /// The boot.
    pub boot_id: &'a str,
    /// Whether systemd runs the guest.
    pub systemd: bool,
    /// Why it is not known which disks are declared, as [`super::unusable`] says.
    pub unusable: Option<&'a str>,
}

impl<'a> DiskProvisioner<'a> {
    /// What a run over the disks of the running guest works with. `unusable` is what [`super::unusable`] says of its settings.
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

    /// The declared disks whose settings make sense, and what is wrong with the others.
    pub(super) fn checked(&self, declared: &[DiskSettings]) -> (Vec<Wanted>, Vec<WantedProblem>) {
        let (wanted, mut problems) = wanted::check(declared);
        // Nobody knows whether one of them is required, so that is what is held.
        problems.extend(self.unusable.map(|reason| WantedProblem {
            disk: String::new(),
            required: true,
            path: "disks".to_owned(),
            message: reason.to_owned(),
        }));
        (wanted, problems)
    }

    /// The journal, when it does not lie on a disk that it is about: declared now, or before.
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

    /// Whether there is nothing to do at all: nothing is declared, and nothing of ours is left of what was.
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
