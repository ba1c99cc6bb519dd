//! `virtfleetctl mla`: streams of samples and metrics pages.

use std::fmt::Write as _;

use virtfleet_collector_core::{
    mla::status::{
        DropReason, MlaSummary, QueueStatusView, RefusalReason, StreamCompression, StreamProtocol,
        StreamState,
    },
    view::List,
};
use virtfleet_runtime::exit::Code;

use super::{ViewOptions, agent_tone};
use crate::{
    api::TargetView,
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{bytes, count, since},
    },
};

/// Fill of a queue in hundredths from which it is shown as a problem.
const BAD_FILL_PERCENT: u64 = 50;
/// Text for an empty list.
const NO_STREAMS: &str = "No streams: MLA is not configured.";

fn tone(state: StreamState) -> Tone {
    match state {
        StreamState::Live => Tone::Good,
        StreamState::CatchingUp | StreamState::Retrying => Tone::Warn,
        StreamState::Refused | StreamState::Stopped => Tone::Bad,
        StreamState::NotConfigured => Tone::Dim,
    }
}

/// The last error with its age, if it is newer than the last success; else why the stream does not
/// run.
fn last_error(queue: &QueueStatusView, now: u64) -> Option<String> {
    if let Some(problem) = &queue.problem {
        return Some(problem.clone());
    }
    let error = queue.last_error.as_ref()?;
    if queue.is_endpoint_up() == Some(true) {
        return None;
    }
    Some(format!("{} ago: {}", since(now, error.at_ms), error.message))
}

fn backlog(queue: &QueueStatusView) -> Cell {
    let fill = (queue.bytes.saturating_mul(100)).checked_div(queue.limit_bytes);
    let text = match fill {
        Some(fill) => format!("{} ({fill}%)", bytes(queue.bytes as f64)),
        None => bytes(queue.bytes as f64),
    };
    let is_bad = fill.is_some_and(|fill| fill >= BAD_FILL_PERCENT);
    Cell::toned(text, if is_bad { Tone::Bad } else { Tone::Plain })
}

fn bad_unless_zero(samples: u64) -> Cell {
    let tone = if samples == 0 { Tone::Plain } else { Tone::Bad };
    Cell::toned(samples.to_string(), tone)
}

/// One line for each stream.
pub(in crate::ctl) fn streams(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    if options.wide {
        return queues(answer, options);
    }
    let list: List<QueueStatusView> = answer.read()?;
    let mut table = Table::new(&["STREAM", "STATE", "BACKLOG", "OLDEST", "SAMPLES/S", "LAST-ERROR"]);
    for queue in &list.items {
        table.rows.push(vec![
            Cell::new(queue.stream.to_string()),
            Cell::toned(queue.state.as_str(), tone(queue.state)),
            backlog(queue),
            Cell::maybe(queue.oldest_ms.map(|oldest| since(options.now, oldest))),
            Cell::new(format!("{:.0}", queue.rate_samples_per_s)),
            Cell::maybe(last_error(queue, options.now)),
        ]);
    }
    Ok(options.table(&table, NO_STREAMS))
}

/// The streams with their queues and endpoints.
pub(in crate::ctl) fn queues(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<QueueStatusView> = answer.read()?;
    let mut headers = vec![
        "STREAM",
        "STATE",
        "ENDPOINT",
        "BACKLOG",
        "REQUESTS",
        "SAMPLES",
        "OLDEST",
        "SAMPLES/S",
        "DROPPED",
        "REFUSED",
        "SUCCESS",
    ];
    if options.wide {
        headers.extend(["LIMIT", "BYTES/S", "SENT", "PROTOCOL", "REASONS", "LAST-ERROR"]);
    }
    let mut table = Table::new(&headers);
    for queue in &list.items {
        let mut row = vec![
            Cell::new(queue.stream.to_string()),
            Cell::toned(queue.state.as_str(), tone(queue.state)),
            Cell::maybe(queue.endpoint.as_ref()),
            backlog(queue),
            Cell::new(queue.records.to_string()),
            Cell::new(queue.samples.to_string()),
            Cell::maybe(queue.oldest_ms.map(|oldest| since(options.now, oldest))),
            Cell::new(format!("{:.0}", queue.rate_samples_per_s)),
            bad_unless_zero(queue.dropped.total()),
            bad_unless_zero(queue.refused.total()),
            Cell::maybe(queue.last_success_ms.map(|at| since(options.now, at))),
        ];
        if options.wide {
            let protocol = queue.protocol.map(StreamProtocol::as_str);
            let compression = queue.compression.map(StreamCompression::as_str);
            let protocol: Vec<&str> = protocol.into_iter().chain(compression).collect();
            row.extend([
                Cell::new(bytes(queue.limit_bytes as f64)),
                Cell::new(bytes(queue.rate_bytes_per_s)),
                Cell::new(queue.sent_samples.to_string()),
                Cell::new(protocol.join(",")),
                Cell::new(reasons(queue)),
                Cell::maybe(last_error(queue, options.now)),
            ]);
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, NO_STREAMS))
}

