//! Limits of a server.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum open connections, over all listeners that share a [`Server`]. Beyond it the longest
    /// idle connection of the peer with the most is closed for a new one; if all are busy, the new
    /// one is closed.
    pub connections: usize,
    /// Maximum connections without a verified client or a complete request. Beyond it the oldest of
    /// the peer with the most is closed.
    pub new_connections: usize,
    /// Maximum connections from one IP address.
    pub connections_per_peer: usize,
    /// Maximum concurrent requests; more get 503.
    pub requests: usize,
    /// Maximum time for the service to answer a request; then 504.
    pub request_timeout: Duration,
    /// Maximum time until the first byte of a connection.
    pub first_byte_timeout: Duration,
    /// Maximum time for a TLS handshake; without client certificates, until the first complete
    /// request.
    pub handshake_timeout: Duration,
    /// Maximum time for a client to send a request's head: on a kept connection also the maximum
    /// pause between two requests.
    pub idle_timeout: Duration,
    /// Maximum time for a client to accept the next part of a response.
    pub write_timeout: Duration,
    /// Maximum time for running requests to end during a shutdown.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            new_connections: 32,
            connections_per_peer: 48,
            requests: 40,
            request_timeout: Duration::from_secs(20),
            first_byte_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(150),
            write_timeout: Duration::from_secs(20),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
