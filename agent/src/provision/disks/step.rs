//! Step `disks` of a pass.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::{
    disks::{
        state::{DisksState, Standing},
        units,
    },
    identity::{cloud::plain, dmi},
    pass::{Outcome, Stage},
};

use super::pass::{Engine, chain};
use crate::{
    host::{Roots, SystemCommands, Unwatched, disk_files, disks::Kinds, read_text},
    provision::steps::{Guest, Report},
    settings::LoadedSettings,
};

/// The VM's UUID, the boot, and whether systemd runs: what an [`Engine`] must be told of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// SMBIOS; empty without.
    pub vm_uuid: String,
    /// The boot.
    pub boot_id: String,
    /// Whether systemd runs the guest, and the root filesystem is its.
    pub systemd: bool,
}

impl Machine {
    /// As the roots show it.
    pub fn of(roots: &Roots) -> Self {
        let line = |path: PathBuf| read_text(&path, 4096).unwrap_or_default();
        Self {
            vm_uuid: dmi::uuid(&line(roots.sys("class/dmi/id/product_uuid"))).unwrap_or_default(),
            boot_id: plain(&line(roots.proc("sys/kernel/random/boot_id"))).unwrap_or_default(),
            systemd: roots.rootfs == Path::new("/") && Path::new("/run/systemd/system").is_dir(),
        }
    }

    /// The engine of a guest.
    ///
    /// `unusable` is what [`unusable`] says of its settings.
    pub fn engine<'a>(&'a self, roots: &'a Roots, unusable: Option<&'a str>) -> Engine<'a> {
        Engine {
            unusable,
            roots,
            commands: &SystemCommands,
            kinds: Kinds::Real,
            witness: &Unwatched,
            vm_uuid: &self.vm_uuid,
            boot_id: &self.boot_id,
            systemd: self.systemd,
        }
    }
}

/// Why it is not known which disks are declared; none when that is known.
///
/// Settings whose section `disks` is wrong are loaded without it, and a file that cannot be read is left out: then nothing is declared, as far as is
/// known, and the gate must not open because of that.
pub fn unusable(roots: &Roots, settings: &LoadedSettings) -> Option<String> {
    if !settings.config.disks.is_empty() {
        return None;
    }
    let wrong = settings.problems.iter().find(|problem| problem.section() == "disks");
    if let Some(problem) = wrong {
        return Some(format!("the section is not used: {problem}"));
    }
    let file = settings.skipped.first()?;
    let gate = disk_files(roots, true).values().any(|text| units::is_gates(text));
    gate.then(|| format!("{file} is left out, and disks were required before"))
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    let machine = Machine::of(guest.roots);
    let unusable = unusable(guest.roots, guest.settings);
    let engine = machine.engine(guest.roots, unusable.as_deref());
    let declared = &guest.settings.config.disks;
    if engine.is_idle(declared) {
        return Report::new(Outcome::Skipped, "no disk is declared");
    }
    match engine.apply(declared, guest.stage == Stage::Reconcile, None) {
        Err(error) => Report::new(Outcome::Failed, chain(error)),
        Ok(None) => Report::new(Outcome::Failed, "there was no plan to compare with"),
        Ok(Some(passed)) => {
            let outcome = if failed(&passed.state) {
                Outcome::Failed
            } else {
                Outcome::Ok
            };
            Report::new(outcome, summary(&passed.state))
        }
    }
}

/// Whether something failed, or something that is required is not in place.
pub(crate) fn failed(state: &DisksState) -> bool {
    state.error.is_some()
        || !state.absent().is_empty()
        || state.disks.iter().any(|disk| disk.standing == Standing::Failed)
}

/// One line.
pub(crate) fn summary(state: &DisksState) -> String {
    if let Some(error) = &state.error {
        return error.clone();
    }
    let mut parts: Vec<String> = Standing::ALL
        .iter()
        .filter_map(|standing| {
            let of = state.disks.iter().filter(|disk| disk.standing == *standing);
            let count = of.count();
            (count > 0).then(|| format!("{count} {}", standing.word()))
        })
        .collect();
    let reasons = state.disks.iter().filter(|disk| disk.standing != Standing::Ready);
    parts.extend(reasons.map(|disk| format!("{}: {}", disk.name, disk.reason())));
    let done: Vec<String> = state
        .disks
        .iter()
        .filter(|disk| !disk.done.is_empty())
        .map(|disk| format!("{}: did {}", disk.name, disk.done.join(", ")))
        .collect();
    parts.extend(done);
    if parts.is_empty() {
        parts.push("what was declared before is taken out".to_owned());
    }
    parts.join("; ")
}
