//! What a receiver's answer means, by the rules of the specification for senders.

use std::time::{Duration, SystemTime};

use crate::{Compression, Protocol, WireForm, retry_after};

/// Headers of an answer that matter to a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerHeaders {
    /// `X-Prometheus-Remote-Write-Samples-Written`.
    pub samples_written: Option<u64>,
    /// Whether any header `X-Prometheus-Remote-Write-*-Written` is present: the receiver supports
    /// 2.0.
    pub any_written: bool,
    /// `Retry-After`, as received.
    pub retry_after: Option<String>,
}

impl AnswerHeaders {
    /// Reads the headers through a look-up by name, in lower case. A count that is no number counts
    /// as absent.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let written = |kind: &str| {
            let value = get(&format!("x-prometheus-remote-write-{kind}-written"))?;
            value.trim().parse::<u64>().ok()
        };
        let samples_written = written("samples");
        Self {
            samples_written,
            any_written: samples_written.is_some()
                || written("histograms").is_some()
                || written("exemplars").is_some(),
            retry_after: get("retry-after").map(str::to_owned),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Protocol and compression of the request.
    pub form: WireForm,
    pub samples: u32,
    /// Whether the receiver's support of [`Self::form`] is unknown. Then a status of 400 may mean
    /// that it does not support it, which is how receivers of 1.0 say so.
    pub unproven: bool,
}

/// What the sender does next with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has accepted the request.
    Delivered {
        /// Number of samples that the receiver reports as written; unknown with 1.0. Zero is not a
        /// loss: Cortex and Mimir report it for a request that their HA tracker deduplicated
        /// (cortex issue 7240).
        written: Option<u64>,
    },
    /// Send the same request again, later.
    Retry {
        /// Earliest time of the next request, from now, as the receiver asked. Unbounded.
        after: Option<Duration>,
        reason: RetryReason,
    },
    /// The receiver will never accept the request. It must not be sent again.
    Refused {
        reason: RefusedReason,
        /// Samples of the request that the receiver did not write.
        samples: u32,
    },
    /// Send the same request again now, with this version of the protocol.
    UseProtocol(Protocol),
    /// Send the same request again now, with this compression.
    UseCompression(Compression),
}

/// Why a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RetryReason {
    /// A status of 500 to 599.
    ServerError,
    /// Status 429.
    TooManyRequests,
    /// A status of 300 to 399. The sender follows no redirect, which could lead the samples of a
    /// tenant elsewhere.
    Redirect,
    /// A status that is no final status of HTTP.
    InvalidStatus,
}

impl RetryReason {
    /// Value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServerError => "server_error",
            Self::TooManyRequests => "too_many_requests",
            Self::Redirect => "redirect",
            Self::InvalidStatus => "invalid_status",
        }
    }
}

/// Why a receiver refused a request for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusedReason {
    /// A part of the samples was written, the rest is invalid for this receiver.
    PartialWrite,
    /// Status 400: invalid samples.
    Invalid,
    /// Status 401 or 403.
    Unauthorized,
    /// Status 404 or 405: the URL is not the one of a receiver.
    NotFound,
    /// Status 413.
    TooLarge,
    /// Status 415, also for 1.0 with Snappy.
    Unsupported,
    /// Another status of 400 to 499.
    ClientError,
}

impl RefusedReason {
    /// Value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PartialWrite => "partial",
            Self::Invalid => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Unsupported => "unsupported",
            Self::ClientError => "other",
        }
    }
}

/// Decides what an answer means.
///
/// - 2xx: accepted. With 2.0 and without any `Written` header, the receiver is one of 1.0 that read
///   an empty message: the same as 415.
/// - 415: the other version, or Snappy; if nothing is left to try, refused.
/// - 429 and 5xx: again, after `Retry-After` if it is there.
/// - Other 4xx: refused, and never sent again. A status of 400 for a form that the receiver has not
///   accepted before is treated as 415.
/// - 3xx: again. The specification does not define it, and to keep the samples is the safe side.
pub fn judge(status: u16, headers: &AnswerHeaders, sent: Sent, now: SystemTime) -> Verdict {
    let retry = |reason| {
        let after = headers
            .retry_after
            .as_deref()
            .and_then(|value| retry_after::parse(value, now));
        Verdict::Retry { after, reason }
    };
    match status {
        200..300 => accepted(headers, sent),
        300..400 => retry(RetryReason::Redirect),
        415 => other_form(sent.form).unwrap_or_else(|| refused(RefusedReason::Unsupported, headers, sent)),
        429 => retry(RetryReason::TooManyRequests),
        400 if sent.unproven && !headers.any_written => {
            other_form(sent.form).unwrap_or_else(|| refused(RefusedReason::Invalid, headers, sent))
        }
        400 => refused(RefusedReason::Invalid, headers, sent),
        401 | 403 => refused(RefusedReason::Unauthorized, headers, sent),
        404 | 405 => refused(RefusedReason::NotFound, headers, sent),
        413 => refused(RefusedReason::TooLarge, headers, sent),
        402..500 => refused(RefusedReason::ClientError, headers, sent),
        500..600 => retry(RetryReason::ServerError),
        _ => retry(RetryReason::InvalidStatus),
    }
}

fn accepted(headers: &AnswerHeaders, sent: Sent) -> Verdict {
    match sent.form.protocol {
        Protocol::V2 if !headers.any_written => Verdict::UseProtocol(Protocol::V1),
        // A missing header means 0 if another one is present.
        Protocol::V2 => Verdict::Delivered {
            written: Some(headers.samples_written.unwrap_or(0)),
        },
        // Nothing may be concluded from the headers of a receiver of 1.0.
        Protocol::V1 => Verdict::Delivered { written: None },
    }
}

fn other_form(form: WireForm) -> Option<Verdict> {
    match (form.protocol, form.compression) {
        (Protocol::V2, _) => Some(Verdict::UseProtocol(Protocol::V1)),
        (Protocol::V1, Compression::Zstd) => Some(Verdict::UseCompression(Compression::Snappy)),
        (Protocol::V1, Compression::Snappy) => None,
    }
}

fn refused(reason: RefusedReason, headers: &AnswerHeaders, sent: Sent) -> Verdict {
    let written = match sent.form.protocol {
        Protocol::V2 => headers.samples_written.unwrap_or(0),
        Protocol::V1 => 0,
    };
    let samples = u64::from(sent.samples).saturating_sub(written);
    let partial = written > 0 && reason == RefusedReason::Invalid;
    Verdict::Refused {
        reason: if partial {
            RefusedReason::PartialWrite
        } else {
            reason
        },
        samples: u32::try_from(samples).unwrap_or(sent.samples),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
