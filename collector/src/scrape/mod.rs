//! Pulls `/v1/report` and `/metrics` of each VM's agent over TLS, at a fixed interval, with limits
//! on concurrency, time and size.
//!
//! ```text
//! fleet (targets) ─▶ schedule ─▶ concurrency ─▶ job ─▶ pull (one VM) ─▶ PullResult ─▶ fleet
//!                                                   ├ connection: verified certificate
//!                                                   ├ transport: TLS, HTTP
//!                                                   ├ way: TCP, directly or through a relay
//!                                                   ├ pushed: connections that agents opened
//!                                                   ├ meter: limit on received bytes
//!                                                   ├ body: a response body in pieces
//!                                                   └ summary: the kept part of a metrics page
//! ```

pub(crate) mod accept;
mod body;
pub(crate) mod concurrency;
pub(crate) mod connection;
mod eager;
mod filter;
mod job;
mod line_reader;
mod meter;
mod metrics;
pub(crate) mod peer;
mod proxy;
mod pull;
pub(crate) mod pushed;
mod queues;
mod schedule;
mod scraper;
mod summary;
pub(crate) mod transport;
mod usage;
mod way;

pub use metrics::{ProxyMetrics, PullMetrics};
pub use proxy::{PageError, PageProxy, ProxyLimits};
pub use pull::{PullLimits, Puller};
pub use schedule::Schedule;
pub use scraper::ScrapeSettings;
pub(crate) use scraper::{ScraperInputs, ScraperParts, run};
