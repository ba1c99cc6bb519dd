//! Records in ConfigMaps of the collector's own namespace: tenants may have rights in the
//! namespaces of their VMs, and one object cannot hold ten thousand records.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    core::Status,
};

use super::store::{RecordStore, RecordWriteError, StoredShard};

/// Number of ConfigMaps.
const SHARDS: usize = 64;
/// Label of the ConfigMaps, for `kubectl get configmaps -l`, with its value.
const LABEL: (&str, &str) = ("virtfleet.io/component", "enrolments");
/// Key of the JSON in a ConfigMap.
const DATA_KEY: &str = "enrolments.json";
/// Maximum bytes of the JSON: a ConfigMap may have 1 MiB in all.
const MAX_JSON_BYTES: usize = 1000 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent requests while all are read.
const CONCURRENT_READS: usize = 8;

/// Records in the ConfigMaps `virtfleet-enrolments-00` to `-63`.
#[derive(Clone)]
pub struct ConfigMapRecords {
    api: Api<ConfigMap>,
}

impl ConfigMapRecords {
    /// ConfigMaps in this namespace. They need not exist.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
        }
    }
}

fn name(shard: usize) -> String {
    format!("virtfleet-enrolments-{shard:02}")
}

/// The JSON and the version of a ConfigMap.
fn stored(map: ConfigMap) -> Option<(String, String)> {
    let version = map.metadata.resource_version?;
    let json = map.data.and_then(|mut data| data.remove(DATA_KEY));
    Some((json.unwrap_or_default(), version))
}

impl RecordStore for ConfigMapRecords {
    /// The resourceVersion.
    type Version = String;

    fn shards(&self) -> usize {
        SHARDS
    }

    async fn read(&self, shard: Option<usize>) -> Result<Vec<StoredShard<String>>, String> {
        let shards = match shard {
            Some(shard) => shard..shard + 1,
            None => 0..SHARDS,
        };
        // One request for each object needs no right to list, which RBAC cannot limit to these
        // objects.
        let reads = shards.map(|shard| async move {
            let found = with_timeout(self.api.get_opt(&name(shard))).await;
            let found = found.map_err(|error| format!("reading the ConfigMap {}: {error}", name(shard)))?;
            let stored = found.and_then(stored);
            Ok(StoredShard { shard, stored })
        });
        futures_util::stream::iter(reads)
            .buffered(CONCURRENT_READS)
            .try_collect()
            .await
    }

    async fn write(
        &self,
        shard: usize,
        json: String,
        over: Option<&String>,
    ) -> Result<String, RecordWriteError> {
        let name = name(shard);
        if json.len() > MAX_JSON_BYTES {
            return Err(RecordWriteError::Failed(format!(
                "the records of the ConfigMap {name} have {} bytes, more than {MAX_JSON_BYTES}",
                json.len()
            )));
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(BTreeMap::from([(LABEL.0.to_owned(), LABEL.1.to_owned())])),
                resource_version: over.cloned(),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(DATA_KEY.to_owned(), json)])),
            ..ConfigMap::default()
        };
        let params = PostParams::default();
        let written = if over.is_some() {
            with_timeout(self.api.replace(&name, &params, &map)).await
        } else {
            with_timeout(self.api.create(&params, &map)).await
        };
        let map = written.map_err(|error| match error {
            // Changed, created or deleted by another process.
            RequestError::Status(status) if matches!(status.code, 404 | 409) => RecordWriteError::Conflict,
            error => RecordWriteError::Failed(format!("writing the ConfigMap {name}: {error}")),
        })?;
        map.metadata
            .resource_version
            .ok_or_else(|| RecordWriteError::Failed(format!("the ConfigMap {name} has no resourceVersion")))
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    /// The API server refused it.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    #[error("{0}")]
    Other(String),
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(RequestError::Status(status)),
        Ok(Err(error)) => Err(RequestError::Other(error.to_string())),
        Err(_) => Err(RequestError::Other(format!(
            "no answer within {REQUEST_TIMEOUT:?}"
        ))),
    }
}
