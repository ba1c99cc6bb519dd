//! `virtfleetctl history`: CPU use and pressure of one VM over hours or days, a line for each
//! series, and in words why points are missing.

use virtfleet_collector_core::{
    longer_history::{LongerHistoryView, RATE_SECONDS},
    usage::Share,
    usage_history::UsageHistoryView,
};

use super::{ViewOptions, hosts::BAD_PERCENT, sheet::Sheet, story::time};
use crate::ctl::{
    client::ApiResponse,
    fail::Fail,
    table::{Cell, Table, Tone},
    text::age,
};

/// Characters of a sparkline, from zero to 100 %.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A part of a sparkline in which no point is known.
const UNKNOWN: char = '·';
/// Points of one character, and the same for `-o wide`.
const POINTS_PER_CHAR: usize = 3;
const POINTS_PER_CHAR_WIDE: usize = 2;

/// A series of the history. `true`: its share should be small.
type Series = (&'static str, bool, fn(&UsageHistoryView) -> &Vec<Option<Share>>);

/// In the order of the web page.
const SERIES: [Series; 5] = [
    ("CPU steal", true, |usage| &usage.cpu_steal),
    ("CPU pressure", false, |usage| &usage.cpu_pressure),
    ("memory pressure", true, |usage| &usage.memory_pressure),
    ("I/O pressure", false, |usage| &usage.io_pressure),
    ("CPU used", false, |usage| &usage.cpu_used),
];

pub(in crate::ctl) fn history(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let history: LongerHistoryView = answer.read()?;
    let usage = &history.usage;
    let mut sheet = Sheet::new(options);
    let step = age(usage.step_ms / 1000);
    let end = time(end_ms(usage)).unwrap_or_default();
    sheet.line(&format!(
        "The last {}, until {end}. A point is the largest share within {step}, of rates over {}.",
        age(span_ms(usage) / 1000),
        age(RATE_SECONDS)
    ));
    let known = |(_, _, column): &&Series| column(usage).iter().any(Option::is_some);
    if SERIES.iter().any(|one| known(&one)) {
        sheet.table(&table(usage, options));
        let points = points_per_char(options);
        sheet.line(&format!(
            "Each character is {}, the oldest first: {} is 100 % of the time, {UNKNOWN} is not known.",
            age(usage.step_ms / 1000 * points as u64),
            LEVELS[LEVELS.len() - 1],
        ));
    }
    for line in reasons(&history) {
        sheet.line(&line);
    }
    Ok(sheet.finish())
}

fn points_per_char(options: &ViewOptions) -> usize {
    if options.wide {
        POINTS_PER_CHAR_WIDE
    } else {
        POINTS_PER_CHAR
    }
}

/// Time of the last point.
fn end_ms(usage: &UsageHistoryView) -> u64 {
    usage.end_ms.saturating_add(usage.step_ms)
}

/// Time of all points.
fn span_ms(usage: &UsageHistoryView) -> u64 {
    usage.step_ms.saturating_mul(usage.cpu_steal.len() as u64)
}

fn table(usage: &UsageHistoryView, options: &ViewOptions) -> Table {
    let mut headers = vec!["SERIES", "LAST", "MIN", "MEAN", "MAX", "MAX-AT", "OVER-TIME"];
    if options.wide {
        headers.insert(6, "POINTS");
    }
    let mut table = Table::new(&headers);
    for (name, should_be_small, column) in SERIES {
        let all = column(usage);
        let known: Vec<u16> = all.iter().flatten().map(|share| share.milli()).collect();
        let max = known.iter().max().copied();
        let is_bad = should_be_small && max.is_some_and(|max| max >= BAD_PERCENT * 10);
        let tone = if is_bad { Tone::Bad } else { Tone::Plain };
        // Prometheus may not have the samples of the last seconds yet.
        let last = all
            .iter()
            .rev()
            .take(2)
            .flatten()
            .next()
            .map(|share| share.milli());
        let sum: u64 = known.iter().copied().map(u64::from).sum();
        let mean = sum.checked_div(known.len() as u64);
        let at = max.and_then(|max| {
            all.iter()
                .rposition(|one| one.is_some_and(|one| one.milli() == max))
        });
        let mut row = vec![
            Cell::new(name),
            Cell::maybe(last.map(percent)),
            Cell::maybe(known.iter().min().copied().map(percent)),
            Cell::maybe(mean.and_then(|mean| u16::try_from(mean).ok()).map(percent)),
            Cell::toned(max.map(percent).unwrap_or_default(), tone),
            Cell::maybe(at.and_then(|at| minute_of(usage, at))),
        ];
        if options.wide {
            row.push(Cell::new(format!("{} of {}", known.len(), all.len())));
        }
        row.push(if known.is_empty() {
            Cell::toned("no samples", Tone::Dim)
        } else {
            Cell::new(sparkline(all, points_per_char(options)))
        });
        table.rows.push(row);
    }
    table
}

/// Thousandths as a percentage with at most one decimal.
fn percent(milli: u16) -> String {
    match milli % 10 {
        0 => format!("{}%", milli / 10),
        tenth => format!("{}.{tenth}%", milli / 10),
    }
}

/// When a point ends, to the minute.
fn minute_of(usage: &UsageHistoryView, point: usize) -> Option<String> {
    let points_after = usage.cpu_steal.len().checked_sub(point + 1)? as u64;
    let at = end_ms(usage).checked_sub(points_after * usage.step_ms)?;
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at).ok()?).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

