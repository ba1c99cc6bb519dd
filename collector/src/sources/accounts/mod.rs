//! Accounts of the collector in the user clusters of sources with `credentials: Account`.
//!
//! ```text
//! cycle: facts ─ account_step ─▶ AccountQueue ─▶ at most 8 jobs: platform's admin kubeconfig ─▶ user cluster
//!   ▲                                │                                                      └▶ infra cluster: Secret
//!   └──────────── last error ────────┘
//! ```
//! A cycle only says what is due. The jobs run beside it, because the API servers of user clusters
//! are not trusted to answer. `docs/decisions/0050-accounts-of-sources.md` has the reasons.

mod job;
mod state;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};
use virtfleet_collector_core::cluster_source::{AccountKey, AccountQueue};

pub(super) use self::{
    job::AccountJob,
    state::{AccountPlan, is_replaceable, step},
};

/// What is due for the accounts of all sources.
pub(super) struct Accounts {
    queue: Mutex<AccountQueue<AccountJob>>,
    /// Something became due.
    changed: Notify,
    started: Instant,
}

impl Accounts {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            changed: Notify::new(),
            started: Instant::now(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, AccountQueue<AccountJob>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is due for the user clusters of a source.
    pub(super) fn set_due(&self, source: &str, due: BTreeMap<String, AccountJob>) {
        self.queue().set_due(source, due);
        self.changed.notify_one();
    }

    /// Drops what is due for other sources than these.
    pub(super) fn retain_sources(&self, names: &[String]) {
        self.queue()
            .retain_sources(|source| names.iter().any(|name| name == source));
    }

    /// Why the last attempt failed, while something is due.
    pub(super) fn error(&self, source: &str, cluster: &str) -> Option<String> {
        self.queue().error(source, cluster).map(str::to_owned)
    }

    /// Works on what is due, for ever.
    pub(super) async fn work(&self) {
        let mut running: JoinSet<Result<Duration, String>> = JoinSet::new();
        let mut keys: BTreeMap<tokio::task::Id, AccountKey> = BTreeMap::new();
        loop {
            while let Some((key, job)) = self.next() {
                let task = running.spawn(async move { job.run().await });
                keys.insert(task.id(), key);
            }
            tokio::select! {
                () = self.changed.notified() => {}
                Some(ended) = running.join_next_with_id() => {
                    let (id, result) = match ended {
                        Ok((id, result)) => (id, result),
                        Err(error) => (error.id(), Err(format!("the work on the account panicked: {error}"))),
                    };
                    if let Some(key) = keys.remove(&id) {
                        self.done(&key, result);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<(AccountKey, AccountJob)> {
        self.queue().next(self.started.elapsed())
    }

    fn done(&self, key: &AccountKey, result: Result<Duration, String>) {
        if let Err(why) = &result {
            tracing::warn!(
                source = key.0,
                user_cluster = key.1,
                why,
                "the collector's account in a user cluster cannot be brought up to date"
            );
        }
        self.queue().done(key, result, self.started.elapsed());
    }
}
