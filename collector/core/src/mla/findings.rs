//! Findings about streams of samples. They appear when a problem lasts and stay until it has been
//! over for a while, so that a restart of an endpoint reports nothing. Pure; the caller passes the
//! time.

use std::collections::BTreeMap;

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    delivery::StreamDelivery,
    status::{
        DropReason, QueueStatusView, RefusalReason, StreamName, StreamState, TargetErrorReason, TargetStatus,
    },
};
use crate::{
    findings::{
        self, MLA_ENDPOINT_REFUSES, MLA_ENDPOINT_UNREACHABLE, MLA_PAGE_OVER_LIMIT, MLA_QUEUE_GROWING,
        MLA_SAMPLES_DROPPED,
    },
    pull_result::UnixMs,
};

/// Minimum age of the oldest sample in a queue that is reported as growing.
const MIN_GROWING_AGE_MS: u64 = 5 * 60_000;
/// Interval over which two sizes of a queue are compared.
const GROWTH_INTERVAL_MS: u64 = 5 * 60_000;
/// Time for which requests must fail until the endpoint is reported as unreachable.
const MIN_DOWN_MS: u64 = 2 * 60_000;
/// Time for which losses are reported after the last one.
const LOSS_NOTICE_MS: u64 = 15 * 60_000;
/// Maximum findings about pages of the VMs of one user cluster in one namespace: a tenant hides
/// only its own. `virtfleetctl mla targets` lists all.
const MAX_PAGE_FINDINGS: usize = 10;
/// Step in which a queue's fill is reported, in hundredths: a finding should not change all the
/// time.
const FILL_STEP_PERCENT: u64 = 10;

/// What lasts of each stream.
#[derive(Debug, Default)]
pub struct MlaFindings {
    streams: BTreeMap<StreamName, StreamWatch>,
    deliveries: BTreeMap<StreamName, StreamDelivery>,
}

#[derive(Debug, Default)]
struct StreamWatch {
    /// Time and bytes of the queue that its size is compared with.
    reference: Option<(UnixMs, u64)>,
    is_growing: bool,
    dropped: LossWatch,
    refused: LossWatch,
    overflowed: LossWatch,
    /// Time since when requests fail.
    down_since: Option<UnixMs>,
}

/// A counter of lost samples.
#[derive(Debug, Default)]
struct LossWatch {
    counter: u64,
    last_ms: Option<UnixMs>,
}

impl LossWatch {
    /// Whether the counter has grown within [`LOSS_NOTICE_MS`].
    fn update(&mut self, counter: u64, now: UnixMs) -> bool {
        if counter > self.counter {
            self.last_ms = Some(now);
        }
        self.counter = counter;
        self.last_ms
            .is_some_and(|last| now.saturating_sub(last) < LOSS_NOTICE_MS)
    }
}

impl MlaFindings {
    /// The findings at `now`, sorted by id and subject.
    pub fn update<'a>(
        &mut self,
        queues: &[QueueStatusView],
        targets: impl IntoIterator<Item = &'a TargetStatus>,
        now: UnixMs,
    ) -> Vec<Finding> {
        self.streams
            .retain(|name, _| queues.iter().any(|queue| queue.stream == *name));
        let mut found = Vec::new();
        self.deliveries.clear();
        for queue in queues {
            let watch = self.streams.entry(queue.stream.clone()).or_default();
            let (of_stream, delivery) = watch.update(queue, now);
            if queue.state != StreamState::NotConfigured {
                found.extend(of_stream);
            }
            self.deliveries.insert(queue.stream.clone(), delivery);
        }
        let mut counts = BTreeMap::new();
        found.extend(targets.into_iter().filter_map(|target| {
            let about = about_page(target)?;
            let count = counts.entry((&target.cluster, &target.vm.namespace)).or_insert(0);
            *count += 1;
            (*count <= MAX_PAGE_FINDINGS).then_some(about)
        }));
        found.sort_by(|a, b| (&a.id, &a.subject).cmp(&(&b.id, &b.subject)));
        found
    }

    /// What becomes of the samples of each stream, as of the last [`MlaFindings::update`].
    pub fn deliveries(&self) -> &BTreeMap<StreamName, StreamDelivery> {
        &self.deliveries
    }
}

impl StreamWatch {
    fn update(&mut self, queue: &QueueStatusView, now: UnixMs) -> (Vec<Finding>, StreamDelivery) {
        self.compare_size(queue, now);
        let is_dropping = self.dropped.update(queue.dropped.lost(), now);
        let is_refusing = self.refused.update(queue.refused.total(), now);
        let overflowed = queue.dropped.queue_full.saturating_add(queue.dropped.too_old);
        let is_full = self.overflowed.update(overflowed, now);
        match queue.is_endpoint_up() {
            Some(false) => drop(self.down_since.get_or_insert(now)),
            _ => self.down_since = None,
        }
        let is_down = self
            .down_since
            .is_some_and(|since| now.saturating_sub(since) >= MIN_DOWN_MS);
        let is_refused = is_refusing || queue.state == StreamState::Refused;
        let mut found = Vec::new();
        found.extend(self.is_growing.then(|| growing(queue)));
        found.extend(is_dropping.then(|| dropped(queue)));
        found.extend(is_refused.then(|| refuses(queue)));
        let is_down = is_down && queue.state == StreamState::Retrying;
        found.extend(is_down.then(|| unreachable(queue)));
        let delivery = StreamDelivery::of(queue, is_refused, is_full, is_down, now);
        (found, delivery)
    }