/// The largest known share of each `points` points.
fn sparkline(all: &[Option<Share>], points: usize) -> String {
    let levels = all.chunks(points).map(|part| {
        let max = part.iter().flatten().max();
        max.map_or(UNKNOWN, |share| {
            let level = usize::from(share.milli()) * LEVELS.len();
            LEVELS[level.div_ceil(1000).saturating_sub(1)]
        })
    });
    levels.collect()
}

/// Why points are missing, and what to do.
fn reasons(history: &LongerHistoryView) -> Vec<String> {
    let usage = &history.usage;
    let end = end_ms(usage);
    let empty: Vec<&str> = SERIES
        .iter()
        .filter(|(_, _, column)| column(usage).iter().all(Option::is_none))
        .map(|(name, _, _)| *name)
        .collect();
    let is_empty = empty.len() == SERIES.len();
    let start = end.saturating_sub(span_ms(usage));
    let first_ms = usage.step_ms + RATE_SECONDS * 1000;
    let mut lines = Vec::new();
    match history.created_ms {
        Some(created) if is_empty && end < created.saturating_add(first_ms) => {
            lines.push(format!(
                "No point yet: the VM was created {} ago, and the first point needs {}. A shorter --range \
                 has one earlier.",
                age(end.saturating_sub(created) / 1000),
                age(first_ms / 1000)
            ));
            return lines;
        }
        Some(created) if start < created => lines.push(format!(
            "The VM was created at {}: an earlier VM of this name is not shown.",
            time(created).unwrap_or_default()
        )),
        None if is_empty => lines.push(
            "The manifest of the VM does not say when it was created: only readers of the whole fleet see \
             histories of such a VM."
                .to_owned(),
        ),
        _ => {}
    }
    if is_empty {
        lines.extend(
            [
                "Prometheus has no samples of this VM in this time. Check:",
                "- its agent: virtfleetctl why NAME",
                "- that node_cpu_seconds_total has the labels namespace and name (docs/page.md), and that \
                 prometheus.labels of the collector's settings fit: virtfleet-collector doctor",
            ]
            .map(str::to_owned),
        );
    } else if !empty.is_empty() {
        let names = empty.join(", ");
        lines.push(if empty.contains(&"CPU used") {
            format!("Prometheus has no samples for {names}: it does not scrape node_cpu_seconds_total.")
        } else {
            format!(
                "Prometheus has no samples for {names}: the guest's kernel does not report it \
                 (/proc/pressure, boot parameter psi=1), or node_pressure_* is not scraped."
            )
        });
    }
    lines
}
