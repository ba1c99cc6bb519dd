//! The Secrets with kubeconfigs and with credentials of receivers of metrics: one watch per
//! namespace, shared by all its user clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client};
use tokio::sync::watch;

use super::{
    connect::MAX_KUBECONFIG,
    failure::WatchFailure,
    reflector::{Reflector, ReflectorEvent},
};
use crate::{inventory::read::SecretRef, mla::settings::SecretLookup, objects::InfraSecretRef};

/// Secrets in a page: each may have 1 MiB.
const PAGE_SIZE: u32 = 32;

/// Watches of Secrets; clones share them.
#[derive(Clone)]
pub(super) struct Secrets {
    infra: Client,
    namespaces: Arc<Mutex<BTreeMap<String, watch::Sender<NamespaceSecrets>>>>,
}

#[derive(Default)]
pub(super) struct NamespaceSecrets {
    /// The data of each Secret, by name.
    secrets: BTreeMap<String, BTreeMap<String, ByteString>>,
    /// Names in the current list.
    shown: BTreeSet<String>,
    /// It has listed completely once.
    is_listed: bool,
    /// Why it cannot be watched at present.
    failure: Option<WatchFailure>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum KubeconfigLookup {
    /// The list is not complete yet.
    Waiting,
    /// The Secret does not exist.
    Absent,
    /// The Secret has no such key.
    NoKey,
    Kubeconfig(Vec<u8>),
    /// The Secrets could never be read.
    Failed(WatchFailure),
}

impl Secrets {
    pub(super) fn new(infra: Client) -> Self {
        Self {
            infra,
            namespaces: Arc::default(),
        }
    }