    /// A queue grows if its samples are old and it is larger than it was an interval before. It
    /// stops growing when it has become smaller over an interval, or has only new samples.
    fn compare_size(&mut self, queue: &QueueStatusView, now: UnixMs) {
        let is_old = queue.oldest_age_ms(now) >= MIN_GROWING_AGE_MS;
        if !is_old {
            self.is_growing = false;
        }
        match self.reference {
            Some((at, bytes)) if now.saturating_sub(at) >= GROWTH_INTERVAL_MS => {
                self.is_growing =
                    is_old && (queue.bytes > bytes || (self.is_growing && queue.bytes == bytes));
                self.reference = Some((now, queue.bytes));
            }
            Some((at, _)) if at <= now => {}
            // The first size, or the clock was set back.
            _ => self.reference = Some((now, queue.bytes)),
        }
    }
}

/// A finding about a stream. The evidence `cluster` shows it to its tenant, and to no other.
fn about(queue: &QueueStatusView, id: &str, reason: &str, message: String) -> Finding {
    let (subject, name) = match queue.stream.cluster() {
        Some(cluster) => ("UserCluster", cluster.to_string()),
        None => ("Stream", queue.stream.to_string()),
    };
    let finding = Finding::new(id, Severity::Warning, (subject, &name), reason, message);
    match queue.stream.cluster() {
        Some(cluster) => finding.with("cluster", cluster),
        None => finding,
    }
    .with("endpoint", queue.endpoint.as_deref().unwrap_or("-"))
}

fn growing(queue: &QueueStatusView) -> Finding {
    let fill = queue
        .bytes
        .saturating_mul(100)
        .checked_div(queue.limit_bytes)
        .unwrap_or_default();
    let fill = fill / FILL_STEP_PERCENT * FILL_STEP_PERCENT;
    let message = format!(
        "the queue of the stream {} grows and is {fill}% full or more: its endpoint accepts fewer samples than arrive; \
         when the queue is full, its oldest samples are dropped",
        queue.stream
    );
    about(queue, MLA_QUEUE_GROWING, "QueueGrowing", message)
        .with("fillPercent", fill)
        .with("limitBytes", queue.limit_bytes)
        .remedy(
            "virtfleetctl mla queues -o wide shows rates and errors; check the endpoint's load and limits, or raise the \
             queue's size",
        )
}

fn counted<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let texts: Vec<&str> = counts
        .filter(|(_, samples)| *samples > 0)
        .map(|(reason, _)| reason)
        .collect();
    texts.join(", ")
}

fn dropped(queue: &QueueStatusView) -> Finding {
    let reasons = DropReason::ALL.iter().filter(|reason| !reason.is_about_page());
    let reasons = counted(reasons.map(|reason| (reason.as_str(), queue.dropped.get(*reason))));
    let message = format!(
        "samples of the stream {} were dropped before they were sent: {reasons}",
        queue.stream
    );
    about(queue, MLA_SAMPLES_DROPPED, "SamplesDropped", message)
        .with("reasons", reasons)
        .remedy(
            "virtfleetctl mla queues -o wide shows the number for each reason; queue_full and too_old: repair the \
             endpoint, or raise the queue's size and age; write_failed and corrupt: check the collector's volume; \
             memory: find the receivers that do not answer, or the slow volume",
        )
}

fn refuses(queue: &QueueStatusView) -> Finding {
    let reasons = RefusalReason::ALL.iter();
    let reasons = counted(reasons.map(|reason| (reason.as_str(), queue.refused.get(*reason))));
    let mut message = format!(
        "the endpoint of the stream {} refuses samples for good: {reasons}",
        queue.stream
    );
    if let Some(error) = queue.last_error.as_ref().filter(|error| error.status.is_some()) {
        message.push_str("; it answers: ");
        message.push_str(&error.message);
    }
    about(queue, MLA_ENDPOINT_REFUSES, "EndpointRefuses", message)
        .with("reasons", reasons)
        .remedy(
            "these samples are lost; compare the endpoint's limits and credentials with the stream's settings: \
             virtfleetctl mla queues -o wide",
        )
}

fn unreachable(queue: &QueueStatusView) -> Finding {
    let mut message = format!("requests of the stream {} to its endpoint fail", queue.stream);
    if let Some(error) = &queue.last_error {
        message.push_str(": ");
        message.push_str(&error.message);
    }
    about(queue, MLA_ENDPOINT_UNREACHABLE, "EndpointUnreachable", message).remedy(
        "samples wait in the queue; check that the endpoint runs, that the network allows the connection, and that \
         the certificates are valid: virtfleetctl mla queues -o wide",
    )
}

/// A page that was not sent, or samples of one.
fn about_page(target: &TargetStatus) -> Option<Finding> {
    let vm = &target.vm;
    let (reason, message, remedy) = match &target.error {
        Some(error) if error.reason == TargetErrorReason::OverLimit => (
            "PageOverLimit",
            format!(
                "the metrics page of {vm} exceeds a limit, so no sample of it is sent: {}",
                error.message
            ),
            "in the guest, virtfleet-agent metrics shows what has grown, often a text file of metrics; or raise the \
             limit of the stream",
        ),
        None if target.unsent > 0 => (
            "SamplesNotSent",
            format!(
                "samples on the metrics page of {vm} are not sent: after relabelling they exceed a limit, or have the \
                 labels of another sample of the page"
            ),
            "in the guest, virtfleet-agent metrics shows series that are exported twice; or correct the rules in \
             relabel of the stream; virtfleetctl mla queues -o wide counts these samples",
        ),
        _ => return None,
    };
    let finding = findings::vm(MLA_PAGE_OVER_LIMIT, Severity::Warning, vm, reason, message);
    let finding = match &target.cluster {
        Some(cluster) => finding.with("cluster", cluster),
        None => finding,
    };
    Some(finding.with("namespace", &vm.namespace).remedy(remedy))
}

#[cfg(test)]
mod tests;
