//! Pure core of the collector: joins, placement, findings, label plans. It has no async runtime, no
//! files and no clock; the caller passes the time.
//!
//! ```text
//! facts (inventory) ──▶ index ──▶ view (API, metrics, CLI)
//! pulls (scrape)    ──▶   │
//!                         │      └──▶ access: what a tenant may see of it
//!                         ├──▶ dial: which address of a VM may be dialled; way: directly or through a relay
//!                         ├──▶ labels: the desired labels of its Node, and the patch
//!                         ├──▶ health: verdict and conditions of a VM; fleet_status: of all VMs
//!                         └──▶ enrolment: whether its agent gets a certificate
//! ```
//!
//! Inside the index: [`index`] applies events and finds the affected VMs; `keys` has the values
//! that VMs share; [`tenant`] and `join` assign user cluster and Node; [`pending`] handles VMs
//! without `UserCluster`; [`state`] and [`identity`] evaluate the VM; `derive` makes its view and
//! findings; `snapshot` counts hosts and clusters.

pub mod access;
mod agent;
pub mod authority;
pub mod budget;
mod cluster_label;
pub mod connect_head;
pub mod connect_rate;
mod derive;
mod detail;
pub mod dial;
pub mod enrolment;
pub mod expected;
pub mod facts;
pub mod findings;
pub mod fleet_status;
pub mod health;
pub mod identity;
pub mod index;
mod join;
pub mod join_token;
mod keys;
mod label_map;
pub mod labels;
mod node_match;
pub mod pending;
pub mod pull_result;
pub mod report;
pub mod reported;
mod selector;
mod selectors;
mod small_set;
mod snapshot;
pub mod special_ranges;
pub mod state;
mod store;
pub mod tenant;
pub mod view;
pub mod way;

pub use virtfleet_wire::host_port;
