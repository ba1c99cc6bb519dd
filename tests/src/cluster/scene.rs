//! An infra cluster, user clusters, and collectors that have only the rights that they need.

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
    live::{self, Collector, WAIT_TIMEOUT},
    user_node, vmi,
};
use crate::{scratch, wait};

/// User name of the collectors on user clusters, and so in their audit logs.
pub const COLLECTOR: &str = "virtfleet";
/// The ownership annotation.
pub const OWNED: &str = "virtfleet.io/owned-labels";
/// The shortest permitted Lease, for tests that kill leaders. One slow request ends a term: an
/// attempt to renew times out after half of `renewSeconds`.
pub const SHORTEST_LEASE: &str = "leaseSeconds: 3, renewSeconds: 2, retrySeconds: 1";
/// A Lease that a busy machine renews in time.
const LEASE: &str = "leaseSeconds: 6, renewSeconds: 4, retrySeconds: 1";
/// Namespace of the kubeconfig Secrets and of the Lease.
pub const SECRETS: &str = "secrets";
/// A label of the user's own on every Node that [`Tenant::node`] creates.
pub const FOREIGN: &str = "foreign";
const SINGLE: &str = "single-stack";
/// Name prefix of the VMs of [`Scene::until_idle`]; writes to their Nodes are not counted.
const MARKER: &str = "marker-";

/// An infra cluster and user clusters.
pub struct Scene {
    /// The infra cluster.
    pub infra: ApiServer,
    /// The user clusters, in the order of their names in [`Scene::new`].
    pub tenants: Vec<Tenant>,
    /// Times of the Lease, as settings of `leaderElection`.
    pub lease: &'static str,
    folder: TempDir,
    markers: AtomicUsize,
}

/// A user cluster. Its VMs are in the infra cluster, in the namespace with the cluster's name.
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its API server.
    pub server: ApiServer,
    /// The collectors' user on this cluster.
    pub user: User,
}

