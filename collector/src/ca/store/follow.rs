//! Follows the authority while the collector runs.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::select_all};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{CaPlace, CaStore, CaStoreError, folder::FolderStore};
use crate::ca::{Authorities, UnixSeconds};

/// Interval between two checks of the folder.
const FOLDER_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two reads of the Secrets without any event: a watch may stall.
const SECRET_INTERVAL: Duration = Duration::from_mins(1);

impl CaStore {
    /// Publishes each change of the authority to `authorities`, until `stop`. A state that cannot
    /// be used is logged, and the last valid one is kept.
    pub async fn follow(
        self,
        authorities: watch::Sender<Arc<Authorities>>,
        clock: fn() -> UnixSeconds,
        stop: CancellationToken,
    ) {
        let follower = Follower {
            store: self,
            authorities,
            clock,
            problem: None,
        };
        stop.run_until_cancelled(follower.run()).await;
    }
}

struct Follower {
    store: CaStore,
    authorities: watch::Sender<Arc<Authorities>>,
    clock: fn() -> UnixSeconds,
    /// The last problem, which is logged once.
    problem: Option<String>,
}

impl Follower {
    async fn run(mut self) {
        match self.store.place.clone() {
            CaPlace::Folder(folder) => self.folder(&folder).await,
            CaPlace::Secret(secret) => {
                let others = self.store.external.iter().map(|(_, secret)| secret.changes());
                let all = std::iter::once(secret.changes()).chain(others);
                let mut changes = select_all(all.map(Box::pin));
                loop {
                    // Errors of the watch appear again in the read, with the right that is missing.
                    let event = tokio::time::timeout(SECRET_INTERVAL, changes.next()).await;
                    if let Ok(Some(Err(error))) = &event {
                        tracing::debug!(error, "the watch of the authority failed; it will be retried");
                    }
                    self.read().await;
                }
            }
        }
    }

    async fn folder(&mut self, folder: &FolderStore) {
        let mut known = None;
        loop {
            let stamp = folder.stamp().await;
            if known.as_ref() != Some(&stamp) && !folder.is_being_replaced() {
                known = Some(stamp);
                self.read().await;
            }
            tokio::time::sleep(FOLDER_INTERVAL).await;
        }
    }

    async fn read(&mut self) {
        match self.store.read((self.clock)()).await {
            Ok(read) => {
                self.problem = None;
                self.authorities.send_if_modified(|known| {
                    let is_changed = !known.is_same(&read);
                    if is_changed {
                        tracing::info!(
                            place = self.store.name(),
                            "the authority of the fleet has changed"
                        );
                        *known = Arc::new(read);
                    }
                    is_changed
                });
            }
            Err(error) => self.report(&error),
        }
    }

    fn report(&mut self, error: &CaStoreError) {
        let message = error.to_string();
        if self.problem.as_ref() != Some(&message) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "the authority cannot be read; the last valid one is kept");
            self.problem = Some(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_767_225_600;

    #[tokio::test]
    async fn an_invalid_state_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let store = CaStore::folder(root.path().join("ca"), "example.org");
        let first = store.load_or_create(NOW).await.unwrap();
        let (authorities, mut seen) = watch::channel(Arc::new(first));
        let mut follower = Follower {
            store,
            authorities,
            clock: || NOW,
            problem: None,
        };
        let deny = root.path().join("ca/deny");
        for (text, problem, count) in [
            ("0a\n", false, 1),
            ("0a\nworker-3\n", true, 1),
            ("0a\n0b\n", false, 2),
        ] {
            std::fs::write(&deny, text).unwrap();
            follower.read().await;
            assert_eq!(follower.problem.is_some(), problem, "{text}");
            assert_eq!(seen.borrow_and_update().denied(), count, "{text}");
        }
        follower.read().await;
        assert!(!seen.has_changed().unwrap(), "an equal state is not published");
    }
}
