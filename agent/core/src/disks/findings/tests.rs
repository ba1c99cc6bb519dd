use super::*;
use crate::disks::{
    fixtures::{blank, data, device, encrypted, seen, unknown, wanted},
    journal::Journal,
    plan::plan,
    seen::Mounted,
    units::MARK,
    wanted::{Encryption, WantedProblem},
};

fn found(wanted: &[Wanted], problems: &[WantedProblem], seen: &Seen) -> Vec<(String, Severity, String)> {
    let plan = plan(wanted, problems, seen, &Journal::default());
    let findings = findings(wanted, &plan, seen);
    assert!(
        findings
            .iter()
            .all(|finding| finding.id.starts_with("disk-") && finding.subject.kind == "Disk")
    );
    let short = |finding: Finding| (finding.id, finding.severity, finding.subject.name);
    findings.into_iter().map(short).collect()
}

fn about(id: &str, severity: Severity) -> (String, Severity, String) {
    (id.to_owned(), severity, "data".to_owned())
}

#[test]
fn severity_of_a_refusal_depends_on_required() {
    for (required, severity) in [(true, Severity::Critical), (false, Severity::Warning)] {
        let all = [Wanted {
            required,
            ..wanted("data")
        }];
        let there = |probe| seen(&all, vec![device(1, Some("s-data"))], vec![("data", probe)]);
        assert_eq!(
            found(&all, &[], &there(unknown())),
            [about("disk-unreadable", severity)]
        );
        let problem = WantedProblem {
            disk: "data".into(),
            required,
            ..WantedProblem::default()
        };
        assert_eq!(
            found(&[], &[problem], &Seen::default()),
            [about("disk-settings", severity)]
        );
    }
}

#[test]
fn refusal_finding_has_facts_and_evidence_hash() {
    let all = [wanted("data")];
    let seen = seen(
        &all,
        vec![device(1, Some("s-data"))],
        vec![("data", data("", None))],
    );
    let plan = plan(&all, &[], &seen, &Journal::default());
    let finding = findings(&all, &plan, &seen).remove(0);
    assert_eq!(
        (finding.id.as_str(), finding.reason.as_str()),
        ("disk-unknown-data", "UnknownData")
    );
    assert_eq!(finding.evidence["evidence"], plan.disks[0].refusals[0].evidence);
    assert_eq!(
        (
            finding.evidence["serial"].as_str(),
            finding.evidence["device"].as_str()
        ),
        ("s-data", "vdb")
    );
    assert!(finding.evidence.contains_key("digest") && !finding.remedy.is_empty());
}

#[test]
fn pending_steps_are_reported() {
    let all = [wanted("data")];
    let seen = seen(&all, vec![device(1, Some("s-data"))], vec![("data", blank())]);
    // The note says how much was proven.
    let told = [
        about("disk-pending", Severity::Info),
        about("disk-note", Severity::Info),
    ];
    assert_eq!(found(&all, &[], &seen), told);
    let missing = Seen::default();
    assert_eq!(found(&all, &[], &missing), [about("disk-note", Severity::Info)]);
}

#[test]
fn unexpected_read_only_mount_is_critical() {
    for (options, told) in [(vec![], true), (vec!["ro".to_owned()], false)] {
        let all = [Wanted {
            options,
            ..wanted("data")
        }];
        let device = device(1, Some("s-data"));
        let number = device.id.number;
        let mut seen = seen(&all, vec![device], vec![]);
        seen.mounts.push(Mounted {
            mount_point: "/mnt/data".into(),
            number,
            root: "/".into(),
            filesystem: "ext4".into(),
            options: vec!["ro".into()],
            filesystem_bytes: None,
            owner: None,
        });
        let found = found(&all, &[], &seen);
        assert_eq!(found.contains(&about("disk-read-only", Severity::Critical)), told);
    }
}

#[test]
fn tpm_key_and_left_behind_unit_are_reported() {
    let tpm = Encryption {
        key: KeySource::Tpm2,
        recovery: Some("/r".into()),
    };
    let all = [Wanted {
        encryption: Some(tpm),
        ..encrypted("data")
    }];
    assert!(found(&all, &[], &Seen::default()).contains(&about("disk-tpm-volatile", Severity::Info)));
    let mut seen = Seen::default();
    for (path, name) in [
        ("/x/a.mount", "gone"),
        ("/x/a.device.d/50-virtfleet.conf", "gone"),
        ("/x/b.mount", "data"),
    ] {
        seen.files.insert(path.into(), format!("[Unit]\n{MARK}{name}\n"));
    }
    let left: Vec<_> = found(&[wanted("data")], &[], &seen)
        .into_iter()
        .filter(|(id, ..)| id == "disk-left-behind")
        .collect();
    assert_eq!(
        left,
        [("disk-left-behind".to_owned(), Severity::Info, "gone".to_owned())]
    );
}
