//! The step `disks`.

use virtfleet_agent_core::{
    disks::{
        Plan,
        state::{DiskStatus, DisksState},
        units,
    },
    pass::RunOutcome,
};
use virtfleet_agent_host::{Roots, disk_files};
use virtfleet_agent_state::settings::LoadedSettings;

use super::{known, provisioner::DiskProvisioner};
use crate::{
    engine::{Mode, RunResult, report},
    guest::{Guest, Report},
    machine::BootIdentity,
};

/// Why the declared disks are unknown; none if they are known.
///
/// Settings with an invalid section `disks` are loaded without it, and an unreadable file is
/// skipped. The loaded settings then declare no disk, and the start gate must not open because of
/// that.
pub fn unusable(roots: &Roots, settings: &LoadedSettings) -> Option<String> {
    if !settings.config.disks.is_empty() {
        return None;
    }
    let wrong = settings
        .problems
        .iter()
        .find(|problem| problem.section() == "disks");
    if let Some(problem) = wrong {
        return Some(format!("the section is not used: {problem}"));
    }
    let file = settings.skipped.first()?;
    let gate = disk_files(roots, true).values().any(|text| units::is_gates(text));
    gate.then(|| format!("{file} is left out, and disks were required before"))
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    let boot = BootIdentity::of(guest.roots);
    let unusable = unusable(guest.roots, guest.settings);
    let provisioner = DiskProvisioner {
        fail_points: guest.lock,
        ..DiskProvisioner::of_guest(guest.roots, &boot, unusable.as_deref())
    };
    let declared = &guest.settings.config.disks;
    if provisioner.is_idle(declared) {
        known::remember_undeclared(&provisioner);
        return Report::new(RunOutcome::Skipped, "no disk is declared");
    }
    let outcome = |result: &RunResult<Plan, DisksState>| {
        if failed(&result.state) {
            RunOutcome::Failed
        } else {
            RunOutcome::Ok
        }
    };
    let result = provisioner.run(declared, Mode::of_stage(guest.stage, None));
    report(result, outcome, DisksState::summary)
}

/// True if something failed, or a required disk is not in place.
pub fn failed(state: &DisksState) -> bool {
    state.error.is_some()
        || !state.absent().is_empty()
        || state.disks.iter().any(|disk| disk.standing == DiskStatus::Failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::gate, *};

    use virtfleet_agent_state::settings;

    const HEAD: &str = "HEAD";

    #[test]
    fn an_invalid_section_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            procfs: dir.path().join("proc"),
            ..Roots::default()
        };
        let file = dir.path().join("agent.yaml");
        let said = |text: &str| {
            let head = format!(
                "apiVersion: {}\nkind: {}\n",
                virtfleet_wire::settings::CONFIG_API_VERSION,
                virtfleet_wire::settings::AGENT_CONFIG_KIND
            );
            fs::write(&file, text.replace(HEAD, &head)).unwrap();
            let settings = settings::load(&roots, Some(&file));
            (unusable(&roots, &settings), settings.config.disks)
        };
        let good = "disks: [{name: data, match: {serial: s}, filesystem: ext4, mountPoint: /srv}]\n";
        assert_eq!(said(HEAD).0, None);
        assert_eq!(said(&format!("{HEAD}{good}")).0, None);
        let (reason, disks) = said(&format!("{HEAD}{}", good.replace("ext4", "7")));
        assert!(
            disks.is_empty() && reason.as_ref().is_some_and(|reason| reason.contains("disks")),
            "{reason:?}"
        );
        // The start gate stays closed, and the run has something to do.
        let refused = gate::check(&roots, "boot", &[], reason.as_deref())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("not known which disks"), "{refused}");
        assert_eq!(gate::check(&roots, "boot", &[], None).unwrap(), 0);
        let boot = BootIdentity::default();
        let is_idle = |reason| DiskProvisioner::of_guest(&roots, &boot, reason).is_idle(&[]);
        assert!(!is_idle(reason.as_deref()));
        assert!(is_idle(None));
        // A skipped file counts only if disks were required before.
        assert_eq!(said("{").0, None);
        for (path, text) in units::gate_files("") {
            let path = roots.root(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert!(said("{").0.is_some());
        assert_eq!(said(HEAD).0, None);
    }
}
