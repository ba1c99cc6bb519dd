//! An infra cluster and a user cluster on real API servers, and collectors between them.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
pub(crate) use virtfleet_tests::cluster::live::{Collector, WAIT_TIMEOUT};
use virtfleet_tests::{
    cluster::{self, ApiServer, Entry, Mark, live},
    wait,
};

/// The namespace of the VMs, and of the Lease.
pub(crate) const NAMESPACE: &str = "vms";

/// The VMs of [`Stage::until_idle`] are named so.
pub(crate) const MARKER: &str = "marker-";

pub(crate) struct Stage {
    pub(crate) infra: ApiServer,
    pub(crate) tenant: ApiServer,
    folder: TempDir,
    markers: AtomicUsize,
}

impl Stage {
    /// Two hosts in two racks, one user cluster, and a policy that lets `rack` follow.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let infra = live::infra(folder.path())?;
        let tenant = ApiServer::start(folder.path())?;
        for name in [NAMESPACE, "secrets"] {
            infra.namespace(name)?;
        }
        infra.apply(&live::secret("prod", &tenant.kubeconfig(tenant.admin_user())))?;
        infra.apply(&live::user_cluster("prod", NAMESPACE))?;
        let stage = Self {
            infra,
            tenant,
            folder,
            markers: AtomicUsize::new(0),
        };
        stage.host("host-1", "rack-1")?;
        stage.host("host-2", "rack-2")?;
        stage.policy(&["rack"])?;
        Ok(stage)
    }

    pub(crate) fn host(&self, name: &str, rack: &str) -> Result<()> {
        let labels = [("rack", rack), ("room", "room-1")];
        let node = cluster::infra_node(name, &labels).condition("Ready", "True", "KubeletReady");
        self.infra.apply(&node).map(drop)
    }

    /// The only policy: these keys follow.
    pub(crate) fn policy(&self, keys: &[&str]) -> Result<()> {
        let rules: Vec<_> = keys
            .iter()
            .map(|key| json!({ "key": key, "mode": "Follow" }))
            .collect();
        let policy = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation",
            "metadata": { "name": "places" }, "spec": { "labels": rules },
        });
        self.infra.apply(&policy).map(drop)
    }

    pub(crate) fn vmi(&self, name: &str, host: &str) -> Result<Value> {
        self.infra
            .apply(&cluster::vmi(NAMESPACE, name).phase("Running").on(host))
    }

    pub(crate) fn node(&self, name: &str) -> Result<Value> {
        let provider = format!("kubevirt://{name}");
        // Both families, as a dual-stack Node has them.
        let addresses = ["10.0.0.1", "fd00::1"];
        let node = cluster::user_node(name, &provider, &addresses, &[("foreign", "kept")]);
        self.tenant
            .apply(&node.condition("Ready", "True", "KubeletReady"))
    }

    pub(crate) fn live_node(&self, name: &str) -> Result<Value> {
        let answer = self.tenant.admin().get(&format!("/api/v1/nodes/{name}"))?;
        answer.ok()
    }

    pub(crate) fn label(&self, node: &str, key: &str) -> Result<Option<String>> {
        let node = self.live_node(node)?;
        ensure!(
            node["metadata"]["labels"]["foreign"] == "kept",
            "a foreign label was touched"
        );
        Ok(node["metadata"]["labels"][key].as_str().map(str::to_owned))
    }

    pub(crate) fn until_label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        wait::eventually(WAIT_TIMEOUT, &format!("{key} of {node} is {value:?}"), || {
            let now = self.label(node, key)?;
            ensure!(now.as_deref() == value, "{now:?}");
            Ok(())
        })
    }

    /// Waits until `collector` has done everything that follows from what has happened so far to
    /// VMIs and Nodes, as `Scene::until_idle` does; returns the name of the VM that it adds.
    pub(crate) fn until_idle(&self, collector: &Collector, host: &str) -> Result<String> {
        let name = format!("{MARKER}{}", self.markers.fetch_add(1, Ordering::Relaxed));
        self.vmi(&name, host)?;
        self.node(&name)?;
        wait::eventually(WAIT_TIMEOUT, &format!("rack of {name}"), || {
            self.label(&name, "rack")?.context("no label yet")
        })?;
        collector.until_no_labels_queued("prod")?;
        self.until_health(&name, "LabelsInSync", "True", "InLine")?;
        Ok(name)
    }

    /// Patches of Nodes by collectors since `mark`, without those of [`Stage::until_idle`].
    pub(crate) fn patches(&self, mark: Mark) -> Result<Vec<Entry>> {
        let all = self.tenant.audit_since(mark)?.into_iter();
        let patch = |one: &Entry| one.verb == "patch" && one.resource == "nodes";
        let ours = |one: &Entry| one.uri.contains("fieldManager=virtfleet");
        let counts = |one: &Entry| !one.name.starts_with(MARKER);
        Ok(all.filter(|one| patch(one) && ours(one) && counts(one)).collect())
    }

    /// The GuestHealth of a VM.
    pub(crate) fn health(&self, name: &str) -> Result<Value> {
        let path = format!("/apis/virtfleet.io/v1alpha1/namespaces/{NAMESPACE}/guesthealths/{name}");
        self.infra.admin().get(&path)?.ok()
    }

    pub(crate) fn until_health(&self, name: &str, kind: &str, status: &str, reason: &str) -> Result<Value> {
        wait::eventually(
            WAIT_TIMEOUT,
            &format!("{kind} of {name} is {status} {reason}"),
            || {
                let health = self.health(name)?;
                let all = health["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let one = all
                    .iter()
                    .find(|one| one["type"] == kind)
                    .context("no such condition")?;
                ensure!(one["status"] == status && one["reason"] == reason, "{one}");
                Ok(health)
            },
        )
    }

    /// Notes of Events with this reason.
    pub(crate) fn events(&self, namespace: &str, reason: &str) -> Result<Vec<String>> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let list = self.infra.admin().get(&path)?.ok()?;
        let all = list["items"].as_array().context("items")?.iter();
        let of = all.filter(|one| one["reason"] == reason);
        Ok(of
            .map(|one| one["note"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// Who the Lease names.
    pub(crate) fn holder(&self) -> Result<String> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/virtfleet-collector");
        let lease = self.infra.admin().get(&path)?.ok()?;
        Ok(lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Starts a collector; `name` is its folder.
    pub(crate) fn collector(&self, name: &str) -> Result<Collector> {
        let inventory = live::settings(
            self.folder.path(),
            &self.infra.kubeconfig(self.infra.admin_user()),
            "",
        )?;
        let election = format!(
            "leaderElection: {{ namespace: {NAMESPACE}, leaseSeconds: 3, renewSeconds: 2, retrySeconds: 1 }}\n\
             labels: {{ confirmChange: 15s, confirmRemoval: 5s }}\n"
        );
        let collector = Collector::start_with(&self.folder.path().join(name), &inventory, &election)?;
        collector.until_ready()?;
        Ok(collector)
    }
}
