//! A fleet on real API servers: infra nodes with racks, VMIs on them, and a Node for each VMI in
//! one of the user clusters.

use std::{iter, path::Path, time::Instant};

use anyhow::Result;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, ApiServer, Client, Follow, MERGE_PATCH,
        live::{self, Collector},
    },
    measure::many,
};

/// The propagated label.
pub(crate) const RACK_KEY: &str = "rack.example.com/rack";
/// The label that the edited policy adds.
pub(crate) const NEW_KEY: &str = "row.example.com/known";

/// Infra nodes, VMIs and the Nodes of the user clusters.
pub(crate) struct Fleet {
    infra: ApiServer,
    tenants: Vec<ApiServer>,
    pub(crate) vmis: usize,
    /// The infra node of each VM.
    hosts: Vec<usize>,
    /// The rack of each infra node.
    racks: Vec<String>,
}

fn post(client: &Client, path: &str, object: &Value) -> Result<()> {
    client.post(path, object)?.ok().map(drop)
}

impl Fleet {
    /// Creates all objects. `heavy`: the objects are as large as real ones.
    pub(crate) fn create(
        folder: &Path,
        vmis: usize,
        hosts: usize,
        clusters: usize,
        heavy: bool,
    ) -> Result<Self> {
        let infra = live::infra(folder)?;
        let tenants = iter::repeat_with(|| ApiServer::start(folder))
            .take(clusters)
            .collect::<Result<Vec<_>>>()?;
        infra.namespace("secrets")?;
        for (number, tenant) in tenants.iter().enumerate() {
            let name = format!("tenant-{number}");
            infra.namespace(&name)?;
            infra.apply(&live::user_cluster(&name, &name))?;
            infra.apply(&live::secret(&name, &tenant.kubeconfig(tenant.admin_user())))?;
        }
        let fleet = Self {
            hosts: (0..vmis).map(|vm| vm % hosts).collect(),
            racks: (0..hosts).map(|host| format!("r{host}")).collect(),
            infra,
            tenants,
            vmis,
        };
        many(hosts, |host| {
            let labels = [
                ("topology.kubernetes.io/zone", "zone-a"),
                (RACK_KEY, &fleet.racks[host]),
                (NEW_KEY, "yes"),
            ];
            let node = cluster::infra_node(&host_name(host), &labels);
            post(fleet.infra.admin(), "/api/v1/nodes", &weighted(node, heavy))
        })?;
        many(vmis, |vm| fleet.create_vm(vm, heavy))?;
        fleet
            .infra
            .apply(&policy(&json!([{ "prefix": "rack.example.com/" }])))?;
        Ok(fleet)
    }

    fn create_vm(&self, vm: usize, heavy: bool) -> Result<()> {
        let (name, space) = (name(vm), self.space(vm));
        let vmi = cluster::vmi(&space, &name)
            .phase("Running")
            .on(&host_name(self.hosts[vm]))
            // A VM that has just begun to run may still boot: its agent is not silent yet.
            .with(
                "/status/phaseTransitionTimestamps",
                json!([{ "phase": "Running", "phaseTransitionTimestamp": "2020-01-01T00:00:00Z" }]),
            );
        let path = format!("/apis/kubevirt.io/v1/namespaces/{space}/virtualmachineinstances");
        post(self.infra.admin(), &path, &weighted(vmi, heavy))?;
        let labels = [("kubernetes.io/hostname", name.as_str())];
        let node = cluster::user_node(&name, &format!("kubevirt://{name}"), &["10.0.0.1"], &labels);
        let node = weighted(node, heavy);
        let tenant = self.tenant(vm).admin();
        post(tenant, "/api/v1/nodes", &node)?;
        if heavy {
            // The API server ignores the status of a Node in a create request.
            let status = json!({ "status": node["status"] });
            let path = format!("/api/v1/nodes/{name}/status");
            tenant.patch(&path, MERGE_PATCH, &status)?.ok()?;
        }
        Ok(())
    }

    fn space(&self, vm: usize) -> String {
        format!("tenant-{}", vm % self.tenants.len())
    }
    fn tenant(&self, vm: usize) -> &ApiServer {
        &self.tenants[vm % self.tenants.len()]
    }
    /// The rack of the VM's host.
    pub(crate) fn rack_of(&self, vm: usize) -> String {
        self.racks[self.hosts[vm]].clone()
    }
    /// The VMs on a host.
    pub(crate) fn on(&self, host: usize) -> Vec<usize> {
        (0..self.vmis).filter(|vm| self.hosts[*vm] == host).collect()
    }
    pub(crate) fn servers(&self) -> impl Iterator<Item = &ApiServer> {
        iter::once(&self.infra).chain(&self.tenants)
    }
    /// Starts a watch of the Nodes of every user cluster.
    pub(crate) fn follow(&self) -> Result<Vec<Follow>> {
        let tenants = self.tenants.iter();
        tenants
            .map(|tenant| Follow::begin(tenant.admin(), "/api/v1/nodes"))
            .collect()
    }

