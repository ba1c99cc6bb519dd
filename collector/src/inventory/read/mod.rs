//! Converts one Kubernetes object into one fact, or an error that names the invalid field.

mod field;
mod launcher;
mod objects;
mod owner;
mod policy;
mod secret;
mod status;

pub(super) use field::{Field, Problem};
pub(super) use launcher::{is_launcher, launcher_pod};
pub(super) use objects::{infra_node, user_cluster, user_node, vm, vmi, vmi_move};
pub(super) use policy::policy;
pub(super) use secret::{SecretRef, kubeconfig_secret};
