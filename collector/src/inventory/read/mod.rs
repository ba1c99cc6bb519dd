//! Converts one Kubernetes object into one fact, or an error that names the invalid field.

mod capacity;
mod field;
mod launcher;
mod objects;
mod os;
mod owner;
mod policy;
mod scheduling;
mod secret;
mod status;
mod vmi_spec;
mod volumes;

#[cfg(test)]
pub(super) use field::asked;
pub(super) use field::{Field, Problem};
pub(super) use launcher::{is_launcher, launcher_pod};
pub(super) use objects::{infra_node, namespace, user_cluster, user_node, vm, vmi, vmi_move};
pub(super) use os::ANNOTATIONS;
pub(super) use policy::policy;
pub(super) use secret::{ManifestSecret, SecretRef, kubeconfig_secret, secret};
pub(super) use status::reported_ms;
