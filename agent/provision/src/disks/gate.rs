//! The start gate of containerd and kubelet: it opens when every required disk is in place.

use virtfleet_agent_core::disks::{
    DiskStep,
    binds::mount_points,
    plan,
    state::{DiskStatus, DisksState},
    units,
};
use virtfleet_agent_host::{
    MountsError, Roots, Tool, disk_files, disk_mounts, disk_unit_file_there, own_program, read_text,
};
use virtfleet_agent_state::DISKS_STATE;
use virtfleet_wire::settings::{DiskFilesystem, DiskSettings};

use crate::engine::error_chain;

use super::{
    files,
    provisioner::DiskProvisioner,
    session::Session,
    step_result::{Effect, StepError},
    systemd::{active, queue},
    unread,
};

/// Why the start gate stays closed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Required disks are not in place.
    #[error(
        "{}; containerd and kubelet do not start without; to boot without them: {} on the kernel's command line",
        .0.join("; "),
        units::GATE_OFF
    )]
    Absent(Vec<String>),
    /// The required disks are unknown.
    #[error(transparent)]
    Mounts(#[from] MountsError),
}

/// Checks that every required disk is in place now, and returns their number. `unusable` is the
/// result of [`super::unusable`]: if it is set, the required disks are unknown.
///
/// # Errors
/// See [`CheckError`].
pub fn check(
    roots: &Roots,
    boot_id: &str,
    declared: &[DiskSettings],
    unusable: Option<&str>,
) -> Result<usize, CheckError> {
    let required: Vec<&DiskSettings> = declared.iter().filter(|disk| disk.required).collect();
    let cmdline = read_text(&roots.proc("cmdline"), 64 << 10).unwrap_or_default();
    if cmdline
        .split_ascii_whitespace()
        .any(|word| word == units::GATE_OFF)
    {
        return Ok(0);
    }
    if let Some(reason) = unusable {
        return Err(CheckError::Absent(vec![format!(
            "it is not known which disks are required: {reason} (virtfleet-agent check-config)"
        )]));
    }
    if required.is_empty() {
        return Ok(0);
    }
    let mounts = disk_mounts(roots)?;
    let state = DISKS_STATE.read(roots, boot_id).map_err(|error| {
        if error.is_absent() {
            "no reconcile run has inspected it in this boot (sudo virtfleet-agent apply disks)".to_owned()
        } else {
            format!("{DISKS_STATE}: {error}")
        }
    });
    let absent: Vec<String> = required
        .iter()
        .filter_map(|disk| {
            let reason = match &state {
                Err(reason) => reason.clone(),
                Ok(state) => match state.disks.iter().find(|other| other.name == disk.name) {
                    None => "it was declared since the last reconcile run (sudo virtfleet-agent apply disks)"
                        .to_owned(),
                    Some(state) if state.standing != DiskStatus::Ready => {
                        format!("{}: {} ({})", state.standing.word(), state.reason(), state.next())
                    }
                    Some(_) => {
                        let paths = mount_points(disk)
                            .into_iter()
                            .filter(|_| disk.filesystem != DiskFilesystem::Swap);
                        let is_free = |path: &String| mounts.iter().all(|mount| mount.mount_point != *path);
                        let gone: Vec<String> = paths.filter(is_free).collect();
                        (!gone.is_empty()).then(|| format!("it was unmounted from {}", gone.join(", ")))?
                    }
                },
            };
            Some(format!("disk {}: {reason}", disk.name))
        })
        .collect();
    if absent.is_empty() {
        Ok(required.len())
    } else {
        Err(CheckError::Absent(absent))
    }
}

/// The start gate's files, written by a run before it observed any device.
#[derive(Debug, Default)]
pub(super) struct GateFiles {
    /// At least one file was written.
    pub(super) written: bool,
    /// systemd has read the files.
    pub(super) read: bool,
    /// Files that were not written, with the reason.
    pub(super) failures: Vec<String>,
}

/// Writes the start gate's files if the settings require a disk. If a later part of the run fails
/// or hangs, containerd and kubelet still do not start on the root disk. Only a plan, which has
/// observed everything, removes the files.
pub(super) fn write(provisioner: &DiskProvisioner<'_>, declared: &[DiskSettings]) -> GateFiles {
    let mut gate = GateFiles::default();
    let (wanted, problems) = provisioner.checked(declared);
    if !provisioner.systemd || !plan::required(&wanted, &problems) {
        return gate;
    }
    for step in plan::gate(true, &disk_files(provisioner.roots, true), &own_program()) {
        let DiskStep::WriteFile { path, text } = &step else {
            continue;
        };
        provisioner.fail_points.at(&format!("- before {}", step.word()));
        match files::put(provisioner.roots, path, text) {
            Ok(effect) => gate.written |= effect == Effect::Changed,
            Err(StepError(reason)) => gate.failures.push(format!("{}: {reason}", step.word())),
        }
        provisioner.fail_points.at(&format!("- after {}", step.word()));
    }
    gate
}

impl GateFiles {
    /// Passes the files that were written before there was a plan to the session.
    pub(super) fn hand_over(self, session: &mut Session<'_>) {
        session.unread |= self.written && !self.read;
        session.changed |= self.written;
        session.failures.extend(self.failures);
    }
}

/// Makes systemd read the start gate's new files, and queues the gate. The gate is ordered after
/// provisioning. containerd and kubelet wait only for provisioning, so the gate must be queued
/// before provisioning ends, even if it ends by a timeout or a panic.
pub(super) fn queue_first(provisioner: &DiskProvisioner<'_>, gate: &mut GateFiles) {
    if let Err(error) = unread::reload(provisioner) {
        gate.failures.push(error_chain(error));
        return;
    }
    gate.read = true;
    if let Err(error) = queue(provisioner, units::GATE) {
        gate.failures.push(error_chain(error));
    }
}

/// Starts the gate's unit. At boot, and in the run that wrote the gate, it is always started, so
/// that it holds back queued services. Later (`only_passable`) it is started only if the gate can
/// open. With `waiting`, the services that wait for it are started too, once it can open.
pub(super) fn open(
    provisioner: &DiskProvisioner<'_>,
    state: &DisksState,
    only_passable: bool,
    waiting: bool,
) {
    if !provisioner.systemd || !disk_unit_file_there(provisioner.roots, units::GATE) {
        return;
    }
    let Ok(gate) = active(provisioner, units::GATE) else {
        return;
    };
    if !gate.loaded || matches!(gate.active.as_str(), "active" | "activating") {
        return;
    }
    let passed = state.error.is_none() && state.absent().is_empty();
    if only_passable && !passed {
        return;
    }
    let mut units_to_start = vec![units::GATE];
    if waiting && passed {
        units_to_start.extend(units::GATED.iter().filter(|unit| waits(provisioner, unit)));
    }
    for unit in units_to_start {
        if let Err(error) = queue(provisioner, unit) {
            tracing::warn!(unit, %error, "cannot be started");
        }
    }
}

/// True if the unit should run and does not.
fn waits(provisioner: &DiskProvisioner<'_>, unit: &str) -> bool {
    let idle = active(provisioner, unit)
        .is_ok_and(|service| service.loaded && matches!(service.active.as_str(), "inactive" | "failed"));
    let tool = Tool::new("systemctl").args(["is-enabled", "--quiet", "--", unit]);
    idle && provisioner.commands.run(&tool).is_ok_and(|done| done.success())
}
