//! Enrolment on the agent's side: what a collector's request does to the key, when an issued
//! certificate is used, and what the report says (decision 0029).

pub mod dates;
pub mod findings;
pub mod node_proof;
pub mod record;
pub mod request;
pub mod status;
