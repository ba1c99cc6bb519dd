//! The agent's HTTP server: `/metrics`, `/v1/report`, `/healthz`, `/readyz`, `/v1/enrolment/…`.
//!
//! ```text
//! listeners ─▶ runtime::http (TLS, limits) ─▶ routes
//!           ─▶ worker thread (owns collectors and reporter) ─▶ response
//! ```

mod answer;
mod certificate_metrics;
mod enrolment_routes;
mod gzip;

mod listen;
mod own_metrics;
mod pass_metrics;
mod passed;
mod push_metrics;
mod query;
mod routes;
mod worker;

pub use listen::{ListenError, bind, push_tls, try_tls};
pub use own_metrics::OwnMetrics;
pub use query::filter as filter_of_query;
pub use routes::Routes;
pub use worker::{Worker, WorkerGone};
