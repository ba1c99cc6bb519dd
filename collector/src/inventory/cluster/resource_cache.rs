//! Cache of one watch's objects, and the inventory events that follow from its output. Pure.
//!
//! An object is removed only by a complete list or a deletion, and only if this watch has reported
//! it.

use std::collections::{BTreeMap, HashMap, HashSet};

use virtfleet_collector_core::facts::{Fact, FactKey, InventoryEvent, Labels};
use virtfleet_wire::ids::ClusterName;

use super::{kinds::Kind, object::Object, reflector::ReflectorEvent};
use crate::bounded::bounded;

/// Facts of one watch.
#[derive(Debug)]
pub(super) struct ResourceCache {
    kind: Kind,
    cluster: Option<ClusterName>,
    /// Facts applied and not deleted, each with its bytes.
    known: HashMap<FactKey, usize>,
    /// Sum of their bytes.
    bytes: usize,
    /// Keys in the current list.
    listed: Option<Listed>,
    /// Objects that cannot be read, by namespace and name, and why.
    unreadable: BTreeMap<(String, String), String>,
}

#[derive(Debug, Default)]
struct Listed {
    keys: HashSet<FactKey>,
    unreadable: HashSet<(String, String)>,
}

impl ResourceCache {
    pub(super) fn new(kind: Kind, cluster: Option<ClusterName>) -> Self {
        Self {
            kind,
            cluster,
            known: HashMap::new(),
            bytes: 0,
            listed: None,
            unreadable: BTreeMap::new(),
        }
    }

    /// Updates the cache with the watch's next event, and returns the inventory events.
    pub(super) fn take(&mut self, event: &ReflectorEvent<Object>) -> Vec<InventoryEvent> {
        match event {
            ReflectorEvent::ListStarted => {
                self.listed = Some(Listed::default());
                Vec::new()
            }
            ReflectorEvent::Listed(object) | ReflectorEvent::Applied(object) => {
                self.apply(object).into_iter().collect()
            }
            ReflectorEvent::Complete => self.complete(),
            ReflectorEvent::Deleted(object) => self.delete(object),
            ReflectorEvent::Watching | ReflectorEvent::Failed(_) => Vec::new(),
        }
    }

    fn apply(&mut self, object: &Object) -> Option<InventoryEvent> {
        let name = name_of(object);
        let cluster = self.cluster.as_ref();
        if let Some(listed) = &mut self.listed {
            // An unreadable object exists, too: its last valid version is kept.
            listed.keys.extend(self.kind.key(object, cluster));
            listed.unreadable.insert(name.clone());
        }
        match self.kind.fact(object, cluster) {
            Ok(fact) => {
                self.unreadable.remove(&name);
                let bytes = size(&fact);
                self.bytes += bytes;
                self.bytes -= self.known.insert(fact.key(), bytes).unwrap_or_default();
                Some(InventoryEvent::Apply(fact))
            }
            Err(problem) => {
                self.unreadable.insert(name, problem);
                None
            }
        }
    }

    fn delete(&mut self, object: &Object) -> Vec<InventoryEvent> {
        self.unreadable.remove(&name_of(object));
        let key = self.kind.key(object, self.cluster.as_ref());
        let key = key.filter(|key| {
            let known = self.known.remove(key);
            self.bytes -= known.unwrap_or_default();
            known.is_some()
        });
        key.map(InventoryEvent::Delete).into_iter().collect()
    }

    fn complete(&mut self) -> Vec<InventoryEvent> {
        let Some(listed) = self.listed.take() else {
            return Vec::new();
        };
        self.unreadable.retain(|name, _| listed.unreadable.contains(name));
        let gone = self.known.extract_if(|key, _| !listed.keys.contains(key));
        let mut gone: Vec<_> = gone.collect();
        gone.sort();
        self.bytes -= gone.iter().map(|(_, bytes)| bytes).sum::<usize>();
        gone.into_iter()
            .map(|(key, _)| InventoryEvent::Delete(key))
            .collect()
    }

    /// Removes all objects, e.g. because the cluster is gone.
    pub(super) fn drain(&mut self) -> Vec<InventoryEvent> {
        let mut gone: Vec<_> = self.known.drain().map(|(key, _)| key).collect();
        gone.sort();
        self.bytes = 0;
        self.unreadable.clear();
        gone.into_iter().map(InventoryEvent::Delete).collect()
    }

    /// Whether a fact is known.
    pub(super) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Number of facts.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Why the cache would exceed `max` objects of [`MAX_BYTES_PER_OBJECT`] on average after
    /// `event`, if it would.
    pub(super) fn exceeds(&self, event: &ReflectorEvent<Object>, max: usize) -> Option<String> {
        let (ReflectorEvent::Listed(object) | ReflectorEvent::Applied(object)) = event else {
            return None;
        };
        let kind = self.kind.name();
        let cluster = self.cluster.as_ref();
        let key = self.kind.key(object, cluster);
        let before = key.as_ref().and_then(|key| self.known.get(key));
        let is_known = before.is_some() || self.unreadable.contains_key(&name_of(object));
        if !is_known && self.known.len() + self.unreadable.len() >= max {
            return Some(format!("it has more than {max} objects of the kind {kind}"));
        }
        let fact = self.kind.fact(object, cluster).ok();
        let after = self.bytes - before.unwrap_or(&0) + fact.as_ref().map_or(0, size);
        let bytes = max * MAX_BYTES_PER_OBJECT;
        (after > bytes).then(|| {
            format!("its objects of the kind {kind} have labels, annotations and taints of more than {bytes} bytes")
        })
    }

    /// Objects that cannot be read, by namespace and name, and why.
    pub(super) fn unreadable(&self) -> &BTreeMap<(String, String), String> {
        &self.unreadable
    }
}

/// Maximum average size of a user cluster's objects; real Nodes have about 3 KiB.
const MAX_BYTES_PER_OBJECT: usize = 8 << 10;
/// Estimated memory of a label beside its text.
const LABEL_OVERHEAD_BYTES: usize = 48;
/// Estimated memory of a fact beside its labels.
const FACT_OVERHEAD_BYTES: usize = 512;

/// Estimated memory of a fact, for the kinds that are read from user clusters.
fn size(fact: &Fact) -> usize {
    let pairs = |labels: &Labels| -> usize {
        labels
            .iter()
            .map(|(key, value)| LABEL_OVERHEAD_BYTES + key.len() + value.len())
            .sum()
    };
    let Fact::UserNode(node) = fact else {
        return FACT_OVERHEAD_BYTES;
    };
    let texts = node.owned.iter().chain(&node.provider_id).map(String::len);
    let by_kubelet = node
        .kubelet_labels
        .iter()
        .map(|key| LABEL_OVERHEAD_BYTES + key.len());
    let taints = node.taints.iter();
    let taints = taints.map(|one| LABEL_OVERHEAD_BYTES + one.key.len() + one.value.len());
    let lists = by_kubelet.chain(taints);
    FACT_OVERHEAD_BYTES + pairs(&node.labels) + texts.sum::<usize>() + lists.sum::<usize>()
}

/// Namespace and name, truncated to the maximum length of an object's name (RFC 1123: 253
/// characters).
fn name_of(object: &Object) -> (String, String) {
    let name = |text: &str| bounded(text, 253);
    (name(object.namespace()), name(object.name()))
}
