//! Sets the serials of one VirtualMachine.

use serde_json::Value;
use virtfleet_collector_core::disk_serials::{DiskDecision, plan_serials, same_disks, serials_patch};

use super::{
    report::VmSerials,
    selection::SelectedVm,
    virtual_machines::{PatchError, VirtualMachines},
};

/// Plans the disks of a VM and, without `dry_run`, writes the serials. A patch that is refused
/// because the disks have changed is planned again, once.
pub(super) async fn set_serials(vms: &VirtualMachines, selected: SelectedVm, dry_run: bool) -> VmSerials {
    let SelectedVm { namespace, name, vm } = selected;
    let (decisions, error) = match vm {
        Ok(vm) => {
            let decisions = plan_serials(&vm);
            match serials_patch(&vm, &decisions).filter(|_| !dry_run) {
                Some(patch) => write(vms, (&namespace, &name), &vm, decisions, &patch).await,
                None => (decisions, None),
            }
        }
        Err(why) => (Vec::new(), Some(why)),
    };
    VmSerials {
        namespace,
        name,
        decisions,
        error,
    }
}

/// Writes a patch. Returns the decisions that hold, and the error.
async fn write(
    vms: &VirtualMachines,
    (namespace, name): (&str, &str),
    vm: &Value,
    decisions: Vec<DiskDecision>,
    patch: &Value,
) -> (Vec<DiskDecision>, Option<String>) {
    let why = match vms.patch(namespace, name, patch).await {
        Ok(()) => return (decisions, None),
        Err(PatchError::Failed(why)) => return (decisions, Some(why)),
        Err(PatchError::Refused(why)) => why,
    };
    let now = match vms.get(namespace, name).await {
        Ok(Some(now)) => now,
        Ok(None) => return (decisions, Some("it was deleted meanwhile".to_owned())),
        Err(why) => return (decisions, Some(why)),
    };
    if same_disks(vm, &now) {
        return (decisions, Some(why));
    }
    let decisions = plan_serials(&now);
    let Some(patch) = serials_patch(&now, &decisions) else {
        return (decisions, None);
    };
    match vms.patch(namespace, name, &patch).await {
        Ok(()) => (decisions, None),
        Err(PatchError::Failed(why)) => (decisions, Some(why)),
        Err(PatchError::Refused(why)) => {
            let why = format!("its disks change at the same time ({why}): run the command again");
            (decisions, Some(why))
        }
    }
}
