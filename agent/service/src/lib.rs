//! What the agent's daemon serves: the metrics page, the report, the doctor's checks, the DNS watch
//! and the clock watch. It reads the guest through `virtfleet-agent-host` and root's results
//! through `virtfleet-agent-state`; it changes nothing but reconcile requests, and does not depend
//! on `virtfleet-agent-provision`.

pub mod dns_watch;
pub mod doctor;
pub mod enrolment;
pub mod pause;
pub mod report;
pub mod server;
