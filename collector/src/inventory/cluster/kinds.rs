//! Watched kinds: their API resources, the facts that they become, and the rights needed to read
//! them.

use kube::core::{ApiResource, GroupVersionKind};
use virtfleet_collector_core::facts::{Fact, FactKey};
use virtfleet_wire::ids::{ClusterName, Namespace, VmKey};

use super::object::{MAX_KEPT_BYTES, Object};
use crate::{bounded::bounded, inventory::read};

/// Maximum characters of a problem with an object.
const MAX_PROBLEM_CHARS: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Vmi,
    Vm,
    Move,
    Launcher,
    InfraNode,
    Namespace,
    UserCluster,
    Policy,
    UserNode,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vmi => "VirtualMachineInstance",
            Self::Vm => "VirtualMachine",
            Self::Move => "VirtualMachineInstanceMigration",
            Self::Launcher => "Pod",
            Self::InfraNode | Self::UserNode => "Node",
            Self::Namespace => "Namespace",
            Self::UserCluster => "UserCluster",
            Self::Policy => "LabelPropagation",
        }
    }

    fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Vmi => ("kubevirt.io", "v1", "virtualmachineinstances"),
            Self::Vm => ("kubevirt.io", "v1", "virtualmachines"),
            Self::Move => ("kubevirt.io", "v1", "virtualmachineinstancemigrations"),
            Self::Launcher => ("", "v1", "pods"),
            Self::InfraNode | Self::UserNode => ("", "v1", "nodes"),
            Self::Namespace => ("", "v1", "namespaces"),
            Self::UserCluster => ("virtfleet.io", "v1alpha1", "userclusters"),
            Self::Policy => ("virtfleet.io", "v1alpha1", "labelpropagations"),
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        let (group, version, plural) = self.place();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, self.name()), plural)
    }

    /// The label selector of the watch; none: all objects.
    pub(super) fn labels(self) -> Option<&'static str> {
        (self == Self::Launcher).then_some("kubevirt.io=virt-launcher")
    }

    /// The resource as RBAC names it, e.g. `virtualmachines.kubevirt.io`.
    pub(super) fn rbac(self) -> String {
        let (group, _, plural) = self.place();
        if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        }
    }

    /// What is missing without it, if the collector works without it.
    pub(super) fn without(self) -> Option<&'static str> {
        match self {
            // Past migrations show where a label was copied from.
            Self::Move => Some(
                "without it, fewer labels of other writers are replaced, and a migration that KubeVirt has forgotten is not noticed",
            ),
            Self::Namespace => Some("without it, virtfleet.io/ignore on a Namespace has no effect"),
            _ => None,
        }
    }

    /// Whether the collector works without it.
    pub(super) fn is_optional(self) -> bool {
        self.without().is_some()
    }

    /// The field selector of a watch that is limited to a namespace: a Namespace is in none.
    pub(super) fn fields(self, namespace: Option<&Namespace>) -> Option<String> {
        let name = namespace.filter(|_| self == Self::Namespace)?;
        Some(format!("metadata.name={name}"))
    }

    /// The key of the fact; none if the object's name is not valid for one.
    pub(super) fn key(self, object: &Object, cluster: Option<&ClusterName>) -> Option<FactKey> {
        let vm = || {
            Some(VmKey {
                namespace: object.namespace().parse().ok()?,
                name: object.name().parse().ok()?,
            })
        };
        Some(match self {
            Self::Vmi => FactKey::Vmi(vm()?),
            Self::Vm => FactKey::Vm(vm()?),
            Self::Move => FactKey::VmiMove(object.namespace().parse().ok()?, object.name().to_owned()),
            Self::Launcher => {
                FactKey::LauncherPod(object.namespace().parse().ok()?, object.name().to_owned())
            }
            Self::InfraNode => FactKey::InfraNode(object.name().parse().ok()?),
            Self::Namespace => FactKey::Namespace(object.name().parse().ok()?),
            Self::UserCluster => FactKey::UserCluster(object.name().parse().ok()?),
            Self::Policy => FactKey::Policy(object.name().to_owned()),
            Self::UserNode => FactKey::UserNode(cluster?.clone(), object.name().parse().ok()?),
        })
    }

    /// The fact, or the path and problem of the invalid field.
    pub(super) fn fact(self, object: &Object, cluster: Option<&ClusterName>) -> Result<Fact, String> {
        if !object.is_complete() {
            return Err(format!(
                "the fields that the collector reads have more than {MAX_KEPT_BYTES} bytes; shorten its labels and annotations"
            ));
        }
        let field = object.field();
        let read = match self {
            Self::Vmi => read::vmi(&field).map(|vmi| Fact::Vmi(Box::new(vmi))),
            Self::Vm => read::vm(&field).map(Fact::Vm),
            Self::Move => read::vmi_move(&field).map(Fact::VmiMove),
            Self::Launcher => read::launcher_pod(&field).map(Fact::LauncherPod),
            Self::InfraNode => read::infra_node(&field).and_then(|mut node| {
                node.reported_ms = read::reported_ms(&field)?;
                Ok(Fact::InfraNode(node))
            }),
            Self::Namespace => read::namespace(&field).map(Fact::Namespace),
            Self::UserCluster => read::kubeconfig_secret(&field)
                .and_then(|_| read::user_cluster(&field, None))
                .map(Fact::UserCluster),
            Self::Policy => read::policy(&field).map(|policy| Fact::Policy(Box::new(policy))),
            Self::UserNode => {
                let cluster = cluster.ok_or("a Node of no cluster")?;
                let reported_ms = read::reported_ms(&field);
                read::user_node(&field, cluster).and_then(|mut node| {
                    node.resource_version = object.resource_version().map(str::to_owned);
                    node.reported_ms = reported_ms?;
                    Ok(Fact::UserNode(node))
                })
            }
        };
        // A path repeats keys, which may be as long as the object.
        read.map_err(|problem| bounded(&problem.message, MAX_PROBLEM_CHARS))
    }
}
