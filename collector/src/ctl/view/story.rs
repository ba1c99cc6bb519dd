//! `virtfleetctl events` and `migrations`.

use virtfleet_collector_core::{
    story::{AddressFate, MigrationFelt, MigrationPhase, TimelineKind},
    view::List,
};

use super::{ItemOrder, ViewOptions};
use crate::{
    api::{FleetEvent, FleetMigration},
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{age, since},
    },
};

/// The events, the newest last, as in a log.
pub(in crate::ctl) fn events(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<FleetEvent> = answer.read()?;
    let mut headers = vec!["AGE", "VM", "KIND", "WHAT"];
    if options.wide {
        headers = vec!["AGE", "TIME", "CLUSTER", "INFRA-NODE", "VM", "KIND", "WHAT"];
    }
    let mut table = Table::new(&headers);
    let mut items: Vec<&FleetEvent> = list.items.iter().collect();
    if options.order == ItemOrder::OfApi {
        items.reverse();
    }
    for event in items {
        let entry = &event.entry;
        let mut row = vec![Cell::new(since(options.now, entry.at_ms))];
        if options.wide {
            row.extend([
                Cell::maybe(time(entry.at_ms)),
                Cell::maybe(event.cluster.as_ref()),
                Cell::maybe(event.infra_node.as_ref()),
            ]);
        }
        row.extend([
            Cell::new(format!("{}/{}", event.namespace, event.name)),
            Cell::toned(entry.kind.as_str(), kind_tone(entry.kind)),
            Cell::new(&entry.text),
        ]);
        table.rows.push(row);
    }
    Ok(options.table(&table, "No events since the collector started."))
}

pub(super) fn kind_tone(kind: TimelineKind) -> Tone {
    match kind {
        TimelineKind::Verdict | TimelineKind::Pause | TimelineKind::Restart | TimelineKind::Address => {
            Tone::Warn
        }
        TimelineKind::Finding | TimelineKind::Clock => Tone::Plain,
        TimelineKind::State | TimelineKind::Migration | TimelineKind::Placement => Tone::Dim,
    }
}

/// Milliseconds since 1970 as RFC 3339.
pub(super) fn time(ms: u64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(format!("{time:.0}"))
}

/// The migrations, the newest first.
pub(in crate::ctl) fn migrations(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<FleetMigration> = answer.read()?;
    let mut headers = vec![
        "VM", "PHASE", "SOURCE", "TARGET", "AGE", "DURATION", "PAUSE", "ADDRESS",
    ];
    if options.wide {
        headers.extend(["CLUSTER", "MODE", "CLOCK", "RESTARTED", "OBJECT", "REASON"]);
    }
    let mut table = Table::new(&headers);
    table.rows = list.items.iter().map(|item| migration(item, options)).collect();
    Ok(options.table(&table, "No migrations known."))
}

fn migration(item: &FleetMigration, options: &ViewOptions) -> Vec<Cell> {
    let one = &item.migration;
    // What the guest felt is known once it is over.
    let is_over = matches!(one.phase, MigrationPhase::Succeeded | MigrationPhase::Failed);
    let felt = one.felt.as_ref().filter(|_| is_over);
    let duration = match (one.duration_ms, one.phase) {
        (Some(ms), _) => Some(age(ms / 1000)),
        (None, MigrationPhase::Running) => one.start_ms.map(|start| since(options.now, start)),
        _ => None,
    };
    let begun = Some(one.at_ms()).filter(|at| *at > 0);
    let mut row = vec![
        Cell::new(format!("{}/{}", item.namespace, item.name)),
        Cell::toned(one.phase.as_str(), phase_tone(one.phase)),
        Cell::maybe(one.source.as_ref()),
        Cell::maybe(one.target.as_ref()),
        Cell::maybe(begun.map(|at| since(options.now, at))),
        Cell::maybe(duration),
        felt.map_or_else(|| Cell::new("-"), pause),
        felt.map_or_else(|| Cell::new("-"), address),
    ];
    if options.wide {
        let step = felt.and_then(|felt| felt.clock_step_ms);
        let restarted = felt.map(|felt| if felt.is_restarted { "yes" } else { "no" });
        row.extend([
            Cell::maybe(item.cluster.as_ref()),
            Cell::maybe(one.mode.as_ref()),
            Cell::maybe(step.map(|ms| format!("{:+.1}s", ms as f64 / 1000.0))),
            Cell::maybe(restarted),
            Cell::maybe(one.object.as_ref()),
            Cell::maybe(one.failure_reason.as_ref()),
        ]);
    }
    row
}

fn phase_tone(phase: MigrationPhase) -> Tone {
    match phase {
        MigrationPhase::Succeeded => Tone::Good,
        MigrationPhase::Pending | MigrationPhase::Running => Tone::Warn,
        MigrationPhase::Failed => Tone::Bad,
    }
}

/// The pause that the guest felt; what is not known is no zero.
fn pause(felt: &MigrationFelt) -> Cell {
    match felt.pause_ms {
        Some(ms) => Cell::toned(format!("{}s", (ms + 500) / 1000), Tone::Warn),
        None if felt.is_reported && felt.detects_pauses => Cell::new("none"),
        None => Cell::toned("unknown", Tone::Dim),
    }
}

fn address(felt: &MigrationFelt) -> Cell {
    let tone = match felt.address {
        AddressFate::Kept => Tone::Good,
        AddressFate::Changed => Tone::Warn,
        AddressFate::Lost => Tone::Bad,
        AddressFate::Unknown => Tone::Dim,
    };
    Cell::toned(felt.address.as_str(), tone)
}
