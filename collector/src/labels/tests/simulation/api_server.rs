//! The simulated API server of one user cluster: Nodes with resource versions, optimistic locking,
//! a log of watch events, older states for stale reads.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use virtfleet_collector_core::labels::owned::ANNOTATION;

use super::{super::harness::machine, truth::ZONE};

/// Number of older states that a stale read may return.
const MAX_OLDER_STATES: usize = 8;
/// Maximum age of the state that a stale read returns.
const MAX_STALE_MS: u64 = 10_000;

/// A Node of a user cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimNode {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// Text of the ownership annotation.
    pub(super) owned: Option<String>,
    /// The last action of other writers on each key: a value, or its removal.
    pub(super) others: BTreeMap<String, Option<String>>,
    /// Keys whose value the collector wrote last.
    pub(super) ours: BTreeSet<String>,
    /// A pod on the Node requires this zone, since when.
    pub(super) required_zone: Option<(String, u64)>,
}

impl SimNode {
    fn to_json(&self) -> Value {
        let mut metadata = Map::new();
        let mut add = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
        add("name", json!(self.name));
        add("uid", json!(self.uid));
        add("resourceVersion", json!(self.version.to_string()));
        add("labels", json!(self.labels));
        if let Some(owned) = &self.owned {
            add("annotations", json!({ ANNOTATION: owned }));
        }
        let foreign = self.others.keys().map(|key| (format!("f:{key}"), json!({})));
        let fields: Map<String, Value> = foreign.collect();
        let entry = json!({"manager": "kubectl-label", "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:labels": fields}}});
        add("managedFields", json!([entry]));
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
            "spec": {"providerID": format!("kubevirt://{}", self.name)},
            "status": {"nodeInfo": {"systemUUID": machine(&self.name).to_string()},
                "conditions": [{"type": "Ready", "status": "True"}]}})
    }
}

/// A line of a watch, and the version of its object.
pub(super) type WatchLine = (u64, Arc<str>);

/// A merge patch of a Node's metadata.
#[derive(Debug, Clone)]
pub(super) struct MetadataPatch {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    pub(super) labels: BTreeMap<String, Option<String>>,
    /// The new text of the ownership annotation; none removes it.
    pub(super) owned: Option<String>,
}

impl MetadataPatch {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// It changes something that the collector must not change.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let top = body.as_object().ok_or("not an object")?;
        let metadata = body["metadata"].as_object().ok_or("no metadata")?;
        let mut patch = Self {
            uid: None,
            version: None,
            labels: BTreeMap::new(),
            owned: None,
        };
        if top.len() != 1 {
            return Err(format!("it has more than metadata: {body}"));
        }
        let mut has_annotation = false;
        for (field, value) in metadata {
            match (field.as_str(), value) {
                ("uid", value) => patch.uid = text(value),
                ("resourceVersion", value) => patch.version = text(value),
                ("labels", Value::Object(labels)) => {
                    let labels = labels.iter().map(|(key, value)| (key.clone(), text(value)));
                    patch.labels = labels.collect();
                }
                ("annotations", Value::Object(all)) if all.keys().all(|key| key == ANNOTATION) => {
                    patch.owned = all.values().find_map(text);
                    has_annotation = !all.is_empty();
                }
                _ => return Err(format!("it changes metadata.{field}: {body}")),
            }
        }
        // Ownership is recorded in the same patch.
        has_annotation
            .then_some(patch)
            .ok_or_else(|| format!("it has no ownership annotation: {body}"))
    }
}

/// The API server of one user cluster.
#[derive(Debug)]
pub(super) struct SimApiServer {
    pub(super) is_up: bool,
    version: u64,
    pub(super) nodes: BTreeMap<String, SimNode>,
    log: Vec<WatchLine>,
    /// Watches from an older version are answered with 410.
    oldest: u64,
    watches: Vec<mpsc::UnboundedSender<WatchLine>>,
    older: VecDeque<(u64, u64, BTreeMap<String, SimNode>)>,
    uids: u64,
    name: String,
}

