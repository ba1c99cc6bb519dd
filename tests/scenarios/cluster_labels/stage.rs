//! An infra cluster and a user cluster on real API servers, and collectors between them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    bins,
    cluster::{self, ApiServer, Entry, kubevirt},
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};

/// How long anything may take before a test says that it does not happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of the VMs, and of the Lease.
pub(crate) const NAMESPACE: &str = "vms";

pub(crate) struct Stage {
    pub(crate) infra: ApiServer,
    pub(crate) tenant: ApiServer,
    folder: TempDir,
}

/// A running collector.
pub(crate) struct Collector {
    pub(crate) process: Process,
    api: SocketAddr,
}

impl Stage {
    /// Two hosts in two racks, one user cluster, and a policy that lets `rack` follow.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let infra = ApiServer::start(folder.path())?;
        let tenant = ApiServer::start(folder.path())?;
        kubevirt::install(&infra)?;
        let ours = Launch::new(bins::collector()?)
            .args(["crds", "-o", "json"])
            .text(PATIENCE)?;
        let ours: Value = serde_json::from_str(&ours)?;
        infra.install(ours["items"].as_array().context("items")?)?;
        for name in [NAMESPACE, "secrets"] {
            infra.namespace(name)?;
        }
        infra.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "namespace": "secrets", "name": "prod" },
            "stringData": { "kubeconfig": tenant.kubeconfig(tenant.admin_user()) },
        }))?;
        infra.apply(&json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": "prod" },
            "spec": {
                "vmis": { "namespace": NAMESPACE },
                "kubeconfig": { "secret": { "namespace": "secrets", "name": "prod" } },
            },
        }))?;
        let stage = Self {
            infra,
            tenant,
            folder,
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
        wait::eventually(PATIENCE, &format!("{key} of {node} is {value:?}"), || {
            let now = self.label(node, key)?;
            ensure!(now.as_deref() == value, "{now:?}");
            Ok(())
        })
    }

    /// Patches of Nodes by collectors since `mark`.
    pub(crate) fn patches(&self, mark: u64) -> Result<Vec<Entry>> {
        let all = self.tenant.audit_since(mark)?.into_iter();
        let patch = |one: &Entry| one.verb == "patch" && one.resource == "nodes";
        let ours = |one: &Entry| one.uri.contains("fieldManager=virtfleet");
        Ok(all.filter(|one| patch(one) && ours(one)).collect())
    }

    /// The GuestHealth of a VM.
    pub(crate) fn health(&self, name: &str) -> Result<Value> {
        let path = format!("/apis/virtfleet.io/v1alpha1/namespaces/{NAMESPACE}/guesthealths/{name}");
        self.infra.admin().get(&path)?.ok()
    }

    pub(crate) fn until_health(&self, name: &str, kind: &str, status: &str, reason: &str) -> Result<Value> {
        wait::eventually(
            PATIENCE,
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
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        let config = self.config(&folder)?;
        let process = Launch::new(bins::collector()?)
            .arg("serve")
            .arg("--config")
            .arg(&config.0)
            .start(&folder)?;
        let collector = Collector {
            process,
            api: config.1,
        };
        collector.until_ready()?;
        Ok(collector)
    }

    fn config(&self, folder: &Path) -> Result<(PathBuf, SocketAddr)> {
        let authority = Authority::new("virtfleet test authority")?;
        let pki = folder.join("pki");
        pki::write(&pki, "collector", &authority, &authority.collector()?)?;
        let kubeconfig = folder.join("infra.kubeconfig");
        fs::write(&kubeconfig, self.infra.kubeconfig(self.infra.admin_user()))?;
        let api = ports::free()?;
        let (pki, kubeconfig) = (pki.display(), kubeconfig.display());
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ cluster: {{ kubeconfig: {kubeconfig} }} }}\n\
             leaderElection: {{ namespace: {NAMESPACE}, leaseSeconds: 3, renewSeconds: 2, retrySeconds: 1 }}\n\
             server: {{ address: \"{api}\" }}\nscrape:\n  allowCIDRs: [127.0.0.0/8]\n  tls:\n    ca: {pki}/ca.pem\n    \
             certificate: {pki}/collector.pem\n    key: {pki}/collector.key\n    trustDomain: {}\n",
            pki::TRUST_DOMAIN
        );
        let file = folder.join("collector.yaml");
        fs::write(&file, text)?;
        Ok((file, api))
    }
}

impl Collector {
    fn get(&self, path: &str) -> Result<virtfleet_tests::scrape::Answer> {
        Client::plain(self.api, PATIENCE)?.get(path)
    }

    fn until_ready(&self) -> Result<()> {
        wait::eventually(PATIENCE, "the collector is ready", || {
            self.get("/readyz")?.ok().map(drop)
        })
    }

    /// A sample without labels.
    pub(crate) fn sample(&self, name: &str) -> Result<f64> {
        let answer = self.get("/metrics")?.ok()?;
        let page = answer.text()?;
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        let value = line
            .and_then(|line| line.rsplit(' ').next())
            .with_context(|| format!("no {name}"))?;
        Ok(value.parse()?)
    }

    pub(crate) fn leads(&self) -> Result<bool> {
        Ok(self.sample("virtfleet_collector_leader")? > 0.0)
    }

    pub(crate) fn until_leads(&self) -> Result<()> {
        wait::eventually(PATIENCE, "it leads", || {
            ensure!(self.leads()?, "it does not");
            Ok(())
        })
    }
}
