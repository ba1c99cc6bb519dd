//! HTTP API of the collector. Responses to GET are built from one snapshot of the fleet; POST
//! changes something, and only on the leader.
//!
//! ```text
//! request ─▶ router ─ access ─ parameters ─ long poll ─▶ handler(snapshot) ─▶ reply ─ ETag ─ gzip ─▶ response
//!              ▲         └─ the snapshot has what the caller may see
//!            routes ── one table ──▶ OpenAPI document, text index, "no such path"
//! ```

mod browser_headers;
mod ca;
mod clusters;
mod collector_metrics;
mod enrolment;
mod error;
mod etag;
mod events;
mod findings;
mod fleet_page;
mod foreign_page;
mod gzip;
mod health;
mod history;
mod hosts;
mod label_inputs;
mod labels;
mod long_poll;
mod migrations;
mod openapi;
mod paging;
mod param;
mod placement;
mod query;
mod queues;
mod reply;
mod route;
mod router;
mod routes;
mod sd;
mod status;
mod targets;
mod tenant_answer;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
mod top;
mod vm;
mod vm_filter;
mod vm_page;
mod vms;
mod watch;
mod watch_slots;
mod web_files;

use std::{path::Path, sync::Arc};

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::fleet_series::severity_name;
pub use enrolment::EnrolmentChange;
pub use error::{ErrorBody, ErrorDetail};
pub(crate) use error::{NOT_LEADING, TOO_MANY_REQUESTS};
pub use events::FleetEvent;
pub use findings::FindingView;
pub use label_inputs::LabelInputs;
pub use labels::LabelView;
pub(crate) use labels::action_name;
pub use migrations::FleetMigration;
pub(crate) use param::MAX_WAIT;
pub use router::{probes, router};
pub use sd::TargetGroup;
pub use targets::TargetView;
pub use tokens::TokenRevocation;
pub use watch_slots::{WatchLimits, WatchSlots};

use crate::{
    access::AccessControl, ca::CaService, drain::DrainReader, enrolment::EnrolmentAdmin, fleet::FleetRead,
    history::HistoryReader, labels::LabelStatusStore, leader::WriteAccess, mla::status::MlaStatus,
    scrape::PageProxy, tokens::JoinTokenBook,
};

/// The header with the revision of a response; pass it as `long_poll` to long_poll for the next
/// one.
pub const REVISION_HEADER: &str = "virtfleet-revision";

/// State of the handlers. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    /// Authenticates callers and decides what they may see.
    pub access: Arc<AccessControl>,
    pub fleet: Arc<dyn FleetRead>,
    /// Label status of each VM.
    pub labels: Arc<LabelStatusStore>,
    /// Status of the streams of samples, and of each VM's page.
    pub mla: Arc<MlaStatus>,
    /// Whether this process leads, and the leader otherwise.
    pub write_access: WriteAccess,
    /// Proxies agents' metrics pages; none if agents are not pulled.
    pub pages: Option<Arc<PageProxy>>,
    /// The fleet's authority; none without enrolment.
    pub ca: Option<CaService>,
    /// The recorded keys of agents; none without enrolment.
    pub enrolment: Option<Arc<EnrolmentAdmin>>,
    /// Join tokens; none without enrolment and ingest.
    pub tokens: Option<Arc<JoinTokenBook>>,
    /// The collector's own metrics.
    pub registry: Arc<Registry>,
    /// Mount point of proc, for the metrics of the collector's process; usually `/proc`.
    pub procfs: Arc<Path>,
    /// Differs between starts of the collector: revisions start again then, but an `ETag` must not
    /// repeat.
    pub instance: u64,
    /// Reads what the what-if of a drain depends on.
    pub drains: Arc<DrainReader>,
    /// Reads longer histories; none without `prometheus` in the settings.
    pub histories: Option<Arc<HistoryReader>>,
    /// Long polls that wait: fewer than the server's limit on requests, so that they never block
    /// other requests.
    pub waiting: Arc<WatchSlots>,
    /// Open streams of changes.
    pub watching: Arc<WatchSlots>,
    /// Ends long polls and streams, so that they do not delay a shutdown.
    pub shutdown: CancellationToken,
}
