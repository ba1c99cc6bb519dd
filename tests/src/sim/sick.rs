//! Manifests of VMs and infra nodes that are not well.

use super::{
    manifests::vmi,
    plan::{Guest, Plan},
};

/// The VMI of `guest` on `host`, which qemu has paused after an I/O error with this message.
pub fn paused_vmi(guest: &Guest, host: &str, message: &str) -> String {
    let ready = "  - type: Ready\n    status: \"True\"\n";
    let paused = format!(
        "{ready}  - type: Paused\n    status: \"True\"\n    reason: PausedIOError\n    message: \"{message}\"\n"
    );
    vmi(guest, host).replacen(ready, &paused, 1)
}

/// A `VirtualMachine` of a user cluster that does not run.
pub fn stopped_vm(cluster: &str, name: &str) -> String {
    format!(
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: {name}
  namespace: {cluster}
  uid: 0a1b2c3d-0000-4000-8000-000000000001
  labels:
    cluster.x-k8s.io/cluster-name: {cluster}
spec:
  runStrategy: Halted
  template:
    metadata:
      labels:
        cluster.x-k8s.io/cluster-name: {cluster}
status:
  printableStatus: Stopped
"
    )
}

/// `infra/nodes.yaml` of the fleet, in which `host` is not ready.
pub fn nodes_without(plan: &Plan, host: &str) -> String {
    let nodes = plan.hosts.iter().map(|one| {
        let node = super::manifests::infra_node(one, &plan.region);
        if one.name == host {
            node.replace("status: \"True\"", "status: \"False\"")
        } else {
            node
        }
    });
    nodes.collect::<Vec<_>>().join("---\n")
}
