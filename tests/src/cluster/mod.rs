//! Real Kubernetes API servers for scenarios: each is a kube-apiserver with its own etcd, on
//! loopback ports, in a temporary folder.
//!
//! ```text
//! ApiServer ─┬─ etcd, server     the two processes: stop, start, pause, resume, compact
//!            ├─ user, rbac       users: static tokens, service accounts, and their rights
//!            ├─ client, apply    requests as one user; creating and replacing objects
//!            ├─ control          the controller manager and the scheduler, where a test needs them
//!            ├─ follow           a watch, with the time of each change
//!            └─ audit            requests, from the audit log
//! kubevirt, object               KubeVirt's kinds; VMIs, VMs, migrations and Nodes as JSON
//! platforms                      Clusters of KKP and Cluster API, and their kubeconfigs
//! live, scene                    collectors; an infra cluster and user clusters that they label
//! proxy                          faults between a collector and an API server
//! ```
//!
//! An API server runs alone. Unless a test starts the controller manager or the scheduler,
//! dependents of a deleted owner stay, a deleted namespace stays Terminating, and a pod stays
//! Pending. There is no kubelet.

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
pub mod platforms;
mod proxy;
mod rbac;
pub mod scene;
mod server;
mod timeout;
mod user;

pub use audit::{Entry, Mark};
pub use client::{Answer, Client, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
pub use control::{ControllerManager, Scheduler};
pub use follow::{Change, Follow, streamed_list};
pub use object::{Object, infra_node, launcher, machine, machine_of_name, user_node, vm, vmi, vmi_of, vmim};
pub use proxy::{Fault, Proxy};
pub use server::ApiServer;
pub use timeout::SERVER_TIMEOUT;
pub use user::User;
