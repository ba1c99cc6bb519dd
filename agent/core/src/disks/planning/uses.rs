//! Whether something else uses the device of a disk.

use super::super::{
    device::Use,
    plan::{Refusal, RefusalKind},
};
use super::{
    case::{Case, SEED_DIRECTORY},
    foreign::partitioned,
};

impl Case<'_> {
    /// Refuses if the device is in use. A container and a private mount of the agent itself are
    /// ignored.
    pub(super) fn free(&self) -> Result<(), Refusal> {
        let ours = |used: &&Use| match used {
            Use::Holder(_) => self.mapping().is_some(),
            Use::Mounted(at) => at.starts_with(&format!("{SEED_DIRECTORY}/")) && self.progress().is_some(),
            // The partitions of an image clone belong to its content.
            Use::Partition(_) => self.clone_state().is_some(),
            Use::Swap | Use::Attached(_) | Use::Opened(_) => false,
        };
        let foreign: Vec<&Use> = self.device.uses.iter().filter(|used| !ours(used)).collect();
        let holders = self
            .device
            .uses
            .iter()
            .filter(|used| matches!(used, Use::Holder(_)))
            .count();
        let Some(first) = foreign.first() else {
            return if holders > 1 {
                Err(self.in_use("several other devices use it".to_owned()))
            } else {
                Ok(())
            };
        };
        let text = match first {
            Use::Mounted(at) if self.disk.binds.iter().any(|bind| bind.path == *at) => {
                return Err(self.only_bound(at));
            }
            Use::Mounted(at) => format!("it is mounted at {at}"),
            Use::Swap => "it is active swap".to_owned(),
            Use::Holder(device) => format!("{device} uses it"),
            Use::Attached(user) => format!("{user} uses it"),
            Use::Opened(process) => format!("the process {process} has it open for writing"),
            Use::Partition(_) => return Err(partitioned(self)),
        };
        Err(self.in_use(text))
    }

    /// Refusal for a disk with a mounted place whose own mount is missing: it was unmounted
    /// manually.
    fn only_bound(&self, at: &str) -> Refusal {
        let whole = self.disk.mount_point.as_deref().unwrap_or_default();
        let text = format!("it is mounted at {at}");
        self.refuse(
            RefusalKind::InUse,
            format!("{}: {text}, but not at {whole}", self.device.node()),
            format!("unmount it there, or remount the whole filesystem at {whole}; then `virtfleet-agent apply disks`"),
            vec![("use", text)],
        )
    }

    fn in_use(&self, text: String) -> Refusal {
        self.refuse(
            RefusalKind::InUse,
            format!("{}: {text}", self.device.node()),
            "end that use (`lsblk`, `findmnt`, `swapon --show`, `losetup`, `fuser -v`), or change `match` or `mountPoint`",
            vec![("use", text)],
        )
    }
}