/// An answer: HTTP status and body.
pub(super) type HttpAnswer = (u16, Value);

/// An error as the API server returns it.
pub(super) fn status(code: u16) -> HttpAnswer {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": format!("simulated {reason}")});
    (code, body)
}

impl SimApiServer {
    pub(super) fn new(name: &str) -> Self {
        Self {
            is_up: true,
            version: 100,
            nodes: BTreeMap::new(),
            log: Vec::new(),
            oldest: 0,
            watches: Vec::new(),
            older: VecDeque::new(),
            uids: 0,
            name: name.to_owned(),
        }
    }

    /// Keeps the present state for stale reads; before each change.
    fn keep(&mut self, now: u64) {
        self.older.push_back((now, self.version, self.nodes.clone()));
        if self.older.len() > MAX_OLDER_STATES {
            self.older.pop_front();
        }
    }

    fn report(&mut self, kind: &str, node: &SimNode) {
        let line = format!("{}\n", json!({"type": kind, "object": node.to_json()}));
        let line: WatchLine = (node.version, line.into());
        self.log.push(line.clone());
        self.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }

    /// A Node registers; `labels` are those that its kubelet or others set at once.
    pub(super) fn register(&mut self, name: &str, labels: &[&str], value: &str, now: u64) {
        self.keep(now);
        (self.version, self.uids) = (self.version + 1, self.uids + 1);
        let node = SimNode {
            name: name.to_owned(),
            uid: format!("node-{}-{name}-{}", self.name, self.uids),
            version: self.version,
            labels: labels
                .iter()
                .map(|key| ((*key).to_owned(), value.to_owned()))
                .collect(),
            owned: None,
            others: labels
                .iter()
                .map(|key| ((*key).to_owned(), Some(value.to_owned())))
                .collect(),
            ours: BTreeSet::new(),
            required_zone: None,
        };
        self.report("ADDED", &node);
        self.nodes.insert(name.to_owned(), node);
    }

    /// Deletes a Node.
    pub(super) fn delete(&mut self, name: &str, now: u64) {
        self.keep(now);
        if let Some(mut node) = self.nodes.remove(name) {
            self.version += 1;
            node.version = self.version;
            self.report("DELETED", &node);
        }
    }

    /// Another writer sets or removes a label.
    pub(super) fn write_as_other(&mut self, name: &str, key: &str, value: Option<&str>, now: u64) {
        self.keep(now);
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        self.version += 1;
        node.version = self.version;
        node.ours.remove(key);
        node.others.insert(key.to_owned(), value.map(str::to_owned));
        match value {
            Some(value) => node.labels.insert(key.to_owned(), value.to_owned()),
            None => node.labels.remove(key),
        };
        let node = node.clone();
        self.report("MODIFIED", &node);
    }

    /// Starts or removes a pod that requires the Node's present zone. The Node does not change.
    pub(super) fn set_pod(&mut self, name: &str, runs: bool, now: u64) {
        self.keep(now);
        if let Some(node) = self.nodes.get_mut(name) {
            let zone = node.labels.get(ZONE).cloned();
            node.required_zone = zone.filter(|_| runs).map(|zone| (zone, now));
        }
    }

    /// Ends all watches. With `compact`, the history is lost, too: what was not delivered is
    /// missed.
    pub(super) fn cut(&mut self, compact: bool) {
        self.watches.clear();
        if compact {
            self.oldest = self.version;
        }
    }

    /// Watches that have not reported this version must list again.
    pub(super) fn forget(&mut self, version: u64) {
        self.oldest = self.oldest.max(version);
    }

