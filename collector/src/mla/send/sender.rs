//! Sends requests to one receiver and finds out which version and compression it supports.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::Instant;
use virtfleet_remote_write::{Compression, Negotiation, Sent, Verdict, WireForm, judge};

use super::{
    body::body,
    client::{ExchangeError, HttpClient, ReceiverAnswer},
    endpoint::{Endpoint, EndpointError},
    metadata_schedule::MetadataSchedule,
    outcome::{SendOutcome, SendRefusal, SendResult},
};
use crate::dial_guard::DialGuard;

/// Attempts of one call in different forms: 2.0, 1.0 with zstd, 1.0 with Snappy.
const MAX_FORMS: u32 = 3;

/// Sends requests to one receiver. One request at a time keeps the order of samples.
#[derive(Debug)]
pub struct Sender {
    client: HttpClient,
    started: Instant,
    state: Mutex<SenderState>,
}

#[derive(Debug)]
struct SenderState {
    negotiation: Negotiation,
    metadata: MetadataSchedule,
}

impl Sender {
    /// A sender without a connection.
    ///
    /// # Errors
    /// If the endpoint cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        Self::guarded(endpoint, None)
    }

    /// As [`Sender::new`], for an endpoint that a tenant names: it dials only addresses that the
    /// guard allows.
    ///
    /// # Errors
    /// If the endpoint cannot be used.
    pub(crate) fn guarded(endpoint: Endpoint, guard: Option<Arc<DialGuard>>) -> Result<Self, EndpointError> {
        let negotiation = Negotiation::new(endpoint.protocol, endpoint.compression);
        Ok(Self {
            client: HttpClient::new(endpoint, guard)?,
            started: Instant::now(),
            state: Mutex::new(SenderState {
                negotiation,
                metadata: MetadataSchedule::default(),
            }),
        })
    }

    /// Version and compression of the next request, and whether the receiver has accepted them.
    pub fn form(&self) -> (WireForm, bool) {
        let state = self.state();
        (state.negotiation.form(), state.negotiation.proven())
    }

    /// Sends a request of 2.0 with `samples` samples, compressed as `compression` says. If the
    /// receiver does not support its form, sends the same samples in another form at once. Never
    /// waits for a retry.
    ///
    /// Cancel safe: a request that is dropped while it is sent may have been delivered, and may be
    /// sent again with the same content.
    pub async fn send(&self, stored: &Bytes, compression: Compression, samples: u32) -> SendOutcome {
        let mut progress = Progress::default();
        loop {
            let now = self.started.elapsed();
            let (form, unproven) = self.state().negotiation.next(now);
            let body = match self.body(now, stored, compression, form) {
                Ok(body) => body,
                Err(result) => return progress.end(form, refused_unreadable(result, samples)),
            };
            progress.requests += 1;
            progress.body_bytes += body.len() as u64;
            let answer = match self.client.post(form, body).await {
                Ok(answer) => answer,
                Err(error) => {
                    progress.status = None;
                    return progress.end(form, self.unreachable(error));
                }
            };
            progress.status = Some(answer.status);
            let sent = Sent {
                form,
                samples,
                unproven,
            };
            let result = self.judged(&answer, sent);
            match result {
                Some(result) => return progress.end(form, result),
                None if progress.requests < MAX_FORMS => {}
                // Not reached: each form leads to one that has not been tried.
                None => return progress.end(form, undecided(answer)),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn body(
        &self,
        now: Duration,
        stored: &Bytes,
        compression: Compression,
        form: WireForm,
    ) -> Result<Bytes, String> {
        let mut state = self.state();
        let metadata = state.metadata.at(now);
        body(stored, compression, form, |family| metadata.due(family)).map_err(|error| error.to_string())
    }

    /// What the answer means, or nothing if the request is sent again at once in another form.
    fn judged(&self, answer: &ReceiverAnswer, sent: Sent) -> Option<SendResult> {
        let verdict = judge(answer.status, &answer.headers, sent, SystemTime::now());
        let mut state = self.state();
        let now = self.started.elapsed();
        let verdict = state
            .negotiation
            .answered(now, answer.status, sent.samples, verdict);
        if !matches!(verdict, Verdict::Delivered { .. }) {
            state.metadata.reset();
        }
        let message = || format!("status {}: {}", answer.status, answer.message);
        match verdict {
            Verdict::Delivered { written } => Some(SendResult::Delivered {
                written,
                missing: missing(written, sent.samples),
            }),
            Verdict::Retry { after, reason } => Some(SendResult::Retry {
                after,
                reason: super::SendFailure::Answer(reason),
                message: message(),
            }),
            Verdict::Refused { reason, samples } => Some(SendResult::Refused {
                reason: SendRefusal::Answer(reason),
                samples,
                message: message(),
            }),
            Verdict::UseProtocol(_) | Verdict::UseCompression(_) => None,
        }
    }

    fn unreachable(&self, error: ExchangeError) -> SendResult {
        let mut state = self.state();
        state.negotiation.unreachable();
        state.metadata.reset();
        SendResult::Retry {
            after: None,
            reason: error.reason,
            message: error.message,
        }
    }
}

/// What the attempts of one call have cost so far.
#[derive(Debug, Default)]
struct Progress {
    status: Option<u16>,
    requests: u32,
    body_bytes: u64,
}

impl Progress {
    fn end(self, form: WireForm, result: SendResult) -> SendOutcome {
        SendOutcome {
            result,
            status: self.status,
            form,
            requests: self.requests,
            body_bytes: self.body_bytes,
        }
    }
}

/// Zero written is a receiver that deduplicated the request, not a loss.
fn missing(written: Option<u64>, samples: u32) -> u32 {
    match written {
        Some(written) if written > 0 => {
            u32::try_from(u64::from(samples).saturating_sub(written)).unwrap_or(samples)
        }
        _ => 0,
    }
}

fn refused_unreadable(message: String, samples: u32) -> SendResult {
    SendResult::Refused {
        reason: SendRefusal::Unreadable,
        samples,
        message,
    }
}

fn undecided(answer: ReceiverAnswer) -> SendResult {
    SendResult::Retry {
        after: None,
        reason: super::SendFailure::Interrupted,
        message: format!(
            "no form was accepted; status {}: {}",
            answer.status, answer.message
        ),
    }
}
