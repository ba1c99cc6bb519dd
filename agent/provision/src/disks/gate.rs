//! The gate before containers and kubelet: it is passed when every required disk is in place.

use virtfleet_agent_core::disks::{
    Step,
    binds::mount_points,
    plan,
    state::{DisksState, Standing},
    units,
};
use virtfleet_agent_host::{
    MountsError, Roots, Tool, disk_files, disk_mounts, disk_unit_file_there, own_program, read_text,
};
use virtfleet_agent_state::DISKS_STATE;
use virtfleet_wire::settings::{DiskFilesystem, DiskSettings};

use super::{
    files,
    pass::{Engine, chain},
    session::{Effect, StepError, active, queue},
    unread,
};

/// Why the gate is not passed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Disks are not in place.
    #[error(
        "{}; containerd and kubelet do not start without; to boot without them: {} on the kernel's command line",
        .0.join("; "),
        units::GATE_OFF
    )]
    Absent(Vec<String>),
    /// It is not known.
    #[error(transparent)]
    Mounts(#[from] MountsError),
}

/// Whether every required disk is in place, now; how many there are. `unusable` is what [`super::unusable`] says: then nobody knows.
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
            "no pass has looked at it in this boot (sudo virtfleet-agent apply disks)".to_owned()
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
                    None => {
                        "it was declared since the last pass (sudo virtfleet-agent apply disks)".to_owned()
                    }
                    Some(state) if state.standing != Standing::Ready => {
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

/// What came of writing the gate's files before anything is known of devices.
#[derive(Debug, Default)]
pub(super) struct Stood {
    /// Something was written.
    pub(super) written: bool,
    /// systemd has read it.
    pub(super) read: bool,
    /// What was not, and why.
    pub(super) failures: Vec<String>,
}

/// Writes the gate's files by the settings alone when a disk is required: whatever fails or hangs later, containerd and kubelet do not start on the root disk.
/// They are removed by a plan only, which has seen everything.
pub(super) fn stand(engine: &Engine<'_>, declared: &[DiskSettings]) -> Stood {
    let mut stood = Stood::default();
    let (wanted, problems) = engine.checked(declared);
    if !engine.systemd || !plan::required(&wanted, &problems) {
        return stood;
    }
    for step in plan::gate(true, &disk_files(engine.roots, true), &own_program()) {
        let Step::WriteFile { path, text } = &step else {
            continue;
        };
        engine.witness.at(&format!("- before {}", step.word()));
        match files::put(engine.roots, path, text) {
            Ok(effect) => stood.written |= effect == Effect::Changed,
            Err(StepError(reason)) => stood.failures.push(format!("{}: {reason}", step.word())),
        }
        engine.witness.at(&format!("- after {}", step.word()));
    }
    stood
}

/// Has systemd know of the gate that was just written, and queues it. It comes after provisioning, so whatever ends that, a time that is over or a panic, the
/// gate decides before containerd and kubelet start, which wait for provisioning only.
pub(super) fn hold(engine: &Engine<'_>, stood: &mut Stood) {
    if let Err(error) = unread::reload(engine) {
        stood.failures.push(chain(error));
        return;
    }
    stood.read = true;
    if let Err(error) = queue(engine, units::GATE) {
        stood.failures.push(chain(error));
    }
}

/// Asks systemd for the gate. At boot, and by the pass that has written it, it is asked for in any case, so that it holds back what is queued already; later
/// `only_passable`, when it can be passed now. With `waiting` those that wait for it are started, too, once it can be passed.
pub(super) fn open(engine: &Engine<'_>, state: &DisksState, only_passable: bool, waiting: bool) {
    if !engine.systemd || !disk_unit_file_there(engine.roots, units::GATE) {
        return;
    }
    let Ok(gate) = active(engine, units::GATE) else {
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
        units_to_start.extend(units::GATED.iter().filter(|unit| waits(engine, unit)));
    }
    for unit in units_to_start {
        if let Err(error) = queue(engine, unit) {
            tracing::warn!(unit, %error, "cannot be started");
        }
    }
}

/// Whether it is to run and does not.
fn waits(engine: &Engine<'_>, unit: &str) -> bool {
    let idle = active(engine, unit)
        .is_ok_and(|service| service.loaded && matches!(service.active.as_str(), "inactive" | "failed"));
    let tool = Tool::new("systemctl").args(["is-enabled", "--quiet", "--", unit]);
    idle && engine.commands.run(&tool).is_ok_and(|done| done.success())
}
