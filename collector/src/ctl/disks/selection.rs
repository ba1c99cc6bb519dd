//! Finds the VirtualMachines of the arguments.

use std::collections::BTreeSet;

use kube::api::ListParams;
use serde_json::Value;
use virtfleet_collector_core::disk_serials::{is_cluster_node, names_cluster};
use virtfleet_wire::ids::{Namespace, VmName};

use super::{args::SerialArgs, virtual_machines::VirtualMachines};
use crate::ctl::fail::Fail;

/// The VMs of a command.
pub(super) struct SerialSelection {
    pub(super) vms: Vec<SelectedVm>,
    /// VMs that were left out because they are not nodes of a user cluster.
    pub(super) left_out: usize,
}

pub(super) struct SelectedVm {
    /// Empty for a VM that was named without namespace and not found.
    pub(super) namespace: String,
    pub(super) name: String,
    /// The VirtualMachine, or why it cannot be read.
    pub(super) vm: Result<Value, String>,
}

impl SelectedVm {
    fn found(vm: Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            namespace: text(&vm["metadata"]["namespace"]),
            name: text(&vm["metadata"]["name"]),
            vm: Ok(vm),
        }
    }
}

/// Reads the VMs.
///
/// # Errors
/// An argument is not a name, or a list cannot be read. A named VM that does not exist is no error
/// of the selection.
pub(super) async fn select(vms: &VirtualMachines, args: &SerialArgs) -> Result<SerialSelection, Fail> {
    for namespace in &args.namespace {
        check_namespace(namespace)?;
    }
    if args.names.is_empty() {
        by_filters(vms, args).await
    } else {
        let mut selected = Vec::new();
        let mut keys = BTreeSet::new();
        for name in &args.names {
            let vm = named(vms, args, name).await?;
            if keys.insert((vm.namespace.clone(), vm.name.clone())) {
                selected.push(vm);
            }
        }
        Ok(SerialSelection {
            vms: selected,
            left_out: 0,
        })
    }
}

fn check_namespace(text: &str) -> Result<(), Fail> {
    let namespace: Result<Namespace, _> = text.parse();
    namespace
        .map(|_| ())
        .map_err(|error| Fail::Usage(error.to_string()))
}

async fn by_filters(vms: &VirtualMachines, args: &SerialArgs) -> Result<SerialSelection, Fail> {
    let mut params = ListParams::default();
    if let Some(selector) = &args.selector {
        params = params.labels(selector);
    }
    let mut all = Vec::new();
    for namespace in places(args) {
        all.extend(vms.list(namespace, params.clone()).await?);
    }
    let is_of_cluster =
        |vm: &Value| args.cluster.is_empty() || args.cluster.iter().any(|cluster| names_cluster(vm, cluster));
    all.retain(is_of_cluster);
    let (nodes, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(is_cluster_node);
    Ok(SerialSelection {
        vms: nodes.into_iter().map(SelectedVm::found).collect(),
        left_out: others.len(),
    })
}

/// The namespaces of the arguments, each once; `None` stands for all.
fn places(args: &SerialArgs) -> BTreeSet<Option<&str>> {
    let namespaces = args.namespace.iter().map(|namespace| Some(namespace.as_str()));
    let places: BTreeSet<_> = namespaces.collect();
    if places.is_empty() { [None].into() } else { places }
}

/// The VM of an argument, whatever its labels.
async fn named(vms: &VirtualMachines, args: &SerialArgs, text: &str) -> Result<SelectedVm, Fail> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let checked: Result<VmName, _> = name.parse();
    checked.map_err(|error| Fail::Usage(error.to_string()))?;
    if let Some(namespace) = namespace {
        check_namespace(namespace)?;
        if !args.namespace.is_empty() && !args.namespace.iter().any(|one| one == namespace) {
            return Err(Fail::Usage(format!(
                "{text} is not in a namespace of --namespace: remove the option, or the namespace of the name"
            )));
        }
        return Ok(in_namespace(vms, namespace, name).await);
    }
    if let [namespace] = args.namespace.as_slice() {
        return Ok(in_namespace(vms, namespace, name).await);
    }
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut found = Vec::new();
    for namespace in places(args) {
        found.extend(vms.list(namespace, params.clone()).await?);
    }
    let missing = |why: String| SelectedVm {
        namespace: String::new(),
        name: name.to_owned(),
        vm: Err(why),
    };
    Ok(match found.len() {
        0 => missing(NOT_FOUND.to_owned()),
        1 => SelectedVm::found(found.remove(0)),
        _ => {
            let keys = found.into_iter().map(SelectedVm::found);
            let keys: Vec<_> = keys.map(|vm| format!("{}/{}", vm.namespace, vm.name)).collect();
            missing(format!(
                "several VMs have this name: {}; name one of these",
                keys.join(", ")
            ))
        }
    })
}

const NOT_FOUND: &str = "there is no VirtualMachine with this name; a VirtualMachineInstance alone has no spec that can be \
    changed";

async fn in_namespace(vms: &VirtualMachines, namespace: &str, name: &str) -> SelectedVm {
    let read = vms.get(namespace, name).await;
    SelectedVm {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        vm: read.and_then(|found| found.ok_or_else(|| NOT_FOUND.to_owned())),
    }
}
