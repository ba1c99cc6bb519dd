//! Hears every agent: pulls `/v1/report` and `/metrics` of each VM over TLS, on a fixed beat, bounded in number, time and
//! size.
//!
//! ```text
//! fleet (whom) ─▶ schedule (when) ─▶ lanes (with whom) ─▶ pull (one VM) ─▶ PullResult ─▶ fleet
//!                                                          ├ connection: TCP, TLS, whose certificate
//!                                                          ├ meter: every byte that comes, whatever it is for
//!                                                          ├ read: a body in pieces, up to a limit
//!                                                          └ summary: what is kept of a metrics page
//! ```

mod connection;
mod filter;
mod lanes;
mod lines;
mod meter;
mod metrics;
mod proxy;
mod pull;
mod read;
mod run;
mod schedule;
mod summary;

pub use metrics::{ProxyMetrics, PullMetrics};
pub use proxy::{PageProxy, ProxyLimits};
pub use pull::{PullLimits, Puller};
pub use run::{ScrapeSettings, run};
pub use schedule::Schedule;
