//! The authority in a Secret.

use std::{collections::BTreeMap, fmt, time::Duration};

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::PostParams,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt as _, watcher},
};

use super::CaStoreError;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients of the infra cluster's API server.
#[derive(Clone)]
pub struct SecretClients {
    /// For requests, with a timeout.
    pub requests: Client,
    /// For watches, which may be silent for minutes.
    pub watches: Client,
}

#[derive(Clone)]
pub(super) struct SecretStore {
    clients: SecretClients,
    namespace: String,
    secret: String,
}

impl fmt::Debug for SecretStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl SecretStore {
    pub(super) fn new(clients: SecretClients, namespace: &str, name: &str) -> Self {
        Self {
            clients,
            namespace: namespace.to_owned(),
            secret: name.to_owned(),
        }
    }

    pub(super) fn name(&self) -> String {
        format!("the Secret {}/{}", self.namespace, self.secret)
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.clients.requests.clone(), &self.namespace)
    }

    /// The Secret; none if it does not exist.
    pub(super) async fn read(&self) -> Result<Option<Secret>, CaStoreError> {
        let (api, request) = (self.api(), &self.secret);
        in_time(api.get_opt(request))
            .await
            .map_err(|source| self.failed("read", source))
    }

    /// Creates the Secret, or replaces the version that was read; keys of others are kept. Returns
    /// false if another writer was faster.
    pub(super) async fn write(
        &self,
        over: Option<Secret>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<bool, CaStoreError> {
        let params = PostParams::default();
        let is_new = over.is_none();
        let mut secret = over.unwrap_or_default();
        secret
            .data
            .get_or_insert_default()
            .extend(files.into_iter().map(|(name, bytes)| (name, ByteString(bytes))));
        let api = self.api();
        let written = if is_new {
            secret.metadata.name = Some(self.secret.clone());
            secret.metadata.labels = Some(BTreeMap::from([(
                "app.kubernetes.io/name".to_owned(),
                "virtfleet-collector".to_owned(),
            )]));
            secret.type_ = Some("Opaque".to_owned());
            in_time(api.create(&params, &secret)).await
        } else {
            in_time(api.replace(&self.secret, &params, &secret)).await
        };
        match written {
            Ok(_) => Ok(true),
            // AlreadyExists, or another resourceVersion.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(source) => Err(self.failed(if is_new { "create" } else { "update" }, source)),
        }
    }

    /// An item for each change, and for each start of a watch; errors are retried with a growing
    /// delay.
    pub(super) fn changes(&self) -> impl Stream<Item = Result<(), String>> + Send + use<> {
        let watches = self.clients.watches.clone();
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(watches, &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.secret));
        watcher(api, config)
            .default_backoff()
            .map(|event| event.map(drop).map_err(|error| error.to_string()))
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> CaStoreError {
        CaStoreError::Api {
            action,
            place: self.name(),
            source: Box::new(source),
        }
    }
}

pub(super) fn data(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    let data = secret.data.iter().flatten();
    data.map(|(name, bytes)| (name.clone(), bytes.0.clone()))
        .collect()
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(done) => done,
        Err(error) => Err(kube::Error::Service(Box::new(error))),
    }
}
