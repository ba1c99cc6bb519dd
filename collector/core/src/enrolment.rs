//! Enrolment of agents: whether the collector signs a certificate, and which keys it has recorded.
//! `docs/decisions/0029-enrolment.md` has the protocol.
//!
//! ```text
//! inventory ─▶ EnrolmentSubject ─┐
//! agent ─────▶ CsrExchange ──────┼─▶ decide ─▶ Sign | ReplaceKey | Refuse(reason)
//! records ───▶ EnrolmentRecord ──┘
//! ```
//! Pure: the caller passes the time, and has verified the signatures of the CSR and of the
//! connection.

mod attempts;
mod case;
mod decision;
mod expected_node;
mod fingerprint;
mod reason;
mod record;
mod records;
mod renewal;
mod stable_hash;
#[cfg(test)]
mod tests;

pub use attempts::{AttemptHistory, AttemptLimits};
pub use case::{CsrExchange, EnrolmentCase, EnrolmentSubject, VmProof};
pub use decision::{EnrolmentDecision, decide, identity_uid};
pub use expected_node::{ExpectedNode, NoExpectedNode};
pub use fingerprint::KeyFingerprint;
pub use reason::EnrolmentReason;
pub use record::{EnrolmentRecord, EnrolmentState};
pub use records::{EnrolmentRecords, MAX_RECORDS, RecordConflict, read_shard, shard_of};
pub use renewal::CertificateLife;
