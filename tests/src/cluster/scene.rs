//! An infra cluster, user clusters, and collectors between them that may do there no more than they need.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    ApiServer, Entry, Follow, Mark, User, infra_node,
    live::{self, Collector, PATIENCE},
    user_node, vmi,
};
use crate::wait;

/// Who the collectors are on user clusters, and so in their audit logs.
pub const COLLECTOR: &str = "virtfleet";
/// The ownership annotation.
pub const OWNED: &str = "virtfleet.io/owned-labels";
/// The namespace of the kubeconfigs and of the Lease.
pub const SECRETS: &str = "secrets";
/// A key that is nobody's but the user's, on every Node that [`Tenant::node`] makes.
pub const FOREIGN: &str = "foreign";
const SINGLE: &str = "single-stack";
/// The VMs of [`Scene::until_idle`] are named so; writes to their Nodes are not counted.
const MARKER: &str = "marker-";

/// See the module.
pub struct Scene {
    /// The infra cluster.
    pub infra: ApiServer,
    /// The user clusters, as they were named.
    pub tenants: Vec<Tenant>,
    folder: TempDir,
    markers: AtomicUsize,
}

/// A user cluster; its VMs are in the infra cluster's namespace of its name.
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its API server.
    pub server: ApiServer,
    /// What collectors are there.
    pub user: User,
}

impl Scene {
    /// Without hosts, VMs and policies.
    pub fn new(tenants: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let (infra, tenants) = thread::scope(|scope| {
            let started: Vec<_> = tenants
                .iter()
                .map(|name| scope.spawn(|| Tenant::start(root, name)))
                .collect();
            let infra = live::infra(root);
            let tenants = started
                .into_iter()
                .map(|one| one.join().map_err(|_| anyhow!("panic"))?);
            (infra, tenants.collect::<Result<Vec<_>>>())
        });
        let (infra, tenants) = (infra?, tenants?);
        infra.namespace(SECRETS)?;
        for tenant in &tenants {
            infra.namespace(&tenant.name)?;
            let kubeconfig = tenant.server.kubeconfig(&tenant.user);
            infra.apply(&live::secret(&tenant.name, &kubeconfig))?;
            infra.apply(&live::user_cluster(&tenant.name, &tenant.name))?;
        }
        Ok(Self {
            infra,
            tenants,
            folder,
            markers: AtomicUsize::new(0),
        })
    }

    /// Waits until `collector` has done everything that follows from what has happened so far to VMIs, to infra nodes and to the
    /// Nodes of a user cluster: adds a VM on `host` with its Node, waits for its label `key`, and for an empty queue. Watches
    /// keep the order of changes, so all earlier ones are in the queue before this VM is.
    ///
    /// Not for a collector that reports drift: such a VM stays in the queue.
    pub fn until_idle(&self, collector: &Collector, tenant: &Tenant, host: &str, key: &str) -> Result<()> {
        let name = format!("{MARKER}{}", self.markers.fetch_add(1, Ordering::Relaxed));
        self.vmi(&tenant.name, &name, host)?;
        tenant.node(&name, &[])?;
        wait::eventually(PATIENCE, &format!("{key} of {name}"), || {
            tenant.label(&name, key)?.context("no label yet")
        })?;
        collector.until_no_labels_queued(&tenant.name)
    }

