//! Pure core of the collector: joins, placement, findings, label plans. It has no async runtime, no
//! files and no clock; the caller passes the time.
//!
//! ```text
//! facts (inventory) ──▶ index ──▶ view (API, metrics, CLI)
//! pulls (scrape)    ──▶   │
//!                         │      └──▶ access: what a tenant may see of it
//!                         ├──▶ dial: which address of a VM may be dialled; way: directly or through a relay
//!                         ├──▶ labels: the desired labels of its Node, and the patch
//!                         ├──▶ spec_check: what the VMI asks for against what the guest sees
//!                         ├──▶ health: verdict and conditions of a VM; fleet_status: of all VMs
//!                         ├──▶ story: what happened to a VM: verdicts, migrations, restarts
//!                         └──▶ enrolment: whether its agent gets a certificate
//! ```
//!
//! Inside the index: [`index`] applies events and finds the affected VMs; `keys` has the values
//! that VMs share; [`tenant`] and `join` assign user cluster and Node; [`pending`] handles VMs
//! without `UserCluster`; [`state`] and [`identity`] evaluate the VM; `derive` makes its view and
//! findings; `snapshot` counts hosts and clusters.

mod abandoned;
pub mod access;
mod agent;
pub mod authority;
pub mod budget;
mod cluster_label;
pub mod cluster_source;
pub mod connect_head;
pub mod connect_rate;
pub mod contention;
mod cpu_flags;
mod derive;
mod detail;
pub mod dial;
pub mod disk_serials;
pub mod enrolment;
pub mod expected;
pub mod facts;
pub mod findings;
pub mod fleet_changes;
pub mod fleet_status;
mod guest_hardware;
pub mod health;
mod heartbeats;
pub mod history_probe;
pub mod identity;
pub mod index;
mod join;
pub mod join_token;
mod keys;
mod label_map;
pub mod labels;
pub mod longer_history;
mod machine;
pub mod managed;
pub mod mla;
pub mod namespace;
pub mod node_conditions;
pub mod object_change;
pub mod pending;
pub mod placement;
mod pull_history;
pub mod pull_result;
pub mod queue_traffic;
pub mod report;
pub mod reported;
pub mod scheduling;
mod selector;
pub mod selector_text;
mod selectors;
mod shared_nodes;
mod small_set;
mod snapshot;
mod spec_check;
pub mod spec_view;
pub mod special_ranges;
pub mod state;
mod store;
pub mod story;
pub mod tenant;
mod unconfirmed;
pub mod usage;
pub mod usage_history;
pub mod view;
pub mod vmi_spec;
pub mod volumes;
pub mod way;
#[cfg(test)]
mod word_tests;

pub use virtfleet_wire::host_port;
