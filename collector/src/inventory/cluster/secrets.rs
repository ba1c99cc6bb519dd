//! The Secrets with kubeconfigs: one watch of each namespace that has any, however many user clusters there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client};
use tokio::sync::watch;

use super::{
    connect::MAX_KUBECONFIG,
    failure::Failure,
    follow::{Follower, Said},
};
use crate::inventory::read::SecretRef;

/// Secrets in a page: each may have 1 MiB.
const PAGE: u32 = 32;

/// See the module. Clones share the watches.
#[derive(Clone)]
pub(super) struct Secrets {
    infra: Client,
    spaces: Arc<Mutex<BTreeMap<String, watch::Sender<Space>>>>,
}

/// What is known of the Secrets of one namespace.
#[derive(Default)]
pub(super) struct Space {
    /// The data of each, by name.
    secrets: BTreeMap<String, BTreeMap<String, ByteString>>,
    /// What the list under way has shown.
    shown: BTreeSet<String>,
    /// It has listed completely once.
    is_listed: bool,
    /// Why it cannot be watched now.
    failure: Option<Failure>,
}

/// What is known of one kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The list is under way.
    Waiting,
    /// The Secret does not exist.
    Absent,
    /// The Secret has no such key.
    NoKey,
    /// This is it.
    Kubeconfig(Vec<u8>),
    /// The Secrets cannot be read, and never could.
    Failed(Failure),
}

impl Secrets {
    pub(super) fn new(infra: Client) -> Self {
        Self {
            infra,
            spaces: Arc::default(),
        }
    }

    /// Follows the Secrets of a namespace for as long as anybody has a receiver.
    pub(super) fn follow(&self, namespace: &str) -> watch::Receiver<Space> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = spaces.get(namespace) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Space::default());
        spaces.insert(namespace.to_owned(), sender.clone());
        let api = Api::namespaced(self.infra.clone(), namespace);
        let all = Arc::downgrade(&self.spaces);
        let namespace = namespace.to_owned();
        tokio::spawn(async move {
            let mut follower = Follower::new(api).pages_of(PAGE);
            loop {
                tokio::select! {
                    said = follower.next() => {
                        sender.send_if_modified(|space| space.take(&namespace, said));
                    }
                    () = sender.closed() => {
                        let Some(all) = all.upgrade() else { return };
                        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                        // Under the lock nobody subscribes.
                        if sender.receiver_count() == 0 {
                            all.remove(&namespace);
                            return;
                        }
                    }
                }
            }
        });
        receiver
    }
}

impl Space {
    /// Returns whether anybody should look again.
    fn take(&mut self, namespace: &str, said: Said<Secret>) -> bool {
        match said {
            Said::Begun => self.shown.clear(),
            Said::Listed(secret) | Said::Applied(secret) => {
                let name = secret.metadata.name.unwrap_or_default();
                self.shown.insert(name.clone());
                let mut data = secret.data.unwrap_or_default();
                // Enough to see that it is too long.
                for value in data.values_mut() {
                    value.0.truncate(MAX_KUBECONFIG + 1);
                }
                // A relist, or a change of its labels, is no news.
                if self.secrets.get(&name) == Some(&data) {
                    return false;
                }
                self.secrets.insert(name, data);
                return true;
            }
            Said::Deleted(secret) => {
                let name = secret.metadata.name.unwrap_or_default();
                return self.secrets.remove(&name).is_some();
            }
            Said::Complete => {
                self.secrets.retain(|name, _| self.shown.contains(name));
                self.shown.clear();
                (self.is_listed, self.failure) = (true, None);
                return true;
            }
            Said::Fine => self.failure = None,
            Said::Failed(failure) if self.is_listed => {
                // What is known stays, so this changes nothing for the user clusters.
                tracing::debug!(
                    namespace,
                    failure.message,
                    "the Secrets with kubeconfigs are not watched now"
                );
                self.failure = Some(failure);
            }
            Said::Failed(failure) => {
                let same = self
                    .failure
                    .as_ref()
                    .is_some_and(|known| known.message == failure.message);
                self.failure = Some(failure);
                return !same;
            }
        }
        false
    }

    /// What is known of a kubeconfig in this namespace.
    pub(super) fn find(&self, at: &SecretRef) -> Found {
        match (self.secrets.get(&at.name), &self.failure) {
            (Some(data), _) => data
                .get(&at.key)
                .map_or(Found::NoKey, |bytes| Found::Kubeconfig(bytes.0.clone())),
            (None, _) if self.is_listed => Found::Absent,
            (None, Some(failure)) => Found::Failed(failure.clone()),
            (None, None) => Found::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, key: &str, text: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        let data = (key.to_owned(), ByteString(text.as_bytes().to_vec()));
        secret.data = Some(BTreeMap::from([data]));
        secret
    }

    #[test]
    fn a_kubeconfig_goes_only_with_a_complete_list_or_a_deletion() {
        let mut space = Space::default();
        let at = |name: &str| SecretRef {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            key: "kubeconfig".to_owned(),
        };
        let failure = || Failure {
            code: Some(403),
            message: "forbidden".to_owned(),
            count: 1,
            over_limit: false,
        };
        assert_eq!(space.find(&at("blue")), Found::Waiting);
        assert!(space.take("n", Said::Failed(failure())));
        assert!(!space.take("n", Said::Failed(failure())), "told once");
        assert_eq!(space.find(&at("blue")), Found::Failed(failure()));
        space.take("n", Said::Begun);
        let blue = || secret("blue", "kubeconfig", "x");
        assert!(space.take("n", Said::Listed(blue())));
        space.take("n", Said::Listed(secret("odd", "other", "x")));
        assert!(space.take("n", Said::Complete));
        assert_eq!(space.find(&at("blue")), Found::Kubeconfig(b"x".to_vec()));
        assert_eq!(
            (space.find(&at("odd")), space.find(&at("green"))),
            (Found::NoKey, Found::Absent)
        );
        assert!(!space.take("n", Said::Applied(blue())), "the same is no news");
        // A list that does not come to its end takes nothing away.
        space.take("n", Said::Begun);
        space.take("n", Said::Failed(failure()));
        assert_eq!(space.find(&at("blue")), Found::Kubeconfig(b"x".to_vec()));
        space.take("n", Said::Begun);
        space.take("n", Said::Complete);
        assert_eq!(space.find(&at("blue")), Found::Absent);
        assert!(space.take("n", Said::Applied(blue())));
        assert!(space.take("n", Said::Deleted(blue())));
        assert_eq!(space.find(&at("blue")), Found::Absent);
    }
}
