//! A fleet of simulated guests: each is an agent on a loopback address of its own, with its own certificate, exposition and
//! report, and the manifests that an infra cluster would have of it. All of it follows from a seed.
//!
//! ```text
//! Options ─▶ Plan (a value: hosts, clusters, guests, faults) ─┬─▶ manifests: the folder that the collector watches
//!                                                             ├─▶ page, report: what a guest says at a given time
//!                                                             └─▶ Fleet: listeners, TLS, faults
//! ```

mod fault;
mod manifests;
mod model;
mod page;
mod plan;
mod report;
mod rng;
mod serve;
mod trouble;

pub use fault::{Fault, LATE};
pub use manifests::{user_node, vmi, write_folder};
pub use model::Model;
pub use page::write_page;
pub use plan::{Guest, Host, Options, Plan};
pub use report::guest_report;
pub use rng::Random;
pub use serve::{Fleet, raise_file_limit};