    /// Now, in the audit log of each user cluster.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.tenants
            .iter()
            .map(|tenant| tenant.server.audit_mark())
            .collect()
    }

    /// A folder that goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An infra node with these labels, and no others that a policy may ask for.
    pub fn host(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        self.infra.apply(&infra_node(name, labels)).map(drop)
    }

    /// A `LabelPropagation` with these rules.
    pub fn policy(&self, name: &str, rules: &Value) -> Result<()> {
        self.infra.apply(&policy(name, rules)).map(drop)
    }

    /// A running VMI on a host, in the namespace of a user cluster.
    pub fn vmi(&self, cluster: &str, name: &str, host: &str) -> Result<Value> {
        self.infra.apply(&vmi(cluster, name).phase("Running").on(host))
    }

    /// Starts a collector in the folder `name`, with further settings in YAML, and with the shortest Lease that there is.
    pub fn collector(&self, name: &str, more: &str) -> Result<Collector> {
        let kubeconfig = self.infra.kubeconfig(self.infra.admin_user());
        self.collector_by(name, &kubeconfig, "", more)
    }

    /// The same with another kubeconfig and more in `inventory.cluster`.
    pub fn collector_by(
        &self,
        name: &str,
        kubeconfig: &str,
        inventory: &str,
        more: &str,
    ) -> Result<Collector> {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let inventory = live::settings(&folder, kubeconfig, inventory)?;
        let more = format!(
            "leaderElection: {{ namespace: {SECRETS}, leaseSeconds: 3, renewSeconds: 2, retrySeconds: 1 }}\n{more}"
        );
        Collector::start_with(&folder, &inventory, &more)
    }

    /// Notes of Events with this reason, of all namespaces.
    pub fn events(&self, reason: &str) -> Result<Vec<String>> {
        let list = self.infra.admin().get("/apis/events.k8s.io/v1/events")?.ok()?;
        let all = list["items"].as_array().context("items")?.iter();
        let of = all.filter(|one| one["reason"] == reason);
        Ok(of
            .map(|one| format!("{}: {}", one["regarding"]["name"], one["note"]))
            .collect())
    }

    /// Waits for an Event with this reason whose note has `word`.
    pub fn until_event(&self, reason: &str, word: &str) -> Result<String> {
        wait::eventually(PATIENCE, &format!("an Event {reason} with {word:?}"), || {
            let all = self.events(reason)?;
            let found = all.iter().find(|note| note.contains(word));
            found.cloned().with_context(|| format!("{all:?}"))
        })
    }
}

/// A `LabelPropagation` with these rules.
pub fn policy(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation",
        "metadata": { "name": name }, "spec": { "labels": rules },
    })
}

impl Tenant {
    fn start(root: &Path, name: &str) -> Result<Self> {
        let user = User::new(COLLECTOR, &[])?;
        let server = ApiServer::start_with(root, std::slice::from_ref(&user))?;
        let tenant = Self {
            name: name.to_owned(),
            server,
            user,
        };
        tenant.allow()?;
        Ok(tenant)
    }

