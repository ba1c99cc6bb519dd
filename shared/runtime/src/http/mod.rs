//! HTTP/1.1 server with limits on connections, requests, and the times to handshake, to send and
//! process a request, and to receive a response.
//!
//! ```text
//! accept ─▶ admission ─▶ TLS (client certificate) ─▶ authorised? ─▶ request ─▶ service ─▶ response
//!              └ a free slot, or another's  └ closed and counted  └ 503 beyond max_requests, 504 beyond request_timeout
//! ```

mod admission;
mod guarded;
mod limits;
mod metrics;
mod peer;
mod server;
mod write_deadline;

pub use metrics::ServerMetrics;
pub use peer::RequestPeer;
pub use server::{ConnectionEnd, Limits, Server, Transport};
