//! One object of a manifest → a fact, by its kind and by where it lies.

use virtfleet_collector_core::facts::Fact;

use super::place::Place;
use crate::inventory::read::{self as objects, Field, Problem};

/// What an object came to.
#[derive(Debug)]
pub(super) enum Converted {
    /// A fact.
    Fact(Fact),
    /// A kind that is not used here, e.g. `v1 ConfigMap`.
    Ignored(String),
}

/// Converts an object that lies at `place`. `of_list` is the version and kind that its list names, for an item that has none.
pub(super) fn convert(
    object: &Field<'_>,
    of_list: Option<(&str, &str)>,
    place: &Place,
) -> Result<Converted, Problem> {
    let (kind, version) = (object.get("kind")?, object.get("apiVersion")?);
    let (version, kind) = match of_list {
        Some(named) if !kind.is_there() && !version.is_there() => named,
        _ => (version.required_text()?, kind.required_text()?),
    };
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let fact = match (place, group, kind) {
        (Place::Infra, "kubevirt.io", "VirtualMachineInstance") => Fact::Vmi(Box::new(objects::vmi(object)?)),
        (Place::Infra, "kubevirt.io", "VirtualMachine") => Fact::Vm(objects::vm(object)?),
        (Place::Infra, "kubevirt.io", "VirtualMachineInstanceMigration") => {
            Fact::VmiMove(objects::vmi_move(object)?)
        }
        (Place::Infra, "", "Pod") if objects::is_launcher(object) => {
            Fact::LauncherPod(objects::launcher_pod(object)?)
        }
        (Place::Policies, "virtfleet.io", "LabelPropagation") => {
            Fact::Policy(Box::new(objects::policy(object)?))
        }
        (Place::Infra, "", "Node") => Fact::InfraNode(objects::infra_node(object)?),
        (Place::Cluster(cluster), "", "Node") => Fact::UserNode(objects::user_node(object, cluster)?),
        (Place::Cluster(cluster), "virtfleet.io", "UserCluster") => {
            Fact::UserCluster(objects::user_cluster(object, Some(cluster))?)
        }
        _ => return Ok(Converted::Ignored(format!("{version} {kind}"))),
    };
    Ok(Converted::Fact(fact))
}
