//! A fleet of simulated guests. Each is an agent on a separate loopback address with its own
//! certificate, metrics page and report. Includes the manifests that an infra cluster would have.
//! Everything is derived from a seed.
//!
//! ```text
//! Options ─▶ Plan (a value: hosts, clusters, guests, faults) ─┬─▶ manifests: the folder for the collector
//!                                                             ├─▶ page, report: a guest's responses
//!                                                             ├─▶ Fleet: listeners, TLS, faults
//!                                                             └─▶ enrol: agents that enrol
//! ```

mod collector;
pub mod enrol;
mod fault;
mod manifests;
mod model;
mod page;
mod plan;
mod report;
mod rng;
mod serve;
mod sick;
mod trouble;

pub use collector::{start_collector, start_collector_with};
pub use fault::{Fault, LATE};
pub use manifests::{user_node, vmi, write_folder};
pub use model::Model;
pub use page::write_page;
pub use plan::{Guest, Host, Options, Plan};
pub use report::guest_report;
pub use rng::Random;
pub use serve::{Fleet, raise_file_limit};
pub use sick::{nodes_without, paused_vmi, stopped_vm};
