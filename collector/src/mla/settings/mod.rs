//! Settings of all streams: where samples are sent, with which labels, credentials and limits.
//!
//! ```text
//! inventory ─ spec.mla, Secrets ─▶ StreamRegistry ─ resolve ─▶ StreamSettings (watch channel)
//! fleet (files of the settings) ─▶       │
//!                                        └▶ findings, conditions
//! ```
//! A change that cannot be used, such as a broken certificate, changes nothing: the last valid
//! settings are used, and a finding and the condition `MlaConfigured` say why.

mod check;
mod fleet;
mod input;
mod parse;
mod registry;
mod resolve;
#[cfg(test)]
mod tests;
mod tls;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use virtfleet_collector_core::mla::relabel::RelabelRule;
pub use virtfleet_collector_core::mla::status::StreamName;

use crate::mla::send::Endpoint;

pub(crate) use self::{
    check::{MAX_INTERVAL, Sections, check_headers, check_stream, check_url},
    fleet::{check_fleet, read_files},
};
pub use self::{
    fleet::follow_fleet,
    input::{SecretLookup, SecretValues, TenantMla},
    parse::parse_spec,
    registry::{MlaCondition, StreamRegistry},
    resolve::StreamDefaults,
};

#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// Where samples are sent. None: they are queued, and `problem` says why they cannot be sent.
    pub endpoint: Option<Endpoint>,
    /// Labels that are added to each series: name and value, by name. A guest's own label of such
    /// a name is renamed.
    pub external_labels: Vec<(String, String)>,
    /// Labels with the placement that are added to each series.
    pub placement_labels: Vec<PlacementLabel>,
    /// Relabelling, in its order; its rules are valid.
    pub relabel: Vec<RelabelRule>,
    /// Minimum time between two pages of a VM, a little shorter than the interval that is set, so
    /// that the nearest pull is taken; zero: each page is taken.
    pub min_gap: Duration,
    pub limits: StreamLimits,
    /// No samples are taken or sent.
    pub suspend: bool,
    /// The stream has the samples of guests. False: only those of the platform.
    pub guests: bool,
    /// When the client certificate ends, in seconds since 1970; none without one.
    pub certificate_ends: Option<u64>,
    /// Why the present settings cannot be used; these are the last valid ones.
    pub problem: Option<String>,
}

impl StreamSettings {
    /// Whether both have the same endpoint. The registry keeps the TLS configuration if its input
    /// is unchanged.
    pub(crate) fn has_endpoint_of(&self, other: &Self) -> bool {
        let (a, b) = match (&self.endpoint, &other.endpoint) {
            (Some(a), Some(b)) => (a, b),
            (None, None) => return true,
            _ => return false,
        };
        let is_same_tls = match (&a.tls, &b.tls) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        is_same_tls
            && a.url == b.url
            && a.headers == b.headers
            && a.server_name == b.server_name
            && a.protocol == b.protocol
            && a.compression == b.compression
            && a.timeout == b.timeout
            && a.user_agent == b.user_agent
    }

    /// Whether the client certificate has ended at `now`, in seconds since 1970.
    pub fn is_certificate_expired(&self, now: u64) -> bool {
        self.certificate_ends.is_some_and(|end| end <= now)
    }
}

/// Settings of all streams.
pub type AllStreamSettings = Arc<BTreeMap<StreamName, StreamSettings>>;

/// A label with the placement of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementLabel {
    pub name: String,
    /// Where its value comes from.
    pub value: PlacementValue,
}

/// Part of the placement of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementValue {
    /// The zone of the infra node.
    Zone,
    /// The region of the infra node.
    Region,
    InfraNode,
    /// The infra node's label with this key.
    NodeLabel(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum size of the queue on disk in bytes.
    pub queue_bytes: u64,
    /// Maximum age of a queued sample.
    pub queue_age: Duration,
    /// Maximum number of samples of one VM's page.
    pub samples_per_page: u64,
    /// Maximum number of series of one VM after the rules.
    pub series_per_vm: u64,
    /// Maximum number of series of all VMs after the rules.
    pub series: u64,
    /// Maximum number of labels of a series.
    pub label_names: usize,
    /// Maximum bytes of a label's value.
    pub label_value_bytes: usize,
}