/// Why samples were dropped or refused, with the number for each reason.
fn reasons(queue: &QueueStatusView) -> String {
    let dropped = DropReason::ALL.iter();
    let dropped = dropped.map(|reason| (reason.as_str(), queue.dropped.get(*reason)));
    let refused = RefusalReason::ALL.iter();
    let refused = refused.map(|reason| (reason.as_str(), queue.refused.get(*reason)));
    let counted = dropped.chain(refused).filter(|(_, samples)| *samples > 0);
    let texts: Vec<String> = counted
        .map(|(reason, samples)| format!("{reason}={samples}"))
        .collect();
    texts.join(",")
}

/// The last metrics page of each VM.
pub(in crate::ctl) fn targets(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<TargetView> = answer.read()?;
    let mut headers = vec![
        "NAMESPACE",
        "NAME",
        "CLUSTER",
        "AGENT",
        "SCRAPED",
        "TOOK",
        "SAMPLES",
        "ADDED",
        "DROPPED",
        "ERROR",
    ];
    if options.wide {
        headers.extend(["SIZE", "STREAM", "MESSAGE"]);
    }
    let mut table = Table::new(&headers);
    for target in &list.items {
        let error = target.error.as_ref();
        let mut row = vec![
            Cell::new(target.namespace.as_str()),
            Cell::new(target.name.as_str()),
            Cell::maybe(target.cluster.as_ref()),
            Cell::toned(target.agent.as_str(), agent_tone(target.agent)),
            Cell::maybe(target.last_scrape_ms.map(|at| since(options.now, at))),
            Cell::maybe(target.took_ms.map(|took| format!("{took}ms"))),
            Cell::maybe(target.samples),
            Cell::maybe(target.series_added),
            Cell::maybe(target.dropped_by_relabel),
            Cell::toned(error.map_or("", |error| error.reason.as_str()), Tone::Bad),
        ];
        if options.wide {
            row.extend([
                Cell::maybe(target.page_bytes.map(|size| bytes(size as f64))),
                Cell::new(if target.in_stream { "yes" } else { "no" }),
                Cell::maybe(error.map(|error| &error.message)),
            ]);
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "No VMs found."))
}

/// The exit code for a response of `/api/v1/queues`.
pub(in crate::ctl) fn queues_exit_code(answer: &ApiResponse) -> Code {
    match answer.read::<List<QueueStatusView>>() {
        Ok(list) if list.items.iter().any(|queue| queue.state.needs_action()) => Code::HealthCritical,
        Ok(_) => Code::Ok,
        Err(_) => Code::Failure,
    }
}

/// The line of `status`.
pub(super) fn summary_line(mla: &MlaSummary, now: u64) -> (String, Tone) {
    let mut line = format!("{}, ", count(mla.streams, "stream"));
    if mla.not_live_total == 0 {
        line.push_str("all live");
    } else {
        let mut named: Vec<String> = mla
            .not_live
            .iter()
            .map(|one| format!("{} ({})", one.stream, one.state.as_str()))
            .collect();
        if mla.not_live_total > named.len() {
            named.push(format!("{} more", mla.not_live_total - named.len()));
        }
        write!(line, "{} not live: {}", mla.not_live_total, named.join(", ")).ok();
    }
    if let Some(oldest) = mla.oldest_ms {
        let backlog = bytes(mla.backlog_bytes as f64);
        write!(line, "; backlog {backlog}, oldest {}", since(now, oldest)).ok();
    }
    let tone = match (mla.needs_action(), mla.not_live_total) {
        (true, _) => Tone::Bad,
        (false, 0) => Tone::Good,
        (false, _) => Tone::Warn,
    };
    (line, tone)
}
