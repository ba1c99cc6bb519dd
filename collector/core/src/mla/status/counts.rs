//! Samples that did not arrive, by reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares an enum of reasons and a struct with one counter for each.
macro_rules! reason_counts {
    (
        $(#[$reason_doc:meta])* $reason:ident,
        $(#[$counts_doc:meta])* $counts:ident,
        $( $(#[$doc:meta])* $variant:ident $field:ident $word:literal ),+ $(,)?
    ) => {
        $(#[$reason_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $reason { $( $(#[$doc])* $variant ),+ }

        impl $reason {
            /// Every reason, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in metrics and tables.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        $(#[$counts_doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $counts { $( $(#[$doc])* pub $field: u64 ),+ }

        impl $counts {
            /// Samples counted for `reason`.
            pub fn get(&self, reason: $reason) -> u64 {
                match reason { $($reason::$variant => self.$field),+ }
            }

            /// Counts `samples` for `reason`.
            pub fn add(&mut self, reason: $reason, samples: u64) {
                let count = match reason { $($reason::$variant => &mut self.$field),+ };
                *count = count.saturating_add(samples);
            }

            /// Samples of all reasons.
            pub fn total(&self) -> u64 {
                $reason::ALL.iter().fold(0, |sum, reason| self.get(*reason).saturating_add(sum))
            }
        }
    };
}

reason_counts!(
    /// Why the collector dropped samples before they were sent.
    DropReason,
    /// Samples that the collector dropped before they were sent, by reason.
    DroppedSamples,
    /// The queue had reached its maximum size.
    QueueFull queue_full "queue_full",
    /// They were older than the maximum age of the queue.
    TooOld too_old "too_old",
    /// Their record in the queue failed its checksum.
    Corrupt corrupt "corrupt",
    /// The queue could not be written.
    WriteFailed write_failed "write_failed",
    /// They waited for the queue, and the stream's part of the memory was used up.
    Memory memory "memory",
    /// A page or a sample exceeded a limit of the stream.
    Limit limit "limit",
    /// Their time was not after that of the VM's last page: two pulls overlapped, or the clock of
    /// the collector was set back.
    NotLater not_later "not_later",
    /// After relabelling they had the labels of another sample of their page, which was sent.
    Collided collided "collided",
);

reason_counts!(
    /// Why an endpoint refused samples for good.
    RefusalReason,
    /// Samples that the endpoint refused for good, by reason.
    RefusedSamples,
    /// Status 400: the endpoint does not accept the samples.
    BadRequest bad_request "bad_request",
    /// Status 401 or 403: the client is not authorized.
    Unauthorized unauthorized "unauthorized",
    /// Status 404: the URL has no remote-write receiver.
    NotFound not_found "not_found",
    /// Status 413: the request is too large.
    TooLarge too_large "too_large",
    /// Status 415: the endpoint does not accept the protocol.
    Unsupported unsupported "unsupported",
    /// The request succeeded, but the endpoint wrote fewer samples than were sent.
    Partial partial "partial",
    /// Another status of 400 to 499.
    Other other "other",
);

impl DropReason {
    /// Whether the page of a VM is the cause, or the rules for it. A finding about the page names
    /// the VM.
    pub const fn is_about_page(self) -> bool {
        matches!(self, Self::Limit | Self::NotLater | Self::Collided)
    }
}

impl DroppedSamples {
    /// Samples that were dropped although their pages were as they should be.
    pub fn lost(&self) -> u64 {
        let reasons = DropReason::ALL.iter().filter(|reason| !reason.is_about_page());
        reasons.fold(0, |sum, reason| sum.saturating_add(self.get(*reason)))
    }
}

impl RefusalReason {
    /// The reason for an HTTP status of 400 to 499.
    pub fn of_status(status: u16) -> Self {
        match status {
            400 => Self::BadRequest,
            401 | 403 => Self::Unauthorized,
            404 => Self::NotFound,
            413 => Self::TooLarge,
            415 => Self::Unsupported,
            _ => Self::Other,
        }
    }
}
