//! Files below `/etc`, the start gate, and invalid settings.

use virtfleet_wire::settings::DiskFilesystem;

use super::*;
use crate::disks::{
    device::Device,
    units::{GATED, MARK},
};

fn vdb() -> Device {
    device(1, Some("s-data"))
}

#[test]
fn foreign_files_are_kept_and_old_files_removed() {
    let disk = wanted("data");
    let good = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", blank())]);
    let mut taken = good.clone();
    taken.files.insert(
        "/etc/systemd/system/mnt-data.mount".into(),
        "[Mount]\nWhat=/dev/sdz\n".into(),
    );
    assert_eq!(
        refusal(&one(&disk, &taken, &journal(vec![]))),
        Some(RefusalKind::MountPointTaken)
    );
    let mut old = good.clone();
    old.files.insert(
        "/etc/systemd/system/old.mount".into(),
        format!("[Unit]\n{MARK}data\n"),
    );
    old.files.insert(
        "/etc/systemd/system/others.mount".into(),
        format!("[Unit]\n{MARK}other\n"),
    );
    let removed: Vec<DiskStep> = one(&disk, &old, &journal(vec![]))
        .steps
        .into_iter()
        .filter(|step| matches!(step, DiskStep::RemoveFile { .. }))
        .collect();
    assert_eq!(
        removed,
        [DiskStep::RemoveFile {
            path: "/etc/systemd/system/old.mount".into()
        }]
    );
    let mut renamed = good;
    renamed.files.insert(
        "/etc/systemd/system/mnt-data.mount".into(),
        format!("[Unit]\n{MARK}former\n"),
    );
    assert_eq!(
        words(&one(&disk, &renamed, &journal(vec![]))),
        ["format", "mount"]
    );
}

#[test]
fn without_systemd_disks_are_added_to_fstab() {
    let all = [
        wanted("data"),
        Wanted {
            filesystem: DiskFilesystem::Xfs,
            ..wanted("b")
        },
    ];
    let mut seen = seen(
        &all,
        vec![vdb(), device(2, Some("s-b"))],
        vec![("data", blank()), ("b", blank())],
    );
    seen.systemd = false;
    seen.files
        .insert("/etc/fstab".into(), "UUID=1 / ext4 defaults 0 1\n".into());
    let plan = plan(&all, &[], &seen, &journal(vec![]));
    let texts: Vec<&String> = plan
        .disks
        .iter()
        .flat_map(|disk| &disk.steps)
        .filter_map(|step| match step {
            DiskStep::WriteFile { path, text } => {
                assert_eq!(path, "/etc/fstab");
                Some(text)
            }
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[1].lines().count(), 5);
    assert!(texts[1].starts_with(texts[0].as_str()));
    assert!(texts[0].starts_with("UUID=1 / ext4 defaults 0 1\n"));
}

#[test]
fn start_gate_exists_while_a_disk_is_required() {
    let problem = |required| WantedProblem {
        disk: "x".into(),
        required,
        ..WantedProblem::default()
    };
    let planned = |wanted: &[Wanted], problems: &[WantedProblem], seen: &Seen| {
        plan(wanted, problems, seen, &journal(vec![])).common
    };
    let needed = [Wanted {
        required: true,
        ..wanted("data")
    }];
    let mut seen = seen(&needed, vec![], vec![]);
    let steps = planned(&needed, &[], &seen);
    assert_eq!(steps.len(), 1 + GATED.len());
    assert_eq!(planned(&[], &[problem(true)], &seen), steps);
    assert_eq!(planned(&[wanted("data")], &[problem(false)], &seen), []);
    for step in steps {
        let DiskStep::WriteFile { path, text } = step else {
            panic!()
        };
        seen.files.insert(path, text);
    }
    assert_eq!(planned(&needed, &[], &seen), []);
    let removed = planned(&[wanted("data")], &[], &seen);
    assert_eq!(removed.len(), 1 + GATED.len());
    assert!(removed.iter().all(|step| step.word() == "remove-file"));
    for text in seen.files.values_mut() {
        *text = "[Unit]\n".into();
    }
    assert_eq!(planned(&needed, &[], &seen), [], "a foreign file is kept");
    assert_eq!(planned(&[], &[], &seen), []);
    seen.files.clear();
    seen.systemd = false;
    assert_eq!(planned(&needed, &[], &seen), []);
}

#[test]
fn invalid_settings_refuse_only_that_disk() {
    let problem = |disk: &str, key: &str| WantedProblem {
        disk: disk.into(),
        required: true,
        path: format!("disks[{disk}].{key}"),
        message: "wrong".into(),
    };
    let problems = [problem("x", "a"), problem("x", "b"), problem("", "c")];
    let plan = plan(&[], &problems, &Seen::default(), &journal(vec![]));
    let names: Vec<_> = plan
        .disks
        .iter()
        .map(|disk| (disk.name.as_str(), disk.refusals.len()))
        .collect();
    assert_eq!(names, [("x", 2), ("*", 1)]);
    assert!(plan.is_empty());
    assert_eq!(plan.disks[0].refusals[0].message, "disks[x].a: wrong");
}
