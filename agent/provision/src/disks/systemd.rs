//! systemd units of the disks: starts them and reads their state.

use virtfleet_agent_host::{
    Change, CommandError, CommandOutput, Commands, Service, Services as _, Systemctl, Tool,
};

use super::provisioner::DiskProvisioner;

/// Starts a unit without waiting for it.
pub(super) fn queue(provisioner: &DiskProvisioner<'_>, unit: &str) -> Result<(), CommandError> {
    Systemctl(By(provisioner.commands)).change(unit, Change::Start)
}

/// The state of a unit.
pub(super) fn active(provisioner: &DiskProvisioner<'_>, unit: &str) -> Result<Service, CommandError> {
    Systemctl(By(provisioner.commands)).show(unit)
}

/// Runs commands with the provisioner's [`Commands`].
struct By<'e>(&'e dyn Commands);

impl Commands for By<'_> {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        self.0.run(tool)
    }
}
