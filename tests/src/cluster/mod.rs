//! Real Kubernetes API servers for scenarios: each a kube-apiserver with an etcd of its own, on loopback ports, in a folder that
//! goes with it.
//!
//! ```text
//! ApiServer ─┬─ etcd, server     the two processes; stop and start again, pause and resume, compact
//!            ├─ user, rbac       who may ask: static tokens, service accounts, what they are allowed
//!            ├─ client, apply    asking as one of them; making an object be as it is given
//!            ├─ control          the controller manager and the scheduler, where a test needs them
//!            ├─ follow           a watch, with the time of each change
//!            └─ audit            who asked for what
//! kubevirt, object               KubeVirt's kinds; VMIs, VMs, migrations and Nodes as JSON
//! live, scene                    a collector on them; an infra cluster with user clusters whose labels it keeps
//! proxy                          faults between a collector and an API server
//! ```
//!
//! An API server runs alone: nothing deletes an owner's dependents, a deleted namespace stays Terminating, and a pod stays Pending,
//! unless a test starts the controller manager or the scheduler. There is no kubelet.

mod apply;
mod audit;
mod audit_policy;
mod client;
mod control;
mod discovered;
mod etcd;
mod follow;
pub mod kubevirt;
pub mod live;
mod object;
mod patience;
mod proxy;
mod rbac;
pub mod scene;
mod server;
mod user;

pub use audit::{Entry, Mark};
pub use client::{Answer, Client, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
pub use control::{ControllerManager, Scheduler};
pub use follow::{Change, Follow, streamed_list};
pub use object::{Object, infra_node, launcher, user_node, vm, vmi, vmi_of, vmim};
pub use patience::PATIENCE;
pub use proxy::{Fault, Proxy};
pub use server::ApiServer;
pub use user::User;
