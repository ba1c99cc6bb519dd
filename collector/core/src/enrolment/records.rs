//! All records: a map by VM in shards, and an index by key.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::VmKey;

use super::{EnrolmentRecord, EnrolmentState, KeyFingerprint, stable_hash::stable_hash};
use crate::small_set::SmallSet;

/// Maximum number of records.
pub const MAX_RECORDS: usize = 100_000;

/// Why a record was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordConflict {
    /// The VM's record is not the one that the decision was about.
    Changed,
    /// The key is recorded for this other VM.
    KeyTaken(VmKey),
    /// There are [`MAX_RECORDS`].
    Full,
}

/// Records of one shard, by VM.
type Shard = BTreeMap<VmKey, EnrolmentRecord>;

#[derive(Debug)]
pub struct EnrolmentRecords {
    shards: Vec<Shard>,
    /// One VM for each key, unless a stored shard was edited.
    by_key: HashMap<KeyFingerprint, SmallSet<VmKey>>,
    enrolled: usize,
}

/// Stored form of a shard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ShardDocument {
    version: u32,
    /// By `<namespace>/<name>`.
    records: BTreeMap<String, EnrolmentRecord>,
}

/// Version of [`ShardDocument`].
const DOCUMENT_VERSION: u32 = 1;

impl EnrolmentRecords {
    /// No records in so many shards.
    pub fn new(shards: usize) -> Self {
        Self {
            shards: vec![Shard::new(); shards.max(1)],
            by_key: HashMap::new(),
            enrolled: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(BTreeMap::len).sum()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(BTreeMap::is_empty)
    }

    /// Number of VMs whose certificates are used.
    pub fn enrolled(&self) -> usize {
        self.enrolled
    }

    pub fn shard(&self, vm: &VmKey) -> usize {
        shard_of(vm, self.shards.len())
    }

    pub fn get(&self, vm: &VmKey) -> Option<&EnrolmentRecord> {
        self.shards[self.shard(vm)].get(vm)
    }

    /// A VM for which a key is recorded, with its record: another VM than `vm`, if there is one.
    pub fn owner_of(&self, key: KeyFingerprint, vm: &VmKey) -> Option<(&VmKey, &EnrolmentRecord)> {
        let owner = self
            .other_owner(key, vm)
            .or_else(|| self.by_key.get(&key)?.iter().next())?;
        Some((owner, self.get(owner)?))
    }

    fn other_owner(&self, key: KeyFingerprint, vm: &VmKey) -> Option<&VmKey> {
        self.by_key.get(&key)?.iter().find(|owner| *owner != vm)
    }

    /// All records in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&VmKey, &EnrolmentRecord)> {
        self.shards.iter().flatten()
    }

    /// Replaces the record of a VM, if it still is `expected`, and no other VM has the key.
    ///
    /// # Errors
    /// Why it was not replaced.
    pub fn put(
        &mut self,
        vm: &VmKey,
        expected: Option<&EnrolmentRecord>,
        new: EnrolmentRecord,
    ) -> Result<(), RecordConflict> {
        if self.get(vm) != expected {
            return Err(RecordConflict::Changed);
        }
        let other = new.key_sha256.and_then(|key| self.other_owner(key, vm));
        if let Some(other) = other {
            return Err(RecordConflict::KeyTaken(other.clone()));
        }
        if expected.is_none() && self.len() >= MAX_RECORDS {
            return Err(RecordConflict::Full);
        }
        self.set(vm, Some(new));
        Ok(())
    }

    /// Sets or removes the record of a VM.
    pub fn set(&mut self, vm: &VmKey, new: Option<EnrolmentRecord>) {
        let shard = self.shard(vm);
        let key = new.as_ref().and_then(|record| record.key_sha256);
        self.enrolled += usize::from(new.as_ref().is_some_and(is_enrolled));
        let old = match new {
            Some(new) => self.shards[shard].insert(vm.clone(), new),
            None => self.shards[shard].remove(vm),
        };
        if let Some(old) = old {
            self.forget(&old, vm);
        }
        if let Some(key) = key {
            self.by_key.entry(key).or_default().insert(vm.clone());
        }
    }

    /// Removes a record that is in no shard any more from the index and the count.
    fn forget(&mut self, old: &EnrolmentRecord, vm: &VmKey) {
        self.enrolled -= usize::from(is_enrolled(old));
        let Some(key) = old.key_sha256 else { return };
        if let Some(owners) = self.by_key.get_mut(&key) {
            owners.remove(vm);
            if owners.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Replaces all records of a shard. Records of VMs of another shard are dropped.
    pub fn replace_shard(&mut self, shard: usize, records: BTreeMap<VmKey, EnrolmentRecord>) {
        let Some(old) = self.shards.get_mut(shard).map(std::mem::take) else {
            return;
        };
        for (vm, record) in old {
            self.forget(&record, &vm);
        }
        for (vm, record) in records {
            if self.shard(&vm) == shard {
                self.set(&vm, Some(record));
            }
        }
    }

    /// The VMs whose records may be removed: `is_gone` says that the VM exists no more, and the
    /// certificate has expired, or `also_valid`.
    pub fn removable(&self, now: u64, also_valid: bool, is_gone: impl Fn(&VmKey) -> bool) -> Vec<VmKey> {
        let old = self
            .iter()
            .filter(|(vm, record)| (also_valid || record.not_after < now) && is_gone(vm));
        old.map(|(vm, _)| vm.clone()).collect()
    }

    /// The stored form of a shard: JSON.
    ///
    /// # Errors
    /// None in practice: the document has no types that JSON lacks.
    pub fn shard_json(&self, shard: usize) -> Result<String, String> {
        let records = self.shards.get(shard).into_iter().flatten();
        let document = ShardDocument {
            version: DOCUMENT_VERSION,
            records: records
                .map(|(vm, record)| (vm.to_string(), record.clone()))
                .collect(),
        };
        serde_json::to_string(&document).map_err(|error| error.to_string())
    }
}

fn is_enrolled(record: &EnrolmentRecord) -> bool {
    record.state == EnrolmentState::Enrolled
}

/// Reads the stored form of a shard.
///
/// # Errors
/// What is wrong. Nothing of such a document is used: without the record of a VM, a second key of
/// that VM would be accepted.
pub fn read_shard(json: &str) -> Result<BTreeMap<VmKey, EnrolmentRecord>, String> {
    let document: ShardDocument = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if document.version != DOCUMENT_VERSION {
        return Err(format!(
            "version {}, but this version of the collector reads {DOCUMENT_VERSION}; use the version that wrote it",
            document.version
        ));
    }
    let mut records = BTreeMap::new();
    for (vm, record) in document.records {
        let invalid = |what: String| format!("record {vm:?}: {what}");
        let (namespace, name) = vm
            .split_once('/')
            .ok_or_else(|| invalid("not <namespace>/<name>".to_owned()))?;
        let key = VmKey {
            namespace: namespace.parse().map_err(|error| invalid(format!("{error}")))?,
            name: name.parse().map_err(|error| invalid(format!("{error}")))?,
        };
        if !record.is_valid() {
            return Err(invalid("serial is not a number in hexadecimal digits".to_owned()));
        }
        records.insert(key, record);
    }
    if records.len() > MAX_RECORDS {
        return Err(format!("{} records, more than {MAX_RECORDS}", records.len()));
    }
    Ok(records)
}

/// The shard of a VM among so many.
pub fn shard_of(vm: &VmKey, shards: usize) -> usize {
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    usize::try_from(stable_hash(vm) % shards).unwrap_or_default()
}
