//! Common parts of both programs: digests, logs, exit codes, shutdown, TLS, and an HTTP server with
//! limits. It reads certificates, listens on sockets and handles signals; it knows nothing of VMs,
//! guests or Kubernetes.
//!
//! ```text
//! main ─▶ telemetry::init ─▶ shutdown::signals ─▶ http::serve(listener, tls, limits, service) ─▶ drain ─▶ exit::Code
//! ```

pub mod checks;
pub mod digest;
pub mod exit;
pub mod http;
pub mod process;
pub mod shutdown;
pub mod telemetry;
pub mod throttle;
pub mod tls;
