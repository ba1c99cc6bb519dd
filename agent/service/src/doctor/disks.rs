//! The declared disks: one line each, with the next command.

use virtfleet_agent_core::disks::state::{DiskState, DiskStatus};
use virtfleet_wire::finding::{Finding, Severity};

use super::{CheckResult, CheckStatus, Seen};

/// One line for each group of disks with equal UUIDs or labels, declared or not.
pub(super) fn duplicates(seen: &Seen) -> Vec<CheckResult> {
    let line = |finding: &Finding| CheckResult {
        status: CheckStatus::Fail,
        what: format!("disks {}", finding.subject.name),
        detail: finding.message.clone(),
        next: finding.remedy.clone(),
    };
    seen.duplicates.iter().map(line).collect()
}

pub(super) fn disks(seen: &Seen) -> Vec<CheckResult> {
    let declared = &seen.settings.config.disks;
    if declared.is_empty() {
        return Vec::new();
    }
    let state = match &seen.disks {
        Ok(state) => state,
        Err(reason) => {
            return vec![CheckResult {
                status: CheckStatus::Warn,
                what: "disks".to_owned(),
                detail: reason.clone(),
                next: "sudo virtfleet-agent plan disks".to_owned(),
            }];
        }
    };
    let mut lines = Vec::new();
    lines.extend(state.error.as_ref().map(|error| CheckResult {
        status: CheckStatus::Fail,
        what: "disks".to_owned(),
        detail: error.clone(),
        next: "sudo virtfleet-agent plan disks".to_owned(),
    }));
    lines.extend(declared.iter().map(|declared| {
        let what = format!("disk {}", declared.name);
        match state.disks.iter().find(|disk| disk.name == declared.name) {
            Some(disk) => {
                let worst = state.findings.iter().filter(|finding| is_health(finding, disk));
                one(what, disk, worst.max_by_key(|finding| finding.severity))
            }
            None => CheckResult {
                status: CheckStatus::Warn,
                what,
                detail: "declared since the last reconcile run".to_owned(),
                next: "sudo virtfleet-agent apply disks".to_owned(),
            },
        }
    }));
    lines
}

/// True for a problem of a disk that is in place. Notes and refusals already have their line from
/// [`one`].
fn is_health(finding: &Finding, disk: &DiskState) -> bool {
    disk.standing == DiskStatus::Ready
        && finding.subject.name == disk.name
        && finding.severity >= Severity::Warning
}

fn one(what: String, disk: &DiskState, wrong: Option<&Finding>) -> CheckResult {
    if let Some(wrong) = wrong {
        return CheckResult {
            status: if wrong.severity == Severity::Critical {
                CheckStatus::Fail
            } else {
                CheckStatus::Warn
            },
            what,
            detail: wrong.message.clone(),
            next: wrong.remedy.clone(),
        };
    }
    let status = match disk.standing {
        DiskStatus::Ready => CheckStatus::Ok,
        // The disk may be plugged in later.
        DiskStatus::Missing | DiskStatus::Pending if !disk.required => CheckStatus::Warn,
        _ => CheckStatus::Fail,
    };
    let place = if disk.mount_point.is_empty() {
        disk.filesystem.clone()
    } else {
        format!("{} at {}", disk.filesystem, disk.places_text())
    };
    let detail = match (disk.standing, disk.reason()) {
        (DiskStatus::Ready, reason) if reason.is_empty() => format!("{}: {place}", disk.device),
        (DiskStatus::Ready, reason) => format!("{}: {place}; {reason}", disk.device),
        (standing, reason) => format!("{}: {reason}", standing.word()),
    };
    CheckResult {
        status,
        what,
        detail,
        next: disk.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_disk_with_a_finding_is_not_ok() {
        let disk = DiskState {
            name: "data".into(),
            standing: DiskStatus::Ready,
            ..DiskState::default()
        };
        let finding = |severity, name: &str| {
            Finding::new(
                "disk-space",
                severity,
                ("Disk", name),
                "SpaceNearlyFull",
                "97 % full",
            )
            .remedy("du")
        };
        for (severity, name, status) in [
            (Severity::Info, "data", CheckStatus::Ok),
            (Severity::Warning, "data", CheckStatus::Warn),
            (Severity::Critical, "data", CheckStatus::Fail),
            (Severity::Critical, "other", CheckStatus::Ok),
        ] {
            let finding = finding(severity, name);
            let wrong = is_health(&finding, &disk).then_some(&finding);
            let line = one("disk data".into(), &disk, wrong);
            assert_eq!(line.status, status, "{severity:?} {name}");
            assert_eq!(line.next == "du", wrong.is_some());
        }
    }
}
