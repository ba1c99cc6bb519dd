//! `virtfleetctl hosts`, `clusters` and `findings`.

use virtfleet_collector_core::view::{ClusterState, ClusterView, HostView, List};

use super::{ViewOptions, severity_tone};
use crate::{
    api::{FindingView, severity_name},
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
    },
};

fn names<T: ToString>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// A number that should be 0, coloured otherwise.
fn bad_unless_zero(number: usize) -> Cell {
    Cell::toned(
        number.to_string(),
        if number == 0 { Tone::Plain } else { Tone::Bad },
    )
}

pub(in crate::ctl) fn hosts(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<HostView> = answer.read()?;
    let mut headers = vec!["NAME", "READY", "REGION", "ZONE", "VMS", "UP", "SILENT"];
    if options.wide {
        headers.push("CLUSTERS");
    }
    let mut table = Table::new(&headers);
    for host in &list.items {
        let ready = match (host.known, host.ready) {
            (false, _) => Cell::toned("missing", Tone::Bad),
            (true, Some(true)) if host.cordoned => Cell::toned("true,cordoned", Tone::Warn),
            (true, Some(true)) => Cell::toned("true", Tone::Good),
            (true, Some(false)) => Cell::toned("false", Tone::Bad),
            (true, None) => Cell::toned("unknown", Tone::Warn),
        };
        let mut row = vec![
            Cell::new(host.name.as_str()),
            ready,
            Cell::maybe(host.region.as_ref()),
            Cell::maybe(host.zone.as_ref()),
            Cell::new(host.vms.to_string()),
            Cell::new(host.agents_up.to_string()),
            bad_unless_zero(host.agents_silent),
        ];
        if options.wide {
            row.push(Cell::new(names(&host.clusters)));
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "No hosts found."))
}

pub(in crate::ctl) fn clusters(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<ClusterView> = answer.read()?;
    let mut headers = vec![
        "NAME",
        "NAMESPACE",
        "STATE",
        "VMS",
        "RUNNING",
        "UP",
        "NODES",
        "NODES-WITHOUT-VM",
    ];
    if options.wide {
        headers.extend(["SOURCE", "ZONES", "NODE-CONDITIONS", "MESSAGE"]);
    }
    let mut table = Table::new(&headers);
    for cluster in &list.items {
        let tone = match cluster.state {
            ClusterState::Ready => Tone::Good,
            ClusterState::Pending | ClusterState::Connecting | ClusterState::Suspended => Tone::Warn,
            ClusterState::Unreachable | ClusterState::Failed | ClusterState::Refused => Tone::Bad,
            ClusterState::Hibernated => Tone::Dim,
        };
        let mut row = vec![
            Cell::new(cluster.name.as_str()),
            Cell::new(cluster.namespace.as_str()),
            Cell::toned(cluster.state.as_str(), tone),
            Cell::new(cluster.vms.to_string()),
            Cell::new(cluster.running.to_string()),
            Cell::new(cluster.agents_up.to_string()),
            Cell::new(cluster.nodes.to_string()),
            bad_unless_zero(cluster.nodes_without_vm),
        ];
        if options.wide {
            row.push(Cell::maybe(cluster.source.as_ref()));
            let zones: Vec<_> = cluster
                .zones
                .iter()
                .map(|(zone, vms)| format!("{zone}={vms}"))
                .collect();
            row.push(Cell::new(zones.join(",")));
            let conditions = cluster.node_conditions.iter();
            let conditions: Vec<_> = conditions.map(|kind| kind.as_str()).collect();
            row.push(Cell::maybe(
                (!conditions.is_empty()).then(|| conditions.join(",")),
            ));
            row.push(Cell::maybe(cluster.message.as_ref()));
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "No user clusters found."))
}

pub(in crate::ctl) fn findings(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<FindingView> = answer.read()?;
    let mut headers = vec!["SEVERITY", "VM", "SUBJECT", "ID", "MESSAGE"];
    if options.wide {
        headers.extend(["REMEDY", "REASON", "SINCE"]);
    }
    let mut table = Table::new(&headers);
    for view in &list.items {
        let finding = &view.finding;
        let vm = view.namespace.as_ref().zip(view.name.as_ref());
        let mut row = vec![
            Cell::toned(severity_name(finding.severity), severity_tone(finding.severity)),
            Cell::maybe(vm.map(|(namespace, name)| format!("{namespace}/{name}"))),
            Cell::new(format!("{}/{}", finding.subject.kind, finding.subject.name)),
            Cell::new(&finding.id),
            Cell::new(&finding.message),
        ];
        if options.wide {
            row.extend([&finding.remedy, &finding.reason, &finding.since].map(Cell::new));
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "No findings."))
}