    /// The cluster is created again from manifests: every Node has another UID, and by chance the
    /// version of its predecessor.
    pub(super) fn restore(&mut self, labels: &[&str], value: &str, now: u64) {
        self.watches.clear();
        let before = std::mem::take(&mut self.nodes);
        for (name, old) in before {
            self.register(&name, labels, value, now);
            if let Some(node) = self.nodes.get_mut(&name) {
                node.version = old.version;
            }
        }
        self.older.clear();
        self.log.clear();
        self.version += 1;
        self.cut(true);
    }

    /// The state to answer from: (version, Nodes).
    fn state(&self, stale: bool, now: u64) -> (u64, &BTreeMap<String, SimNode>) {
        let older = self
            .older
            .iter()
            .find(|(at, ..)| stale && now - at <= MAX_STALE_MS);
        older.map_or((self.version, &self.nodes), |(_, version, nodes)| {
            (*version, nodes)
        })
    }

    pub(super) fn list(&self, stale: bool, now: u64) -> HttpAnswer {
        let (version, nodes) = self.state(stale, now);
        let items: Vec<Value> = nodes.values().map(SimNode::to_json).collect();
        let metadata = json!({"resourceVersion": version.to_string()});
        (
            200,
            json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items}),
        )
    }

    pub(super) fn get(&self, name: &str, stale: bool, now: u64) -> HttpAnswer {
        let node = self.state(stale, now).1.get(name);
        node.map_or_else(|| status(404), |node| (200, node.to_json()))
    }

    /// The pods of a Node.
    pub(super) fn pods(&self, name: &str, stale: bool, now: u64) -> HttpAnswer {
        let node = self.state(stale, now).1.get(name);
        let zone = node.and_then(|node| node.required_zone.as_ref());
        let pod = zone.map(|(zone, _)| {
            json!({"metadata": {"namespace": "shop", "name": "db-0"}, "spec": {"nodeSelector": {ZONE: zone}}})
        });
        let items: Vec<Value> = pod.into_iter().collect();
        let metadata = json!({"resourceVersion": "1"});
        (
            200,
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}),
        )
    }

    /// Starts a watch; none if the version is too old.
    pub(super) fn watch(&mut self, from: u64) -> Option<mpsc::UnboundedReceiver<WatchLine>> {
        if from < self.oldest || from > self.version {
            return None;
        }
        let (sender, lines) = mpsc::unbounded_channel();
        for line in self.log.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).ok();
        }
        self.watches.push(sender);
        Some(lines)
    }

    /// The Node that a patch would change, or why it is rejected.
    pub(super) fn check(&self, name: &str, patch: &MetadataPatch) -> Result<&SimNode, u16> {
        let node = self.nodes.get(name).ok_or(404_u16)?;
        let version = node.version.to_string();
        if patch.version.as_ref().is_some_and(|known| *known != version) {
            return Err(409);
        }
        // The UID of an object is immutable.
        if patch.uid.as_ref().is_some_and(|known| *known != node.uid) {
            return Err(422);
        }
        Ok(node)
    }

    /// Applies a patch of the collector to a Node. Returns the answer, and whether the Node
    /// changed.
    pub(super) fn patch(&mut self, name: &str, patch: &MetadataPatch, now: u64) -> (HttpAnswer, bool) {
        if let Err(code) = self.check(name, patch) {
            return (status(code), false);
        }
        self.keep(now);
        let Some(node) = self.nodes.get_mut(name) else {
            return (status(404), false);
        };
        let before = node.clone();
        for (key, value) in &patch.labels {
            let restored = *value == node.others.get(key).cloned().flatten();
            match value {
                Some(value) => node.labels.insert(key.clone(), value.clone()),
                None => node.labels.remove(key),
            };
            if restored {
                node.ours.remove(key);
            } else {
                node.ours.insert(key.clone());
            }
        }
        node.owned.clone_from(&patch.owned);
        let changed = *node != before;
        if changed {
            self.version += 1;
            node.version = self.version;
            let node = node.clone();
            self.report("MODIFIED", &node);
        }
        (self.get(name, false, now), changed)
    }
}
