//! What one watch knows, and what follows from what it says. Pure.
//!
//! Only a list that came to its end says that something is gone, and only of what this watch has said itself.

use std::collections::{BTreeMap, HashMap, HashSet};

use virtfleet_collector_core::facts::{Fact, FactKey, InventoryEvent, Labels};
use virtfleet_wire::ids::ClusterName;

use super::{follow::Said, kinds::Kind, object::Object};
use crate::bounded::bounded;

/// See the module.
#[derive(Debug)]
pub(super) struct Keeper {
    kind: Kind,
    cluster: Option<ClusterName>,
    /// What was applied and not deleted, each with its bytes.
    known: HashMap<FactKey, usize>,
    /// Their sum.
    bytes: usize,
    /// What the list that is under way has shown.
    listed: Option<Listed>,
    /// Objects that cannot be read, by namespace and name, and why.
    unreadable: BTreeMap<(String, String), String>,
}

#[derive(Debug, Default)]
struct Listed {
    keys: HashSet<FactKey>,
    unreadable: HashSet<(String, String)>,
}

impl Keeper {
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

    /// What follows from what the watch says.
    pub(super) fn take(&mut self, said: &Said<Object>) -> Vec<InventoryEvent> {
        match said {
            Said::Begun => {
                self.listed = Some(Listed::default());
                Vec::new()
            }
            Said::Listed(object) | Said::Applied(object) => self.apply(object).into_iter().collect(),
            Said::Complete => self.complete(),
            Said::Deleted(object) => self.delete(object),
            Said::Fine | Said::Failed(_) => Vec::new(),
        }
    }

    fn apply(&mut self, object: &Object) -> Option<InventoryEvent> {
        let name = name_of(object);
        let cluster = self.cluster.as_ref();
        if let Some(listed) = &mut self.listed {
            // Also what cannot be read is there: its last good state stays.
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

    /// Everything that it knows is gone, e.g. because its cluster is.
    pub(super) fn drain(&mut self) -> Vec<InventoryEvent> {
        let mut gone: Vec<_> = self.known.drain().map(|(key, _)| key).collect();
        gone.sort();
        self.bytes = 0;
        self.unreadable.clear();
        gone.into_iter().map(InventoryEvent::Delete).collect()
    }

    /// How many facts it holds.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What it would hold after `said`, if that is more than `most` objects of [`BYTES_PER_OBJECT`] on average.
    pub(super) fn exceeds(&self, said: &Said<Object>, most: usize) -> Option<String> {
        let (Said::Listed(object) | Said::Applied(object)) = said else {
            return None;
        };
        let kind = self.kind.word();
        let cluster = self.cluster.as_ref();
        let key = self.kind.key(object, cluster);
        let before = key.as_ref().and_then(|key| self.known.get(key));
        let is_known = before.is_some() || self.unreadable.contains_key(&name_of(object));
        if !is_known && self.known.len() + self.unreadable.len() >= most {
            return Some(format!("it has more than {most} objects of the kind {kind}"));
        }
        let fact = self.kind.fact(object, cluster).ok();
        let after = self.bytes - before.unwrap_or(&0) + fact.as_ref().map_or(0, size);
        let bytes = most * BYTES_PER_OBJECT;
        (after > bytes).then(|| {
            format!("its objects of the kind {kind} have labels and annotations of more than {bytes} bytes")
        })
    }

    /// Objects that cannot be read, by namespace and name, and why.
    pub(super) fn unreadable(&self) -> &BTreeMap<(String, String), String> {
        &self.unreadable
    }
}

/// Bytes that a user cluster's objects may have on average; real Nodes have about 3 KiB.
const BYTES_PER_OBJECT: usize = 8 << 10;
/// Bytes that a label costs beside its text.
const LABEL: usize = 48;
/// Bytes that a fact costs beside its labels.
const FACT: usize = 512;

/// About how many bytes a fact holds, of those kinds that a user cluster has.
fn size(fact: &Fact) -> usize {
    let pairs = |labels: &Labels| -> usize {
        labels
            .iter()
            .map(|(key, value)| LABEL + key.len() + value.len())
            .sum()
    };
    let Fact::UserNode(node) = fact else {
        return FACT;
    };
    let texts = node.owned.iter().chain(&node.provider_id).map(String::len);
    let by_kubelet = node.kubelet_labels.iter().map(|key| LABEL + key.len());
    FACT + pairs(&node.labels) + texts.sum::<usize>() + by_kubelet.sum::<usize>()
}

/// Namespace and name, of which no more is kept than an object may have (RFC 1123: 253 characters).
fn name_of(object: &Object) -> (String, String) {
    let word = |text: &str| bounded(text, 253);
    (word(object.namespace()), word(object.name()))
}
