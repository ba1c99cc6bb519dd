//! systemd units of the disks: start them and ask for their state.

use virtfleet_agent_host::{
    Change, CommandError, CommandOutput, Commands, Service, Services as _, Systemctl, Tool,
};

use super::provisioner::DiskProvisioner;

/// Starts a unit and does not wait.
pub(super) fn queue(provisioner: &DiskProvisioner<'_>, unit: &str) -> Result<(), CommandError> {
    Systemctl(By(provisioner.commands)).change(unit, Change::Start)
}

/// What a unit is doing.
pub(super) fn active(provisioner: &DiskProvisioner<'_>, unit: &str) -> Result<Service, CommandError> {
    Systemctl(By(provisioner.commands)).show(unit)
}

/// Runs commands as the provisioner does.
struct By<'e>(&'e dyn Commands);

impl Commands for By<'_> {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        self.0.run(tool)
    }
}