    /// Grants collectors what they need, and nothing else.
    pub fn allow(&self) -> Result<()> {
        let rules = json!([
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["pods", "persistentvolumes"], "verbs": ["list"] },
            { "apiGroups": ["storage.k8s.io"], "resources": ["csinodes"], "verbs": ["get"] },
        ]);
        self.server.grant(COLLECTOR, &self.user, None, &rules)
    }

    /// Takes all of that back.
    pub fn forbid(&self) -> Result<()> {
        self.server.revoke(COLLECTOR, None)
    }

    /// The dual-stack Node of a VM, with these labels beside [`FOREIGN`].
    pub fn node(&self, name: &str, labels: &[(&str, &str)]) -> Result<Value> {
        let provider = format!("kubevirt://{name}");
        let node = user_node(name, &provider, &["10.0.0.1", "fd00::1"], labels);
        self.server.apply(&node.label(FOREIGN, "kept"))
    }

    /// The same with one address. Older API servers keep no `managedFields` of a Node with two addresses of one type, so only here
    /// all of them record who has written a label.
    pub fn single_stack_node(&self, name: &str, labels: &[(&str, &str)]) -> Result<Value> {
        let provider = format!("kubevirt://{name}");
        let node = user_node(name, &provider, &["10.0.0.1"], labels);
        self.server
            .apply(&node.labels(&[(FOREIGN, "kept"), (SINGLE, "true")]))
    }

    /// The Node as it is now; its addresses and the foreign label are still there.
    pub fn live(&self, name: &str) -> Result<Value> {
        let node = self.server.admin().get(&format!("/api/v1/nodes/{name}"))?.ok()?;
        let addresses = node["status"]["addresses"].as_array().context("addresses")?;
        let internal = addresses.iter().filter(|one| one["type"] == "InternalIP");
        let families = if node["metadata"]["labels"][SINGLE] == "true" {
            1
        } else {
            2
        };
        ensure!(
            internal.count() == families,
            "an address family is gone: {addresses:?}"
        );
        let foreign = &node["metadata"]["labels"][FOREIGN];
        ensure!(*foreign == "kept", "the foreign label is {foreign}");
        Ok(node)
    }

    /// A label of a Node.
    pub fn label(&self, name: &str, key: &str) -> Result<Option<String>> {
        let node = self.live(name)?;
        Ok(node["metadata"]["labels"][key].as_str().map(str::to_owned))
    }

    /// Waits until it has this value; returns how long that took.
    pub fn until_label(&self, name: &str, key: &str, value: Option<&str>) -> Result<Duration> {
        let begun = Instant::now();
        let what = format!("{key} of {name} in {} is {value:?}", self.name);
        wait::eventually(PATIENCE, &what, || {
            let now = self.label(name, key)?;
            ensure!(now.as_deref() == value, "{now:?}");
            Ok(begun.elapsed())
        })
    }

    /// A merge patch of a Node's metadata by the user's admin.
    pub fn edit(&self, name: &str, metadata: &Value) -> Result<Value> {
        let path = format!("/api/v1/nodes/{name}");
        let body = json!({ "metadata": metadata });
        self.server.admin().patch(&path, super::MERGE_PATCH, &body)?.ok()
    }

    /// A watch of its Nodes from now on.
    pub fn follow(&self) -> Result<Follow> {
        Follow::begin(self.server.admin(), "/api/v1/nodes")
    }

    /// Everything that collectors changed or tried to change since `mark`, whatever became of it.
    pub fn writes(&self, mark: Mark) -> Result<Vec<Entry>> {
        let all = self.server.audit_since(mark)?.into_iter();
        let reads = ["get", "list", "watch"];
        Ok(all
            .filter(|one| one.user == COLLECTOR && !reads.contains(&one.verb.as_str()))
            .filter(|one| !one.name.starts_with(MARKER))
            .collect())
    }

    /// Fails unless collectors asked for nothing since `mark` but patches of the Nodes' metadata that set these labels; nothing
    /// is removed. Returns how many patches were accepted.
    pub fn only_sets(&self, mark: Mark, keys: &[&str]) -> Result<usize> {
        let writes = self.writes(mark)?;
        for write in &writes {
            let labels = patched(write)?;
            for (key, value) in labels {
                ensure!(
                    keys.contains(&key.as_str()),
                    "{key} was never asked for: {write:?}"
                );
                ensure!(value.is_string(), "{key} would be removed: {write:?}");
            }
        }
        Ok(writes.iter().filter(|one| one.code == 200).count())
    }
}

/// The labels that a collector's write changes. Fails when it is anything but a patch of a Node's labels and of our annotation,
/// meant for one Node and one version of it.
pub fn patched(write: &Entry) -> Result<&serde_json::Map<String, Value>> {
    let what = || format!("{write:?}");
    ensure!(
        write.verb == "patch" && write.resource == "nodes" && write.subresource.is_empty(),
        what()
    );
    // A refusal before the body was read (403, a server that is going down) has none.
    let empty = || EMPTY.get_or_init(serde_json::Map::new);
    if write.request.is_null() && write.code != 200 {
        return Ok(empty());
    }
    let fields = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .into_iter()
            .flat_map(|map| map.keys().cloned())
            .collect()
    };
    let extra = |value: &Value, allowed: &[&str]| {
        fields(value)
            .into_iter()
            .find(|field| !allowed.contains(&field.as_str()))
    };
    let metadata = &write.request["metadata"];
    // What the API server adds to what it logs.
    ensure!(
        extra(&write.request, &["metadata", "apiVersion", "kind"]).is_none(),
        what()
    );
    ensure!(
        extra(metadata, &["labels", "annotations", "resourceVersion", "uid"]).is_none(),
        what()
    );
    ensure!(extra(&metadata["annotations"], &[OWNED]).is_none(), what());
    ensure!(
        metadata["resourceVersion"].is_string() && metadata["uid"].is_string(),
        what()
    );
    Ok(metadata["labels"].as_object().unwrap_or(empty()))
}

static EMPTY: std::sync::OnceLock<serde_json::Map<String, Value>> = std::sync::OnceLock::new();