    /// Watches the Secrets of a namespace while there is a receiver.
    pub(super) fn watch_namespace(&self, namespace: &str) -> watch::Receiver<NamespaceSecrets> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = namespaces.get(namespace) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(NamespaceSecrets::default());
        namespaces.insert(namespace.to_owned(), sender.clone());
        let api = Api::namespaced(self.infra.clone(), namespace);
        let all = Arc::downgrade(&self.namespaces);
        let namespace = namespace.to_owned();
        tokio::spawn(async move {
            let mut reflector = Reflector::new(api).page_size(PAGE_SIZE);
            loop {
                tokio::select! {
                    event = reflector.next() => {
                        sender.send_if_modified(|secrets| secrets.update(&namespace, event));
                    }
                    () = sender.closed() => {
                        let Some(all) = all.upgrade() else { return };
                        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                        // The lock prevents new subscribers.
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

impl NamespaceSecrets {
    /// Updates the state; returns whether receivers must be notified.
    fn update(&mut self, namespace: &str, event: ReflectorEvent<Secret>) -> bool {
        match event {
            ReflectorEvent::ListStarted => self.shown.clear(),
            ReflectorEvent::Listed(secret) | ReflectorEvent::Applied(secret) => {
                let name = secret.metadata.name.unwrap_or_default();
                self.shown.insert(name.clone());
                let mut data = secret.data.unwrap_or_default();
                // One byte over the limit is enough to detect a kubeconfig that is too large.
                for value in data.values_mut() {
                    value.0.truncate(MAX_KUBECONFIG + 1);
                }
                // A relist, or a change of the Secret's labels, needs no notification.
                if self.secrets.get(&name) == Some(&data) {
                    return false;
                }
                self.secrets.insert(name, data);
                return true;
            }
            ReflectorEvent::Deleted(secret) => {
                let name = secret.metadata.name.unwrap_or_default();
                return self.secrets.remove(&name).is_some();
            }
            ReflectorEvent::Complete => {
                self.secrets.retain(|name, _| self.shown.contains(name));
                self.shown.clear();
                (self.is_listed, self.failure) = (true, None);
                return true;
            }
            ReflectorEvent::Watching => self.failure = None,
            ReflectorEvent::Failed(failure) if self.is_listed => {
                // Known Secrets are kept, so user clusters are not affected.
                tracing::debug!(
                    namespace,
                    failure.message,
                    "the Secrets of user clusters cannot be watched at present"
                );
                self.failure = Some(failure);
            }
            ReflectorEvent::Failed(failure) => {
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

    /// Looks up a kubeconfig in this namespace.
    pub(super) fn find(&self, at: &SecretRef) -> KubeconfigLookup {
        match (self.secrets.get(&at.name), &self.failure) {
            (Some(data), _) => data.get(&at.key).map_or(KubeconfigLookup::NoKey, |bytes| {
                KubeconfigLookup::Kubeconfig(bytes.0.clone())
            }),
            (None, _) if self.is_listed => KubeconfigLookup::Absent,
            (None, Some(failure)) => KubeconfigLookup::Failed(failure.clone()),
            (None, None) => KubeconfigLookup::Waiting,
        }
    }
}

impl NamespaceSecrets {
    /// Looks up all keys of a Secret in this namespace.
    pub(super) fn find_all(&self, at: &InfraSecretRef) -> SecretLookup {
        match (self.secrets.get(&at.name), &self.failure) {
            (Some(data), _) => {
                let data = data.iter().map(|(key, value)| (key.clone(), value.0.clone()));
                SecretLookup::Found(data.collect())
            }
            (None, _) if self.is_listed => SecretLookup::Absent,
            (None, Some(failure)) => SecretLookup::Failed(failure.of_secrets(&at.namespace)),
            (None, None) => SecretLookup::Waiting,
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
    fn a_kubeconfig_is_removed_only_by_a_complete_list_or_a_deletion() {
        let mut secrets = NamespaceSecrets::default();
        let at = |name: &str| SecretRef {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            key: "kubeconfig".to_owned(),
        };
        let failure = || WatchFailure {
            code: Some(403),
            message: "forbidden".to_owned(),
            count: 1,
            over_limit: false,
        };
        assert_eq!(secrets.find(&at("blue")), KubeconfigLookup::Waiting);
        assert!(secrets.update("n", ReflectorEvent::Failed(failure())));
        assert!(
            !secrets.update("n", ReflectorEvent::Failed(failure())),
            "notified once"
        );
        assert_eq!(secrets.find(&at("blue")), KubeconfigLookup::Failed(failure()));
        secrets.update("n", ReflectorEvent::ListStarted);
        let blue = || secret("blue", "kubeconfig", "x");
        assert!(secrets.update("n", ReflectorEvent::Listed(blue())));
        secrets.update("n", ReflectorEvent::Listed(secret("odd", "other", "x")));
        assert!(secrets.update("n", ReflectorEvent::Complete));
        assert_eq!(
            secrets.find(&at("blue")),
            KubeconfigLookup::Kubeconfig(b"x".to_vec())
        );
        assert_eq!(
            (secrets.find(&at("odd")), secrets.find(&at("green"))),
            (KubeconfigLookup::NoKey, KubeconfigLookup::Absent)
        );
        assert!(
            !secrets.update("n", ReflectorEvent::Applied(blue())),
            "an equal Secret needs no notification"
        );
        // An incomplete list removes nothing.
        secrets.update("n", ReflectorEvent::ListStarted);
        secrets.update("n", ReflectorEvent::Failed(failure()));
        assert_eq!(
            secrets.find(&at("blue")),
            KubeconfigLookup::Kubeconfig(b"x".to_vec())
        );
        secrets.update("n", ReflectorEvent::ListStarted);
        secrets.update("n", ReflectorEvent::Complete);
        assert_eq!(secrets.find(&at("blue")), KubeconfigLookup::Absent);
        assert!(secrets.update("n", ReflectorEvent::Applied(blue())));
        assert!(secrets.update("n", ReflectorEvent::Deleted(blue())));
        assert_eq!(secrets.find(&at("blue")), KubeconfigLookup::Absent);
    }
}
