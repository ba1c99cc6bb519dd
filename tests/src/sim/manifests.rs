//! The manifests that an infra cluster with this fleet would have, as `kubectl get -o yaml` prints
//! them.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::plan::{Guest, Host, Plan};

/// Writes `infra/` and `clusters/<name>/` under `folder`, one file for each VMI, so that a user can
/// edit one. Does not remove files of an earlier fleet.
pub fn write_folder(folder: &Path, plan: &Plan) -> Result<()> {
    let infra = folder.join("infra");
    let nodes: Vec<String> = plan
        .hosts
        .iter()
        .map(|host| infra_node(host, &plan.region))
        .collect();
    put(&infra, "nodes.yaml", &nodes.join("---\n"))?;
    for guest in &plan.guests {
        let name = format!("vmi-{}-{}.yaml", guest.cluster, guest.name);
        put(&infra, &name, &vmi(guest, &plan.hosts[guest.host].name))?;
    }
    for cluster in &plan.clusters {
        let own = folder.join("clusters").join(cluster);
        put(&own, "cluster.yaml", &user_cluster(cluster))?;
        let guests = plan.guests.iter().filter(|guest| guest.cluster == *cluster);
        let items = guests.map(|guest| user_node(guest, &plan.hosts[guest.host], &plan.region));
        put(&own, "nodes.yaml", &list(items))?;
    }
    Ok(())
}

/// Writes a temporary file and renames it, so that a watcher sees either the whole file or none.
fn put(folder: &Path, name: &str, text: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let (new, path) = (folder.join(format!(".{name}.new")), folder.join(name));
    fs::write(&new, text).with_context(|| format!("write {}", new.display()))?;
    fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
}

/// A `v1` `List` of indented documents.
fn list(items: impl Iterator<Item = String>) -> String {
    let indented = |item: String| {
        let lines: Vec<&str> = item.lines().collect();
        format!("- {}\n", lines.join("\n  "))
    };
    std::iter::once("apiVersion: v1\nkind: List\nitems:\n".to_owned())
        .chain(items.map(indented))
        .collect()
}

/// The `VirtualMachineInstance` of `guest` on the infra node `host`.
pub fn vmi(guest: &Guest, host: &str) -> String {
    let Guest {
        cluster,
        name,
        uid,
        firmware,
        mac,
        address,
        ..
    } = guest;
    let ip = address.ip();
    format!(
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: {name}
  namespace: {cluster}
  uid: {uid}
  labels:
    cluster.x-k8s.io/cluster-name: {cluster}
    cluster.x-k8s.io/role: worker
    kubevirt.io/nodeName: {host}
    kubevirt.io/vm: {name}
spec:
  hostname: {name}
  domain:
    firmware:
      uuid: {firmware}
    devices:
      interfaces:
      - name: default
        bridge: {{}}
  networks:
  - name: default
    pod: {{}}
status:
  phase: Running
  nodeName: {host}
  guestOSInfo:
    id: debian
    prettyName: Debian GNU/Linux 12 (bookworm)
  interfaces:
  - name: default
    infoSource: domain, guest-agent
    interfaceName: eth0
    mac: \"{mac}\"
    ipAddress: {ip}
    ipAddresses:
    - {ip}
  conditions:
  - type: Ready
    status: \"True\"
---
apiVersion: v1
kind: Pod
metadata:
  name: virt-launcher-{name}-abcde
  namespace: {cluster}
  labels:
    kubevirt.io: virt-launcher
    kubevirt.io/created-by: {uid}
  creationTimestamp: \"2026-01-01T00:00:00Z\"
  ownerReferences:
  - apiVersion: kubevirt.io/v1
    kind: VirtualMachineInstance
    name: {name}
    uid: {uid}
    controller: true
spec:
  nodeName: {host}
status:
  phase: Running
  podIP: {ip}
  podIPs:
  - ip: {ip}
"
    )
}

pub(super) fn infra_node(host: &Host, region: &str) -> String {
    let Host {
        name,
        zone,
        rack,
        uid,
    } = host;
    format!(
        "\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  uid: {uid}
  labels:
    kubernetes.io/hostname: {name}
    topology.kubernetes.io/region: {region}
    topology.kubernetes.io/zone: {zone}
    infra.example.com/rack: {rack}
status:
  conditions:
  - type: Ready
    status: \"True\"
"
    )
}

fn user_cluster(name: &str) -> String {
    format!(
        "\
apiVersion: virtfleet.io/v1alpha1
kind: UserCluster
metadata:
  name: {name}
spec:
  vmis:
    namespace: {name}
    selector:
      matchLabels:
        cluster.x-k8s.io/cluster-name: {name}
"
    )
}

/// The Node of `guest` in its user cluster, registered while the VM was on `host`.
pub fn user_node(guest: &Guest, host: &Host, region: &str) -> String {
    let (name, uid, zone) = (&guest.name, &guest.node_uid, &host.zone);
    let machine = guest.firmware;
    format!(
        "\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  uid: {uid}
  labels:
    kubernetes.io/hostname: {name}
    topology.kubernetes.io/region: {region}
    topology.kubernetes.io/zone: {zone}
spec:
  providerID: kubevirt://{name}
status:
  nodeInfo:
    systemUUID: {machine}
  conditions:
  - type: Ready
    status: \"True\"
"
    )
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::layered::parse_yaml;

    use super::*;
    use crate::sim::Options;

    #[test]
    fn every_file_is_yaml_and_nothing_half_written_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new(&Options::default()).unwrap();
        write_folder(folder.path(), &plan).unwrap();
        let mut open = vec![folder.path().to_owned()];
        let mut files = 0;
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            files += 1;
            assert!(
                path.extension().is_some_and(|extension| extension == "yaml"),
                "{}",
                path.display()
            );
            parse_yaml(&fs::read_to_string(&path).unwrap()).unwrap();
        }
        assert_eq!(files, 1 + plan.guests.len() + 2 * plan.clusters.len());
    }
}
