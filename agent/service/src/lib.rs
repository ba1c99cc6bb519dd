//! What the agent's daemon serves: the metrics page, the report, the doctor's checks, the DNS
//! watch, the clock watch and the connection to the collector. It reads the guest through
//! `virtfleet-agent-host` and root's results through `virtfleet-agent-state`; it changes nothing
//! but reconcile requests, and does not depend on `virtfleet-agent-provision`.

pub mod dns_watch;
pub mod doctor;
pub mod enrolment;
pub mod pause;
pub mod push;
pub mod report;
pub mod server;
