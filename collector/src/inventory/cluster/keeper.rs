//! What one watch knows, and what follows from what it says. Pure.
//!
//! Only a list that came to its end says that something is gone, and only of what this watch has said itself.

use std::collections::{BTreeMap, HashSet};

use virtfleet_collector_core::facts::{FactKey, InventoryEvent};
use virtfleet_wire::ids::ClusterName;

use super::{follow::Said, kinds::Kind, object::Object};

/// See the module.
#[derive(Debug)]
pub(super) struct Keeper {
    kind: Kind,
    cluster: Option<ClusterName>,
    /// What was applied and not deleted.
    known: HashSet<FactKey>,
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
            known: HashSet::new(),
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
        let name = (object.namespace().to_owned(), object.name().to_owned());
        let cluster = self.cluster.as_ref();
        if let Some(listed) = &mut self.listed {
            // Also what cannot be read is there: its last good state stays.
            listed.keys.extend(self.kind.key(object, cluster));
            listed.unreadable.insert(name.clone());
        }
        match self.kind.fact(object, cluster) {
            Ok(fact) => {
                self.unreadable.remove(&name);
                self.known.insert(fact.key());
                Some(InventoryEvent::Apply(fact))
            }
            Err(problem) => {
                self.unreadable.insert(name, problem);
                None
            }
        }
    }

    fn delete(&mut self, object: &Object) -> Vec<InventoryEvent> {
        self.unreadable
            .remove(&(object.namespace().to_owned(), object.name().to_owned()));
        let key = self.kind.key(object, self.cluster.as_ref());
        let key = key.filter(|key| self.known.remove(key));
        key.map(InventoryEvent::Delete).into_iter().collect()
    }

    fn complete(&mut self) -> Vec<InventoryEvent> {
        let Some(listed) = self.listed.take() else {
            return Vec::new();
        };
        self.unreadable.retain(|name, _| listed.unreadable.contains(name));
        let mut gone: Vec<_> = self.known.extract_if(|key| !listed.keys.contains(key)).collect();
        gone.sort();
        gone.into_iter().map(InventoryEvent::Delete).collect()
    }

    /// Everything that it knows is gone, e.g. because its cluster is.
    pub(super) fn drain(&mut self) -> Vec<InventoryEvent> {
        let mut gone: Vec<_> = self.known.drain().collect();
        gone.sort();
        self.unreadable.clear();
        gone.into_iter().map(InventoryEvent::Delete).collect()
    }

    /// How many facts it holds.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Objects that cannot be read, by namespace and name, and why.
    pub(super) fn unreadable(&self) -> &BTreeMap<(String, String), String> {
        &self.unreadable
    }
}
