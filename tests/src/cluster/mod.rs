//! Real Kubernetes API servers for scenarios: each a kube-apiserver with an etcd of its own, on loopback ports, in a folder that
//! goes with it.
//!
//! ```text
//! ApiServer ─┬─ etcd, server     the two processes; stop and start again, pause and resume, compact
//!            ├─ user, rbac       who may ask: static tokens, service accounts, what they are allowed
//!            ├─ client, apply    asking as one of them; making an object be as it is given
//!            └─ audit            who asked for what
//! kubevirt, object               KubeVirt's kinds; VMIs, VMs, migrations and Nodes as JSON
//! ```
//!
//! There is only the API server: no controller manager, scheduler or kubelet. So nothing collects an owner's dependents, a
//! deleted namespace stays Terminating, and a namespace has no default service account.

mod apply;
mod audit;
mod client;
mod etcd;
pub mod kubevirt;
mod object;
mod rbac;
mod server;
mod user;

pub use audit::Entry;
pub use client::{Answer, Client, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
pub use object::{Object, infra_node, user_node, vm, vmi, vmi_of, vmim};
pub use server::{ApiServer, PATIENCE};
pub use user::User;
