//! Everything that leaves the collector over HTTP (room: collector/src/api). Read-only: every answer is made from one
//! snapshot of the fleet, and nothing here changes it.
//!
//! ```text
//! request ─▶ router ─ parameters ─ long poll ─▶ handler(snapshot) ─▶ reply ─ ETag ─ gzip ─▶ answer
//!              ▲                                                       
//!            routes ── one table ──▶ OpenAPI document, text index, "no such path"
//! ```

mod clusters;
mod error;
mod findings;
mod fleet_page;
mod gzip;
mod health;
mod hosts;
mod label_inputs;
mod labels;
mod openapi;
mod own_page;
mod paging;
mod param;
mod query;
mod reply;
mod router;
mod routes;
mod sd;
#[cfg(test)]
pub(crate) mod testing;
mod vm;
mod vm_page;
mod vms;
mod wait;

use std::{path::Path, sync::Arc};

use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use error::{ErrorBody, ErrorDetail};
pub use findings::FindingView;
pub(crate) use findings::severity_word;
pub use label_inputs::LabelInputs;
pub use labels::LabelView;
pub(crate) use labels::action_word;
pub use openapi::document as openapi_document;
pub(crate) use param::LONGEST_WAIT;
pub use router::{probes, router};
pub use sd::TargetGroup;

use crate::{fleet::FleetRead, labels::LabelStatusStore, leader::Writing, scrape::PageProxy};

/// The header that carries the revision of which an answer was made; pass it as `wait` to hear of the next one.
pub const REVISION_HEADER: &str = "virtfleet-revision";

/// What the handlers read. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    /// The fleet.
    pub fleet: Arc<dyn FleetRead>,
    /// What became of each VM's labels.
    pub labels: Arc<LabelStatusStore>,
    /// Whether this process leads, and who does otherwise.
    pub writing: Writing,
    /// Fetches agents' pages; none when agents are not pulled.
    pub pages: Option<Arc<PageProxy>>,
    /// The collector's own metrics.
    pub registry: Arc<Registry>,
    /// Where proc is mounted, for the collector's own process metrics; usually `/proc`.
    pub procfs: Arc<Path>,
    /// Differs from one start of the collector to the next: revisions begin again then, and an `ETag` must not.
    pub instance: u64,
    /// Places for long polls: fewer than the server has for requests, so that those who wait never keep others out.
    pub waiting: Arc<Semaphore>,
    /// Ends long polls at once, so that they do not hold up a shutdown.
    pub shutdown: CancellationToken,
}
