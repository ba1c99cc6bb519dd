//! Limits of a server.

use std::time::Duration;

/// What one client, or all of them, may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections open at once, over all listeners that share a [`Server`]. Beyond it the longest idle one of whoever has most
    /// is closed for a new one; when all are busy, the new one.
    pub connections: usize,
    /// Of these, connections of which nothing is known yet: no verified client, no whole request. Beyond it the oldest of
    /// whoever has most is closed.
    pub new_connections: usize,
    /// Of all, connections from one IP address.
    pub connections_per_peer: usize,
    /// Requests answered at once; more get 503.
    pub requests: usize,
    /// For the service to answer one request; then 504.
    pub request_timeout: Duration,
    /// For the first byte of a connection.
    pub first_byte_timeout: Duration,
    /// For a TLS handshake; where clients show no certificate, until the first request has come whole.
    pub handshake_timeout: Duration,
    /// For a client to send a request's head: on a kept connection also the longest pause between two requests.
    pub idle_timeout: Duration,
    /// For a client to take the next piece of an answer.
    pub write_timeout: Duration,
    /// For running requests to end once stopping has begun.
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
