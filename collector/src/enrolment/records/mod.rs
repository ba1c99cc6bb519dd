//! The recorded keys, in memory and in a store.
//!
//! ```text
//! Enroller, admin ─ put ─▶ keeper (one task) ─ a batch a shard ─▶ RecordStore (folder, ConfigMaps)
//!        ▲                    │
//!        └─ get, owner_of ─ EnrolmentRecords (memory)
//! ```
//! A record is in the store before [`RecordBook::put`] returns. The keeper reads everything when
//! this process becomes the leader; other processes read it now and then, for
//! [`super::RecordGuard`].

mod config_maps;
mod folder;
mod keeper;
mod store;
#[cfg(test)]
mod tests;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::{mpsc, oneshot};
use virtfleet_collector_core::enrolment::{
    EnrolmentRecord, EnrolmentRecords, KeyFingerprint, RecordConflict,
};
use virtfleet_wire::ids::{Uid, VmKey};

pub use config_maps::ConfigMapRecords;
pub use folder::FolderRecords;
pub use keeper::{RecordKeeper, keep_records};
pub use store::{RecordStore, RecordWriteError, StoredShard};

/// Requests that wait for the keeper; a full queue only slows enrolments.
const MAX_QUEUED_REQUESTS: usize = 1024;

/// Why a record was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordError {
    /// It contradicts what is recorded.
    Conflict(RecordConflict),
    /// The store failed, or this process does not lead.
    Failed(String),
}

/// The recorded keys. Clones share them.
#[derive(Debug, Clone)]
pub struct RecordBook {
    shared: Arc<SharedRecords>,
    requests: mpsc::Sender<BookRequest>,
}

#[derive(Debug)]
struct SharedRecords {
    records: RwLock<EnrolmentRecords>,
    /// Whether the leader has read them, or why not.
    current: RwLock<Result<(), String>>,
}

#[derive(Debug)]
enum BookRequest {
    /// Replace a record.
    Put {
        vm: VmKey,
        expected: Option<EnrolmentRecord>,
        new: Option<EnrolmentRecord>,
        /// None: written with the next batch, or within [`keeper::LAZY_WRITE_INTERVAL`].
        reply: Option<oneshot::Sender<Result<(), RecordError>>>,
    },
    /// Read the shard of a VM again.
    Refresh {
        vm: VmKey,
        reply: oneshot::Sender<Result<(), RecordError>>,
    },
}

impl RecordBook {
    /// An empty book with so many shards, and the requests for its keeper.
    fn new(shards: usize) -> (Self, mpsc::Receiver<BookRequest>) {
        let (requests, incoming) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let shared = SharedRecords {
            records: RwLock::new(EnrolmentRecords::new(shards)),
            current: RwLock::new(Err("the records have not been read yet".to_owned())),
        };
        let book = Self {
            shared: Arc::new(shared),
            requests,
        };
        (book, incoming)
    }

    /// A book without a keeper: nothing changes.
    #[cfg(test)]
    pub(crate) fn fixed(records: impl IntoIterator<Item = (VmKey, EnrolmentRecord)>) -> Self {
        let (book, _) = Self::new(1);
        book.shared.change(|known| {
            for (vm, record) in records {
                known.set(&vm, Some(record));
            }
        });
        book
    }

    /// Reads the records without copying them.
    pub fn read(&self) -> RwLockReadGuard<'_, EnrolmentRecords> {
        self.shared.read()
    }

    pub fn get(&self, vm: &VmKey) -> Option<EnrolmentRecord> {
        self.read().get(vm).cloned()
    }

    /// The VM and incarnation for which a key is recorded.
    pub fn owner_of(&self, key: KeyFingerprint, vm: &VmKey) -> Option<(VmKey, Uid)> {
        let records = self.read();
        let (owner, record) = records.owner_of(key, vm)?;
        Some((owner.clone(), record.uid.clone()))
    }

    /// Whether this process leads and has read all records.
    ///
    /// # Errors
    /// Why not.
    pub fn is_current(&self) -> Result<(), String> {
        let current = &self.shared.current;
        current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the record of a VM, if it still is `expected`. When this returns, the store has it.
    ///
    /// # Errors
    /// Why it was not written.
    pub async fn put(
        &self,
        vm: &VmKey,
        expected: Option<EnrolmentRecord>,
        new: Option<EnrolmentRecord>,
    ) -> Result<(), RecordError> {
        let (vm, put) = (vm.clone(), oneshot::channel());
        let request = BookRequest::Put {
            vm,
            expected,
            new,
            reply: Some(put.0),
        };
        self.ask(request, put.1).await
    }

    /// As [`RecordBook::put`], without waiting for the store: for changes that may be lost.
    pub async fn put_soon(
        &self,
        vm: &VmKey,
        expected: Option<EnrolmentRecord>,
        new: Option<EnrolmentRecord>,
    ) {
        let request = BookRequest::Put {
            vm: vm.clone(),
            expected,
            new,
            reply: None,
        };
        // The keeper ends at shutdown only.
        drop(self.requests.send(request).await);
    }

    /// Reads the record of a VM from the store again, unless that was done just now.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn refresh(&self, vm: &VmKey) -> Result<(), RecordError> {
        let (reply, answer) = oneshot::channel();
        let vm = vm.clone();
        self.ask(BookRequest::Refresh { vm, reply }, answer).await
    }

    async fn ask(
        &self,
        request: BookRequest,
        answer: oneshot::Receiver<Result<(), RecordError>>,
    ) -> Result<(), RecordError> {
        let stopped = || RecordError::Failed("the collector is stopping".to_owned());
        self.requests.send(request).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl SharedRecords {
    fn read(&self) -> RwLockReadGuard<'_, EnrolmentRecords> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut EnrolmentRecords) -> T) -> T {
        change(&mut self.records.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_current(&self, current: Result<(), String>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }
}
