//! `virtfleetctl status`: the fleet in ten lines.

use virtfleet_collector_core::{
    fleet_status::{FleetStatus, HealthCount, LabelSummary, SickVm},
    health::{HealthCause, HealthVerdict},
};
use virtfleet_runtime::exit::Code;

use super::{ViewOptions, sheet::Sheet, verdict_tone};
use crate::ctl::{
    client::ApiResponse,
    fail::Fail,
    table::{Cell, Table, Tone},
    text::count,
};

pub(in crate::ctl) fn status(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let status: FleetStatus = answer.read()?;
    let mut sheet = Sheet::new(options);
    let mut fleet = format!("{} ({})", status.verdict.as_str(), count(status.vms, "VM"));
    if status.partial {
        fleet.push_str(", the inventory is incomplete");
    }
    sheet.toned("Fleet", Some(fleet), verdict_tone(status.verdict));
    for verdict in HealthVerdict::ALL.into_iter().rev() {
        let of_verdict: Vec<&HealthCount> = status
            .counts
            .iter()
            .filter(|count| count.verdict == verdict)
            .collect();
        let vms: usize = of_verdict.iter().map(|count| count.vms).sum();
        let causes: Vec<String> = of_verdict
            .iter()
            .filter_map(|count| Some(format!("{} {}", count.cause?.as_str(), count.vms)))
            .collect();
        let text = if causes.is_empty() {
            vms.to_string()
        } else {
            format!("{vms} ({})", causes.join(", "))
        };
        let tone = if vms == 0 {
            verdict_tone(HealthVerdict::Healthy)
        } else {
            verdict_tone(verdict)
        };
        sheet.toned(verdict.as_str(), Some(text), tone);
    }
    let hosts = status.hosts_not_ready.iter();
    let hosts = hosts.map(|host| format!("{} ({}, {})", host.name, host.state, count(host.vms, "VM")));
    let hosts = problems(status.hosts, status.hosts_not_ready_total, hosts.collect());
    sheet.pair("Hosts", Some(hosts));
    let clusters = status.clusters_not_ready.iter();
    let clusters =
        clusters.map(|one| format!("{} ({}, {})", one.name, one.state.as_str(), count(one.vms, "VM")));
    let clusters = problems(
        status.clusters,
        status.clusters_not_ready_total,
        clusters.collect(),
    );
    sheet.pair("Clusters", Some(clusters));
    let found = &status.findings;
    let found = format!(
        "{} critical, {} warning, {} info",
        found.critical, found.warning, found.info
    );
    sheet.pair("Findings", Some(found));
    if let Some(labels) = &status.labels {
        let (line, tone) = labels_line(labels);
        sheet.toned("Labels", Some(line), tone);
    }
    if let Some(mla) = &status.mla {
        let (line, tone) = super::mla::summary_line(mla, options.now);
        sheet.toned("MLA", Some(line), tone);
    }
    if !status.worst.is_empty() {
        sheet.section("Worst");
        sheet.table(&worst(&status.worst));
    }
    Ok(sheet.finish())
}

/// The number of all, and those that are not ready by name.
fn problems(all: usize, total: usize, mut named: Vec<String>) -> String {
    if total == 0 {
        return format!("{all}, all ready");
    }
    if total > named.len() {
        named.push(format!("{} more", total - named.len()));
    }
    format!("{all}, {total} not ready: {}", named.join(", "))
}

/// Labels of Nodes that are not as requested, and why.
fn labels_line(labels: &LabelSummary) -> (String, Tone) {
    let nodes = count(labels.nodes, "Node");
    if labels.not_as_requested == 0 {
        return (format!("{nodes}, all as requested"), Tone::Good);
    }
    let reasons = labels.reasons.iter();
    let reasons: Vec<String> = reasons
        .map(|one| format!("{} {}", one.reason.as_str(), one.nodes))
        .collect();
    let mut line = format!(
        "{nodes}, {} not as requested: {}",
        labels.not_as_requested,
        reasons.join(", ")
    );
    if let Some(error) = &labels.error {
        line = format!("{line}; not written: {error}");
    }
    (line, Tone::Warn)
}

fn worst(vms: &[SickVm]) -> Table {
    let mut table = Table::new(&["VM", "VERDICT", "CAUSE", "REASON", "NEXT"]);
    let row = |vm: &SickVm| {
        vec![
            Cell::new(format!("{}/{}", vm.namespace, vm.name)),
            Cell::toned(vm.verdict.as_str(), verdict_tone(vm.verdict)),
            Cell::maybe(vm.cause.map(HealthCause::as_str)),
            Cell::new(&vm.reason),
            Cell::new(&vm.next),
        ]
    };
    table.rows = vms.iter().map(row).collect();
    table
}

/// The exit code for a response of `/api/v1/status`.
pub(in crate::ctl) fn exit_code(answer: &ApiResponse) -> Code {
    match answer.read::<FleetStatus>().map(|status| status.verdict) {
        Ok(HealthVerdict::Healthy) => Code::Ok,
        Ok(HealthVerdict::Unknown) => Code::HealthUnknown,
        Ok(HealthVerdict::Degraded) => Code::HealthDegraded,
        Ok(HealthVerdict::Critical) => Code::HealthCritical,
        Err(_) => Code::Failure,
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::{fleet_status::LabelProblem, labels::plan::Reason};

    use super::*;

    #[test]
    fn the_line_about_labels_has_the_reasons_and_an_error() {
        let mut labels = LabelSummary {
            nodes: 3,
            ..LabelSummary::default()
        };
        assert_eq!(labels_line(&labels).0, "3 Nodes, all as requested");
        labels.not_as_requested = 2;
        labels.reasons = vec![LabelProblem {
            reason: Reason::NotWritten,
            nodes: 2,
        }];
        labels.error = Some("not allowed".to_owned());
        assert_eq!(
            labels_line(&labels).0,
            "3 Nodes, 2 not as requested: NotWritten 2; not written: not allowed"
        );
    }
}