impl Scene {
    /// Starts the API servers, without hosts, VMs and policies.
    pub fn new(tenants: &[&str]) -> Result<Self> {
        let folder = scratch::marked()?;
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
            lease: LEASE,
            folder,
            markers: AtomicUsize::new(0),
        })
    }

    /// Waits until `collector` has processed all earlier changes of VMIs, infra nodes and the Nodes
    /// of a user cluster. Adds a VM on `host` with its Node, then waits for its label `key` and for
    /// an empty queue. Watches keep the order of changes, so all earlier changes are queued before
    /// this VM.
    ///
    /// Not for a collector that reports drift: the VM would stay in its queue.
    pub fn until_idle(&self, collector: &Collector, tenant: &Tenant, host: &str, key: &str) -> Result<()> {
        let name = format!("{MARKER}{}", self.markers.fetch_add(1, Ordering::Relaxed));
        self.vmi(&tenant.name, &name, host)?;
        tenant.node(&name, &[])?;
        wait::eventually(WAIT_TIMEOUT, &format!("{key} of {name}"), || {
            tenant.label(&name, key)?.context("no label yet")
        })?;
        collector.until_no_labels_queued(&tenant.name)
    }

    /// The current position in the audit log of each user cluster.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.tenants
            .iter()
            .map(|tenant| tenant.server.audit_mark())
            .collect()
    }

    /// A temporary folder, removed with the scene.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates an infra node with these labels, and no others that a policy could propagate.
    pub fn host(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        self.infra.apply(&infra_node(name, labels)).map(drop)
    }

    /// Creates a `LabelPropagation` with these rules.
    pub fn policy(&self, name: &str, rules: &Value) -> Result<()> {
        self.infra.apply(&policy(name, rules)).map(drop)
    }

    /// Creates a running VMI on a host, in the namespace of a user cluster.
    pub fn vmi(&self, cluster: &str, name: &str, host: &str) -> Result<Value> {
        self.infra.apply(&vmi(cluster, name).phase("Running").on(host))
    }

    /// Starts a collector in the folder `name`, with further settings in YAML.
    pub fn collector(&self, name: &str, more: &str) -> Result<Collector> {
        let kubeconfig = self.infra.kubeconfig(self.infra.admin_user());
        self.collector_by(name, &kubeconfig, "", more)
    }

    /// As [`Scene::collector`], with another kubeconfig and more settings in `inventory.cluster`.
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
            "leaderElection: {{ namespace: {SECRETS}, {} }}\n{more}",
            self.lease
        );
        Collector::start_with(&folder, &inventory, &more)
    }

    /// Notes of all Events with this reason, in all namespaces.
    pub fn events(&self, reason: &str) -> Result<Vec<String>> {
        let list = self.infra.admin().get("/apis/events.k8s.io/v1/events")?.ok()?;
        let all = list["items"].as_array().context("items")?.iter();
        let of = all.filter(|one| one["reason"] == reason);
        Ok(of
            .map(|one| format!("{}: {}", one["regarding"]["name"], one["note"]))
            .collect())
    }

    /// Waits for an Event with this reason whose note contains `word`.
    pub fn until_event(&self, reason: &str, word: &str) -> Result<String> {
        wait::eventually(WAIT_TIMEOUT, &format!("an Event {reason} with {word:?}"), || {
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

    /// Grants the collectors exactly the rights that they need.
    pub fn allow(&self) -> Result<()> {
        let rules = json!([
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["pods", "persistentvolumes"], "verbs": ["list"] },
            { "apiGroups": ["storage.k8s.io"], "resources": ["csinodes"], "verbs": ["get"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"] },
        ]);
        self.server.grant(COLLECTOR, &self.user, None, &rules)
    }

    /// Revokes these rights.
    pub fn forbid(&self) -> Result<()> {
        self.server.revoke(COLLECTOR, None)
    }

    /// Creates the dual-stack Node of a VM, with these labels and [`FOREIGN`].
    pub fn node(&self, name: &str, labels: &[(&str, &str)]) -> Result<Value> {
        let provider = format!("kubevirt://{name}");
        let node = user_node(name, &provider, &["10.0.0.1", "fd00::1"], labels);
        self.server.apply(&node.label(FOREIGN, "kept"))
    }

    /// As [`Tenant::node`], with one address. Older API servers keep no `managedFields` of a Node
    /// with two addresses of one type, so only this Node records on all releases who has written a
    /// label.
    pub fn single_stack_node(&self, name: &str, labels: &[(&str, &str)]) -> Result<Value> {
        let provider = format!("kubevirt://{name}");
        let node = user_node(name, &provider, &["10.0.0.1"], labels);
        self.server
            .apply(&node.labels(&[(FOREIGN, "kept"), (SINGLE, "true")]))
    }

    /// The current Node; fails unless its addresses and the foreign label are unchanged.
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

    /// Waits until the label has this value; returns how long that took.
    pub fn until_label(&self, name: &str, key: &str, value: Option<&str>) -> Result<Duration> {
        let begun = Instant::now();
        let what = format!("{key} of {name} in {} is {value:?}", self.name);
        wait::eventually(WAIT_TIMEOUT, &what, || {
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

    /// Starts a watch of the cluster's Nodes.
    pub fn follow(&self) -> Result<Follow> {
        Follow::begin(self.server.admin(), "/api/v1/nodes")
    }

    /// All requests of collectors since `mark` that change or try to change objects, whatever the
    /// result.
    pub fn writes(&self, mark: Mark) -> Result<Vec<Entry>> {
        let all = self.server.audit_since(mark)?.into_iter();
        let reads = ["get", "list", "watch"];
        Ok(all
            .filter(|one| one.user == COLLECTOR && !reads.contains(&one.verb.as_str()))
            .filter(|one| !one.name.starts_with(MARKER))
            .collect())
    }

    /// Fails unless all changes that collectors requested since `mark` are patches of Node metadata
    /// that set these labels and remove none. Returns the number of accepted patches.
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

/// The labels that a collector's write changes. Fails unless the write is a patch of one Node at
/// one version that changes only labels and the ownership annotation.
pub fn patched(write: &Entry) -> Result<&serde_json::Map<String, Value>> {
    let what = || format!("{write:?}");
    ensure!(
        write.verb == "patch" && write.resource == "nodes" && write.subresource.is_empty(),
        what()
    );
    // A request that was refused before its body was read (403, a server that shuts down) has no
    // body in the log.
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
    // Fields that the API server adds to the logged body.
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
