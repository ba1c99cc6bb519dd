//! What is known of a stream's requests: counters, the last error, its state.

use virtfleet_collector_core::mla::status::{
    DropReason, QueueStatusView, RefusalReason, StreamCompression, StreamError, StreamProtocol, StreamState,
    endpoint_host, status_message,
};
use virtfleet_queue::{self as queue, BacklogStatus};
use virtfleet_remote_write::{Compression, Protocol};

use super::{
    disk::DiskResult,
    send::{SendOutcome, SendResult},
    settings::{StreamName, StreamSettings},
    stream::StreamCounts,
};
use crate::clock::unix_ms;

/// Why a stream does not send although its receiver may answer.
const EXPIRED: &str =
    "the client certificate has expired; samples wait in the queue until there is a new one";

#[derive(Debug)]
pub(super) struct StreamProgress {
    view: QueueStatusView,
    disk_problem: Option<String>,
}

impl StreamProgress {
    pub(super) fn new(name: &StreamName) -> Self {
        Self {
            view: QueueStatusView::new(name.clone(), StreamState::NotConfigured),
            disk_problem: None,
        }
    }

    /// Takes note of work on the queue.
    pub(super) fn worked(&mut self, result: &DiskResult) {
        for dropped in &result.dropped {
            let reason = match dropped.reason {
                queue::DropReason::Full => DropReason::QueueFull,
                queue::DropReason::TooOld => DropReason::TooOld,
                queue::DropReason::Corrupt => DropReason::Corrupt,
            };
            self.view.dropped.add(reason, dropped.samples);
        }
        self.view.dropped.add(DropReason::WriteFailed, result.unwritten);
        if let Some(problem) = &result.problem
            && self.disk_problem.as_ref() != Some(problem)
        {
            tracing::warn!(stream = %self.view.stream, "{problem}");
        }
        self.disk_problem.clone_from(&result.problem);
    }

    /// Takes note of a request with `samples` samples.
    pub(super) fn sent(&mut self, outcome: &SendOutcome, samples: u32) {
        let view = &mut self.view;
        let (message, refused) = match &outcome.result {
            SendResult::Delivered { missing, .. } => {
                view.sent_samples += u64::from(samples - missing.min(&samples));
                view.sent_bytes += outcome.body_bytes;
                view.refused.add(RefusalReason::Partial, (*missing).into());
                view.last_success_ms = Some(unix_ms());
                view.protocol = Some(match outcome.form.protocol {
                    Protocol::V1 => StreamProtocol::V1,
                    Protocol::V2 => StreamProtocol::V2,
                });
                view.compression = Some(match outcome.form.compression {
                    Compression::Snappy => StreamCompression::Snappy,
                    Compression::Zstd => StreamCompression::Zstd,
                });
                return;
            }
            SendResult::Retry { message, .. } => (message, 0),
            SendResult::Refused { samples, message, .. } => (message, *samples),
        };
        if refused > 0 {
            let reason = outcome
                .status
                .map_or(RefusalReason::Other, RefusalReason::of_status);
            view.refused.add(reason, refused.into());
            tracing::warn!(stream = %view.stream, samples = refused, "the receiver refused samples: {message}");
        } else if view.last_error.is_none()
            || view
                .last_success_ms
                .is_some_and(|at| view.last_error.as_ref().is_some_and(|error| error.at_ms <= at))
        {
            tracing::warn!(stream = %view.stream, "cannot send samples; they are kept and sent again: {message}");
        }
        view.last_error = Some(StreamError {
            at_ms: unix_ms(),
            message: status_message(message),
            status: outcome.status,
        });
    }

    /// The status to publish. `refused`: the last request was refused; `failures`: failed attempts
    /// in a row; `is_behind`: the queue has older requests.
    pub(super) fn view(
        &self,
        settings: &StreamSettings,
        (backlog, limit): (&BacklogStatus, u64),
        counts: StreamCounts,
        refused: bool,
        failures: u32,
        is_behind: bool,
    ) -> QueueStatusView {
        let mut view = self.view.clone();
        let is_expired = settings.is_certificate_expired(unix_ms() / 1000);
        let expired = is_expired.then(|| EXPIRED.to_owned());
        view.problem = expired
            .or_else(|| settings.problem.clone())
            .or_else(|| self.disk_problem.clone());
        view.state = if settings.endpoint.is_none() {
            StreamState::NotConfigured
        } else if settings.suspend || is_expired || self.disk_problem.is_some() {
            StreamState::Stopped
        } else if refused {
            StreamState::Refused
        } else if failures > 0 {
            StreamState::Retrying
        } else if is_behind {
            StreamState::CatchingUp
        } else {
            StreamState::Live
        };
        let endpoint = settings.endpoint.as_ref();
        view.endpoint = endpoint.and_then(|endpoint| endpoint_host(&endpoint.url.to_string()));
        view.records = backlog.records;
        view.samples = backlog.samples;
        view.bytes = backlog.disk_bytes;
        view.limit_bytes = limit;
        view.oldest_ms = backlog.oldest_ms.and_then(|at| u64::try_from(at).ok());
        view.scraped_samples = counts.samples;
        view.accepted_samples = backlog.accepted_samples;
        let mut dropped = self.view.dropped;
        dropped.add(DropReason::Memory, counts.untaken);
        dropped.add(DropReason::Limit, counts.unwritten.over_limit);
        dropped.add(DropReason::NotLater, counts.unwritten.not_later);
        dropped.add(DropReason::Collided, counts.unwritten.collided);
        view.dropped = dropped;
        view
    }
}