    /// Starts a collector that pulls each agent every `interval` seconds.
    pub(crate) fn collector(&self, folder: &Path, interval: u64) -> Result<Collector> {
        std::fs::create_dir_all(folder)?;
        let kubeconfig = self.infra.kubeconfig(self.infra.admin_user());
        let inventory = live::settings(folder, &kubeconfig, "")?;
        let more = format!(
            "leaderElection: {{ namespace: secrets }}\n{}",
            live::NO_CONFIRMATION
        );
        let scrape = format!("  interval: {interval}s\n  timeout: {}s\n", interval.min(10));
        let collector = Collector::start_scraping(folder, &inventory, &scrape, &more)?;
        collector.until_ready()?;
        Ok(collector)
    }

    /// Moves a VM to the next host. Returns the time, taken before the patch is sent, and the new
    /// rack.
    pub(crate) fn move_on(&mut self, vm: usize) -> Result<(Instant, String)> {
        self.hosts[vm] = (self.hosts[vm] + 1) % self.racks.len();
        let host = host_name(self.hosts[vm]);
        let change = json!({ "status": { "nodeName": host }, "metadata": { "labels": { "kubevirt.io/nodeName": host } } });
        let (name, space) = (name(vm), self.space(vm));
        let path = format!("/apis/kubevirt.io/v1/namespaces/{space}/virtualmachineinstances/{name}");
        let at = Instant::now();
        self.infra.admin().patch(&path, MERGE_PATCH, &change)?.ok()?;
        Ok((at, self.rack_of(vm)))
    }

    /// Changes the rack of a host. Returns the time and the new rack.
    pub(crate) fn relabel(&mut self, host: usize) -> Result<(Instant, String)> {
        self.racks[host] = format!("{}-new", self.racks[host]);
        let change = json!({ "metadata": { "labels": { RACK_KEY: self.racks[host] } } });
        let path = format!("/api/v1/nodes/{}", host_name(host));
        let at = Instant::now();
        self.infra.admin().patch(&path, MERGE_PATCH, &change)?.ok()?;
        Ok((at, self.racks[host].clone()))
    }

    /// Sets a label on a VM's Node directly, without the collector.
    pub(crate) fn label_node(&self, vm: usize, key: &str, value: &str) -> Result<()> {
        let change = json!({ "metadata": { "labels": { key: value } } });
        let path = format!("/api/v1/nodes/{}", name(vm));
        self.tenant(vm)
            .admin()
            .patch(&path, MERGE_PATCH, &change)?
            .ok()
            .map(drop)
    }

    /// Number of VMs for which the collector reports that the agent cannot answer: no virt-launcher
    /// pod carries them.
    pub(crate) fn silent(&self) -> Result<usize> {
        let path = "/apis/virtfleet.io/v1alpha1/guesthealths";
        let list = self.infra.admin().get(path)?.ok()?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let silent = |item: &&Value| {
            let conditions = item["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "AgentReporting" && one["reason"] == "NotRunning")
        };
        Ok(items.iter().filter(silent).count())
    }

    /// Adds one more key to the policy.
    pub(crate) fn edit_policy(&self) -> Result<()> {
        let rules = json!([{ "prefix": "rack.example.com/" }, { "key": NEW_KEY }]);
        self.infra.apply(&policy(&rules)).map(drop)
    }
}

/// The name of a VM and of its Node.
pub(crate) fn name(vm: usize) -> String {
    format!("vm-{vm}")
}

fn host_name(host: usize) -> String {
    format!("host-{host}")
}

fn policy(rules: &Value) -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation",
        "metadata": { "name": "racks" }, "spec": { "labels": rules },
    })
}

/// Adds the fields that objects of real clusters have and the collector does not read: labels,
/// annotations, volumes, images.
fn weighted(object: cluster::Object, heavy: bool) -> Value {
    let mut object = object.0;
    if !heavy {
        return object;
    }
    for number in 0..12 {
        object["metadata"]["labels"][format!("kubermatic.example.com/label-{number}")] =
            format!("value-{number}").into();
        object["metadata"]["annotations"][format!("example.com/annotation-{number}")] = "x".repeat(80).into();
    }
    if object["kind"] == "Node" {
        let images = (0..40).map(|number| {
            json!({ "names": [format!("registry.example.com/some/image-{number}@sha256:{}", "0".repeat(64))], "sizeBytes": 50_000_000 })
        });
        object["status"]["images"] = images.collect();
    } else {
        let volumes = (0..6).map(|number| {
            json!({ "name": format!("volume-{number}"), "target": format!("vd{number}"), "phase": "Ready", "message": "x".repeat(100) })
        });
        object["status"]["volumeStatus"] = volumes.collect();
    }
    object
}
