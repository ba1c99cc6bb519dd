//! Converts an object of a manifest into a fact, by its kind and the manifest's scope.

use virtfleet_collector_core::facts::Fact;

use super::scope::ManifestScope;
use crate::inventory::read::{self as objects, Field, ManifestSecret, Problem};

/// Result of a conversion.
#[derive(Debug)]
pub(super) enum Converted {
    Fact(Fact),
    /// A Secret of a user cluster's folder.
    Secret(ManifestSecret),
    /// An unused kind, e.g. `v1 ConfigMap`.
    Ignored(String),
}

/// Converts an object with the scope `scope`. `of_list` has version and kind from its list, for an
/// item without them.
pub(super) fn convert(
    object: &Field<'_>,
    of_list: Option<(&str, &str)>,
    scope: &ManifestScope,
) -> Result<Converted, Problem> {
    let (kind, version) = (object.get("kind")?, object.get("apiVersion")?);
    let (version, kind) = match of_list {
        Some(named) if !kind.is_there() && !version.is_there() => named,
        _ => (version.required_text()?, kind.required_text()?),
    };
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let fact = match (scope, group, kind) {
        (ManifestScope::Infra, "kubevirt.io", "VirtualMachineInstance") => {
            Fact::Vmi(Box::new(objects::vmi(object)?))
        }
        (ManifestScope::Infra, "kubevirt.io", "VirtualMachine") => Fact::Vm(objects::vm(object)?),
        (ManifestScope::Infra, "kubevirt.io", "VirtualMachineInstanceMigration") => {
            Fact::VmiMove(objects::vmi_move(object)?)
        }
        (ManifestScope::Infra, "", "Pod") if objects::is_launcher(object) => {
            Fact::LauncherPod(objects::launcher_pod(object)?)
        }
        (ManifestScope::Policies, "virtfleet.io", "LabelPropagation") => {
            Fact::Policy(Box::new(objects::policy(object)?))
        }
        (ManifestScope::Infra, "", "Node") => Fact::InfraNode(objects::infra_node(object)?),
        (ManifestScope::Infra, "", "Namespace") => Fact::Namespace(objects::namespace(object)?),
        (ManifestScope::Cluster(cluster), "", "Node") => Fact::UserNode(objects::user_node(object, cluster)?),
        (ManifestScope::Cluster(cluster), "virtfleet.io", "UserCluster") => {
            Fact::UserCluster(objects::user_cluster(object, Some(cluster))?)
        }
        (ManifestScope::Cluster(_), "", "Secret") => return Ok(Converted::Secret(objects::secret(object)?)),
        _ => return Ok(Converted::Ignored(format!("{version} {kind}"))),
    };
    Ok(Converted::Fact(fact))
}
