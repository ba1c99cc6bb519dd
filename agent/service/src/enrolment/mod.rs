//! Enrolment: a key made in this guest, and the certificate that a collector issues for it
//! (decision 0029). The agent answers requests; it never starts one.
//!
//! ```text
//! stored key, record, certificate ─ open ─▶ HeldIdentity (what TLS serves)
//! EnrolmentRequest  ─ request ─▶ CSR, evidence │ key replaced
//! IssuedCertificate ─ accept ──▶ verified ─▶ stored ─▶ HeldIdentity
//!                                        └─▶ EnrolmentStatus (report, metrics, doctor)
//! ```

mod agent;
mod evidence;
mod key;
mod node_proof;
mod refusal;
mod start;
mod storage;
mod work;

pub use agent::{Enrolment, EnrolmentStartError, EnrolmentTime};
pub use key::KeyError;
pub use refusal::EnrolmentRefusal;
pub use start::stored_status;
pub use work::ServedError;

#[cfg(test)]
mod tests;
