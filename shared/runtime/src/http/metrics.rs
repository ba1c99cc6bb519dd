//! What the server counts.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Counters of one server; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ServerMetrics {
    /// Connections that are open.
    pub open: Gauge<i64, AtomicI64>,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections closed because their place was needed, or because all were busy.
    pub dropped: Counter,
    /// TLS handshakes that failed or took too long, and clients that sent nothing.
    pub handshake_failures: Counter,
    /// Clients with a valid certificate that may not ask.
    pub unauthorised: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Requests answered with 503, because too many were running.
    pub busy: Counter,
    /// Requests answered with 504, because they took too long.
    pub timeouts: Counter,
}

impl ServerMetrics {
    /// Registers all of them under the registry's prefix, as `http_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let http = registry.sub_registry_with_prefix("http");
        http.register(
            "connections_open",
            "Connections that are open",
            metrics.open.clone(),
        );
        http.register("connections", "Connections accepted", metrics.accepted.clone());
        http.register(
            "connections_dropped",
            "Connections closed to make room for others, or because all were busy",
            metrics.dropped.clone(),
        );
        http.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or took too long, and clients that sent nothing",
            metrics.handshake_failures.clone(),
        );
        http.register(
            "clients_unauthorised",
            "Connections closed because the client may not ask",
            metrics.unauthorised.clone(),
        );
        http.register("requests", "Requests answered", metrics.requests.clone());
        http.register(
            "requests_busy",
            "Requests refused because too many were running",
            metrics.busy.clone(),
        );
        http.register(
            "request_timeouts",
            "Requests that took too long",
            metrics.timeouts.clone(),
        );
        metrics
    }
}
