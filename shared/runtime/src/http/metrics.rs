//! Metrics of the server.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Metrics of one server; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ServerMetrics {
    pub open: Gauge<i64, AtomicI64>,
    pub accepted: Counter,
    /// Connections closed because their slot was needed, or because all were busy.
    pub dropped: Counter,
    /// TLS handshakes that failed or timed out, and clients that sent nothing.
    pub handshake_failures: Counter,
    /// Clients with a valid certificate that are not authorized.
    pub unauthorised: Counter,
    pub requests: Counter,
    /// Requests rejected with 503, because too many were running.
    pub busy: Counter,
    /// Requests aborted with 504, because they took too long.
    pub timeouts: Counter,
}

impl ServerMetrics {
    /// Registers all metrics as `http_…` under the registry's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let http = registry.sub_registry_with_prefix("http");
        http.register("connections_open", "Open connections", metrics.open.clone());
        http.register("connections", "Accepted connections", metrics.accepted.clone());
        http.register(
            "connections_dropped",
            "Connections closed to make room for others, or because all were busy",
            metrics.dropped.clone(),
        );
        http.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or timed out, and clients that sent nothing",
            metrics.handshake_failures.clone(),
        );
        http.register(
            "clients_unauthorised",
            "Connections closed because the client is not authorized",
            metrics.unauthorised.clone(),
        );
        http.register("requests", "Requests with a response", metrics.requests.clone());
        http.register(
            "requests_busy",
            "Requests rejected because too many were running",
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
