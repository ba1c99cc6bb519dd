//! Enrolment of agents: issues certificates over connections that this collector opens, or that an
//! agent opened.
//!
//! ```text
//! scraper: the certificate is not used ─▶ Enroller ─ limits ─▶ UnverifiedAgent ─ CSR ─▶ decide (core)
//!                                            │                                           │ Sign
//!                                            │       guest ◀─ certificate ─ sign ◀─ RecordBook (record)
//!                                            └─ Guard: which certificates of a VM are used ◀┘
//! ```
//! `docs/decisions/0029-enrolment.md` has the protocol.

mod admin;
mod attempts;
mod authority;
mod channel;
mod claim;
mod enroller;
mod failure;
mod guard;
mod issue;
mod metrics;
mod records;
mod start;
#[cfg(test)]
pub(crate) mod testing;
mod unverified;

pub use admin::{AdminError, EnrolmentAction, EnrolmentAdmin, EnrolmentItem};
pub use authority::SigningAuthority;
pub(crate) use claim::ClaimEnd;
pub use enroller::{Enroller, EnrollerParts, EnrolmentEnd, EnrolmentLimits};
pub use guard::RecordGuard;
pub use metrics::EnrolmentMetrics;
pub use records::{
    ConfigMapRecords, FolderRecords, RecordBook, RecordKeeper, RecordStore, RecordWriteError, StoredShard,
    keep_records,
};
pub use start::{EnrolmentContext, RunningEnrolment};
