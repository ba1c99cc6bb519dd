//! Metric families of the queues' status after root's last reconcile run, and of findings.

use std::collections::BTreeSet;

use virtfleet_agent_core::nic::state::{NicState, QueueStatus};
use virtfleet_wire::{
    exposition::{MetricType, Page},
    finding::{Finding, Severity},
};

use super::MAX_EXPORTED;

pub(super) fn write(page: &mut Page, state: &NicState) {
    let mut family = page.family(
        "virtfleet_virtio_nic_standing",
        "Status of the queues of a network interface after root's last reconcile run: 1 for its status, 0 for the others.",
        MetricType::Gauge,
    );
    for (nic, found) in state.nics.iter().take(MAX_EXPORTED) {
        for &standing in QueueStatus::ALL {
            let labels = [("nic", nic.as_str()), ("standing", standing.word())];
            family.sample(&labels, f64::from(u8::from(found.standing == standing)));
        }
    }
    page.counter(
        "virtfleet_virtio_nic_changes_total",
        "Changes to queues of network interfaces in this boot.",
        state.changes as f64,
    );
    page.counter(
        "virtfleet_virtio_nic_rollbacks_total",
        "Changes to queues of network interfaces in this boot that were reverted.",
        state.rollbacks as f64,
    );
}

pub(super) fn findings(page: &mut Page, findings: &[Finding]) {
    let mut family = page.family(
        "virtfleet_virtio_finding",
        "A finding about a virtio device, a network interface or a disk, always 1.",
        MetricType::Gauge,
    );
    // Two subjects of different kinds may have the same name.
    let all: BTreeSet<_> = findings
        .iter()
        // An informational finding is not a problem.
        .filter(|one| one.severity != Severity::Info)
        .map(|one| (&one.subject.name, &one.id, severity(one.severity)))
        .collect();
    for (subject, id, severity) in all.into_iter().take(MAX_EXPORTED) {
        let labels = [("subject", subject.as_str()), ("id", id), ("severity", severity)];
        family.sample(&labels, 1.0);
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::nic::state::NicStatus;

    use super::*;

    #[test]
    fn exactly_one_status_of_an_interface_is_1() {
        let mut state = NicState {
            changes: 3,
            rollbacks: 1,
            ..NicState::default()
        };
        let found = NicStatus {
            standing: QueueStatus::RolledBack,
            ..NicStatus::default()
        };
        state.nics.insert("eth0".to_owned(), found);
        let mut page = Page::new();
        write(&mut page, &state);
        let page = page.to_text();
        let standing = "\nvirtfleet_virtio_nic_standing{nic=\"eth0\",standing=";
        assert_eq!(page.matches(standing).count(), QueueStatus::ALL.len());
        assert!(
            page.contains(&format!("{standing}\"rolled-back\"}} 1\n")),
            "{page}"
        );
        assert_eq!(page.matches("} 1\n").count(), 1, "{page}");
        assert!(page.contains("\nvirtfleet_virtio_nic_changes_total 3\n"));
        assert!(page.contains("\nvirtfleet_virtio_nic_rollbacks_total 1\n"));
    }

    #[test]
    fn a_finding_of_two_subjects_with_one_name_is_one_series() {
        let finding = |kind: &str, severity| {
            Finding::new(
                "virtio-needs-reset",
                severity,
                (kind, "virtio1"),
                "NeedsReset",
                "",
            )
        };
        let mut page = Page::new();
        findings(
            &mut page,
            &[
                finding("Device", Severity::Critical),
                finding("Disk", Severity::Critical),
                finding("Disk", Severity::Warning),
                finding("Disk", Severity::Info),
            ],
        );
        let page = page.to_text();
        let line = "virtfleet_virtio_finding{subject=\"virtio1\",id=\"virtio-needs-reset\",severity=";
        assert_eq!(page.matches(line).count(), 2, "{page}");
        let mut none = Page::new();
        findings(&mut none, &[]);
        assert_eq!(none.samples(), 0);
    }
}
