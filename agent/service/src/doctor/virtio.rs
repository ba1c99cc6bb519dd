//! The virtio devices: one line for all of them, one for the queues of interfaces, and one per
//! finding, with the next command.

use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::Multiqueue,
};

use super::{CheckResult, CheckStatus, Seen};

const NEXT_COMMAND: &str = "virtfleet-agent virtio";
/// Maximum number of interfaces that are named with their queues.
const MAX_NAMED: usize = 4;

pub(super) fn virtio(seen: &Seen) -> Vec<CheckResult> {
    let virtio = &seen.virtio;
    let told = |finding: &&Finding| finding.severity != Severity::Info;
    let mut lines = vec![devices(seen)];
    lines.extend(queues(seen));
    lines.extend(virtio.findings.iter().filter(told).map(of));
    lines
}

fn devices(seen: &Seen) -> CheckResult {
    let machine = &seen.virtio.machine;
    let limit = machine
        .vectors
        .limit
        .map_or_else(String::new, |limit| format!(" of about {limit}"));
    let remarks = seen.virtio.findings.iter();
    let remarks = remarks.filter(|one| one.severity == Severity::Info).count();
    let devices = match machine.devices.len() {
        0 => "no device".to_owned(),
        1 => "1 device".to_owned(),
        count => format!("{count} devices"),
    };
    let vectors = match machine.vectors.used {
        0 => String::new(),
        used => format!(", {used}{limit} interrupt vectors"),
    };
    let remarks = match remarks {
        0 => String::new(),
        count => format!("; {count} worth knowing: {NEXT_COMMAND}"),
    };
    CheckResult {
        status: CheckStatus::Ok,
        what: "virtio".to_owned(),
        detail: devices + &vectors + &remarks,
        next: String::new(),
    }
}

/// The queues of interfaces. An interface with a problem has a line of its own.
fn queues(seen: &Seen) -> Option<CheckResult> {
    let virtio = &seen.virtio;
    let automatic = seen.settings.config.nic.multiqueue == Multiqueue::Auto;
    let missing = match (&virtio.unusable, &virtio.state) {
        (Some(reason), _) => Some(reason.clone()),
        // With multiqueue not on auto, no run need have inspected them yet.
        (None, None) if automatic => Some("no reconcile run has inspected them in this boot".to_owned()),
        _ => None,
    };
    if let Some(detail) = missing {
        return Some(CheckResult {
            status: CheckStatus::Warn,
            what: "queues".to_owned(),
            detail,
            next: "sudo virtfleet-agent apply nic".to_owned(),
        });
    }
    let nics = &virtio.machine.nics;
    let told: Vec<String> = nics
        .iter()
        .filter_map(|nic| Some(format!("{} {}", nic.name, virtio.queues(nic)?)))
        .collect();
    if told.is_empty() {
        return None;
    }
    let more = told.len().saturating_sub(MAX_NAMED);
    let named = told[..told.len() - more].join(", ");
    let detail = match more {
        0 => named,
        more => format!("{named} and {more} more"),
    };
    Some(CheckResult {
        status: CheckStatus::Ok,
        what: "queues".to_owned(),
        detail,
        next: String::new(),
    })
}

fn of(finding: &Finding) -> CheckResult {
    let what = match finding.subject.kind.as_str() {
        "Interface" => "interface",
        "BlockDevice" => "disk",
        "VirtioDevice" => "device",
        _ => "vm",
    };
    CheckResult {
        status: match finding.severity {
            Severity::Info => CheckStatus::Ok,
            Severity::Warning => CheckStatus::Warn,
            Severity::Critical => CheckStatus::Fail,
        },
        what: format!("{what} {}", finding.subject.name),
        detail: finding.message.clone(),
        next: finding.remedy.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use virtfleet_agent_state::virtio::{Virtio, sample};

    use crate::doctor::{check, tests::healthy};
    use virtfleet_wire::settings::NicSettings;

    fn lines(seen: &Seen) -> Vec<(CheckStatus, String)> {
        let ours = |line: &CheckResult| {
            let words = ["virtio", "queues", "interface", "disk", "device", "vm"];
            line.what
                .split(' ')
                .next()
                .is_some_and(|word| words.contains(&word))
        };
        let lines = check(seen).into_iter().filter(ours);
        lines
            .map(|line| (line.status, format!("{}: {}", line.what, line.detail)))
            .collect()
    }

    #[test]
    fn a_healthy_machine_has_two_lines_and_each_finding_one_more() {
        let mut seen = healthy();
        assert_eq!(
            lines(&seen),
            [
                (
                    CheckStatus::Ok,
                    "virtio: 4 devices, 9 of about 400 interrupt vectors".to_owned()
                ),
                (CheckStatus::Ok, "queues: eth0 2 of 2 queues".to_owned()),
            ]
        );
        let mut machine = sample::machine();
        machine.devices[1].status = Some(15 | 64);
        seen.virtio = Virtio::of(machine, Some(sample::state()), None, &NicSettings::default());
        let told = lines(&seen);
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told[1].1, "queues: eth0 1 of 2 queues (differs)");
        assert_eq!(told[2].0, CheckStatus::Fail);
        assert!(told[2].1.starts_with("device virtio2: "), "{told:?}");
        assert_eq!(
            told[3],
            (
                CheckStatus::Warn,
                "interface eth0: eth0 uses 1 of 2 queues".to_owned()
            )
        );
    }

    #[test]
    fn a_missing_or_unusable_state_is_reported() {
        let mut seen = healthy();
        seen.settings.config.nic.multiqueue = Multiqueue::Auto;
        let no_pass = "queues: no reconcile run has inspected them in this boot";
        assert_eq!(lines(&seen)[1], (CheckStatus::Warn, no_pass.to_owned()));
        seen.virtio.unusable = Some("nic.json: format 9".into());
        assert_eq!(
            lines(&seen)[1],
            (CheckStatus::Warn, "queues: nic.json: format 9".to_owned())
        );
    }

    #[test]
    fn many_interfaces_are_one_line() {
        let mut seen = healthy();
        seen.virtio = Virtio::of(sample::large(64, 1), None, None, &NicSettings::default());
        let told = lines(&seen);
        assert!(told[1].1.ends_with("eth3 1 of 2 queues and 60 more"), "{told:?}");
        assert!(told.len() <= 2 + 50, "{told:?}");
    }
}
