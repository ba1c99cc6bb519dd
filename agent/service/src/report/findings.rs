//! Findings of the settings and of the identity. `docs/findings.md` lists the ids.

use virtfleet_agent_state::identity::is_important;
use virtfleet_wire::{
    finding::{Finding, Severity},
    identity::Missing,
    layered::Problem,
};

/// Maximum number of findings of the settings. The last one then counts the others.
pub(super) const MAX_SETTINGS_FINDINGS: usize = 50;
const NOT_APPLIED: &str = "settings-not-applied";

/// One finding per problem.
pub(super) fn of_settings(problems: &[Problem]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = problems
        .iter()
        .take(MAX_SETTINGS_FINDINGS)
        .map(of_problem)
        .collect();
    if problems.len() > MAX_SETTINGS_FINDINGS {
        let message = format!(
            "{} more problems with the settings are not listed",
            problems.len() - MAX_SETTINGS_FINDINGS
        );
        let subject = ("Settings", "(more)");
        findings.push(
            Finding::new(NOT_APPLIED, Severity::Warning, subject, "MoreProblems", message)
                .remedy("virtfleet-agent check-config"),
        );
    }
    findings
}

/// One finding per key that earlier versions had, within the same limit.
pub(super) fn of_ignored(ignored: &[Problem]) -> impl Iterator<Item = Finding> {
    let ignored = ignored.iter().take(MAX_SETTINGS_FINDINGS);
    ignored.map(|key| not_applied(key, Severity::Info, "KeyRemoved"))
}

fn of_problem(problem: &Problem) -> Finding {
    let reason = if problem.path.is_empty() {
        "FileNotApplied"
    } else {
        "ValueNotApplied"
    };
    // Without its certificates the agent serves no client, and without its client list too few.
    let severity = if problem.path.starts_with("server.tls") {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let finding = not_applied(problem, severity, reason);
    match &problem.nearest {
        Some(nearest) => finding.with("nearest", nearest),
        None => finding,
    }
}

fn not_applied(problem: &Problem, severity: Severity, reason: &str) -> Finding {
    let name = if problem.path.is_empty() {
        problem.file.clone()
    } else {
        format!("{}#{}", problem.file, problem.path)
    };
    let subject = ("Settings", name.as_str());
    let finding = Finding::new(NOT_APPLIED, severity, subject, reason, problem.to_string())
        .with("file", &problem.file)
        .remedy("virtfleet-agent check-config");
    if problem.line > 0 {
        finding.with("line", problem.line)
    } else {
        finding
    }
}

/// One finding per missing field without which the guest cannot be identified reliably.
pub(super) fn of_identity(missing: &[Missing]) -> impl Iterator<Item = Finding> {
    missing
        .iter()
        .filter(|missing| is_important(missing))
        .map(|missing| {
            let message = format!("{} is not known: {}", missing.field, missing.reason);
            let subject = ("Identity", missing.field.as_str());
            // Without SMBIOS there is nothing that root could read. The machine-id confirms the
            // machine instead.
            let nothing_there =
                missing.field == "smbiosUuid" && missing.reason.contains("product_uuid: no such file");
            let severity = if nothing_there {
                Severity::Info
            } else {
                Severity::Warning
            };
            Finding::new("identity-incomplete", severity, subject, "FieldMissing", message)
                .with("looked", &missing.reason)
                .remedy(if nothing_there {
                    "nothing to do: this machine shows no SMBIOS"
                } else {
                    remedy(&missing.field)
                })
        })
}

/// The command that provides a field of the identity.
pub(crate) fn remedy(field: &str) -> &'static str {
    match field {
        "smbiosUuid" | "smbiosSerial" => "sudo virtfleet-agent state",
        "machineId" => "sudo systemd-machine-id-setup",
        "hostname" => "hostnamectl",
        _ => "virtfleet-agent doctor",
    }
}
