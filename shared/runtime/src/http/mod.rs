//! An HTTP/1.1 server with limits: connections, requests, time to shake hands, to ask, to answer and to be read.
//!
//! ```text
//! accept ─▶ admission ─▶ TLS (client certificate) ─▶ may it ask? ─▶ request ─▶ service ─▶ answer
//!              └ a place, or another's      └ closed and counted  └ 503 beyond max_requests, 504 beyond request_timeout
//! ```

mod admission;
mod guarded;
mod limits;
mod metrics;
mod server;
mod write_deadline;

pub use metrics::ServerMetrics;
pub use server::{Limits, Server, Transport};
