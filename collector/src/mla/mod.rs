//! MLA: the metrics of VMs are sent to their tenants, and those of the fleet to its operator.
//!
//! ```text
//! UserCluster.spec.mla, Secrets ─┐
//! CollectorConfig.mla (section) ─┤
//! its files ─────────────────────┴─▶ settings ─▶ StreamSettings ─▶ streams (one worker each)
//!
//! scraper ─ pages ─▶ feed ─┐
//! fleet ─▶ platform ───────┴▶ stream ─ requests ─▶ worker ─▶ disk (queue) ─▶ send ─▶ receiver
//!                                                    └▶ progress ─▶ status
//! ```

mod disk;
mod feed;
pub mod metrics;
mod platform;
mod progress;
pub(crate) mod report;
mod requests;
mod run;
mod section;
pub mod send;
pub mod settings;
mod start;
pub mod status;
mod stream;
mod streams;
mod targets;
mod worker;

pub(crate) use feed::PageFeed;
pub use requests::Requests;
pub(crate) use run::RunningStreams;
pub(crate) use start::start;
pub use start::{leadership, status as registered_status};
