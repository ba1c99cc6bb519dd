//! Reads and writes the infra cluster: ClusterSources, UserClusters and Secrets.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use virtfleet_collector_core::{
    cluster_source::{HIBERNATES_LABEL, KnownAccount, KnownCredential, SOURCE_LABEL},
    object_change::{ObjectChange, object_change, without_nulls},
};
use virtfleet_runtime::digest::Sha256;

use super::wanted::{
    CREDENTIALS_ANNOTATION, KUBECONFIG_KEY, OBJECTS_ANNOTATION, UID_ANNOTATION, VALIDITY_ANNOTATION,
    VERSION_ANNOTATION,
};
use crate::{
    bounded::bounded,
    leader::WriteAccess,
    objects::{
        ClusterSource, ClusterSourceSpec, ClusterSourceStatus, LabelPropagation, SecretKeyRef,
        SourceCredentials, UserCluster,
    },
    user_account::{TO_REVOKE, kubeconfig_of, markers_of},
};

/// A write needs to be the leader's for at least this long.
const WRITE_MARGIN: Duration = Duration::from_secs(1);
/// Maximum characters of an error.
const MAX_ERROR_CHARS: usize = 300;
const PAGE_SIZE: u32 = 500;

/// Why something could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InfraError {
    /// Another process leads.
    NotLeader,
    Request(String),
}

pub(super) struct SourceInfra {
    client: Client,
    write_access: WriteAccess,
}

/// A Secret that a source has made.
pub(super) struct KnownSecret(Value);

impl KnownSecret {
    pub(super) fn new(secret: Value) -> Self {
        Self(secret)
    }

    /// The time of its kubeconfig, if it was requested for this cluster and with these rights.
    pub(super) fn requested(&self, spec: &ClusterSourceSpec, uid: &str) -> Option<KnownCredential> {
        self.credentials(uid)
            .filter(|known| *known == spec.credentials.as_str())?;
        self.validity()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][key].as_str()
    }

    fn validity(&self) -> Option<KnownCredential> {
        let (issued, expires) = self.annotation(VALIDITY_ANNOTATION)?.split_once('/')?;
        Some(KnownCredential {
            issued: issued.parse().ok()?,
            expires: expires.parse().ok()?,
        })
    }

    /// Which credentials it has, if they are for the cluster with this UID.
    pub(super) fn credentials(&self, uid: &str) -> Option<&str> {
        let credentials = self.annotation(CREDENTIALS_ANNOTATION);
        credentials.filter(|_| self.annotation(UID_ANNOTATION) == Some(uid))
    }

    /// The account whose kubeconfig it has, if it is one in the cluster with this UID.
    pub(super) fn account(&self, uid: &str) -> Option<KnownAccount> {
        self.credentials(uid)
            .filter(|known| *known == SourceCredentials::Account.as_str())?;
        let text = |key: &str| self.annotation(key).unwrap_or_default().to_owned();
        Some(KnownAccount {
            validity: self.validity()?,
            objects: text(OBJECTS_ANNOTATION),
            admin_version: text(VERSION_ANNOTATION),
            kubeconfig: Sha256::fingerprint(&self.kubeconfig()?),
            has_old_tokens: !text(TO_REVOKE).is_empty(),
        })
    }

    pub(super) fn kubeconfig(&self) -> Option<Vec<u8>> {
        kubeconfig_of(&self.0, KUBECONFIG_KEY)
    }

    /// The Secrets of the user cluster to which its tokens are bound, old ones included.
    pub(super) fn markers(&self) -> Vec<String> {
        markers_of(&self.0)
    }

    /// Those of old tokens.
    pub(super) fn old_markers(&self) -> Vec<String> {
        let all = self.annotation(TO_REVOKE).unwrap_or_default().split(',');
        all.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// The present time, RFC 3339.
pub(super) fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

fn described(what: &str, error: &kube::Error) -> String {
    let next = match error {
        kube::Error::Api(status) if status.code == 403 => {
            "; apply packaging/collector/kubernetes/sources/infra.yaml, which grants it"
        }
        _ => "",
    };
    format!(
        "cannot {what}: {}{next}",
        bounded(&error.to_string(), MAX_ERROR_CHARS)
    )
}

impl SourceInfra {
    pub(super) fn new(client: Client, write_access: WriteAccess) -> Self {
        Self { client, write_access }
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) async fn sources(&self) -> Result<Vec<ClusterSource>, String> {
        let api: Api<ClusterSource> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|error| described("list ClusterSources", &error))?;
        Ok(list.items)
    }

    pub(super) async fn user_clusters(&self) -> Result<Vec<UserCluster>, String> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE_SIZE);
        let mut all = Vec::new();
        loop {
            let page = api.list(&params).await;
            let page = page.map_err(|error| described("list UserClusters", &error))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// The UserClusters whose label says that they hibernate.
    pub(super) async fn hibernating(&self) -> Result<Vec<UserCluster>, String> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let params = ListParams::default().labels(&format!("{HIBERNATES_LABEL}=true"));
        let list = api.list(&params).await;
        let list = list.map_err(|error| described("list UserClusters", &error))?;
        Ok(list.items)
    }

    /// One UserCluster; none if it does not exist.
    pub(super) async fn user_cluster(&self, name: &str) -> Result<Option<UserCluster>, String> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let found = api.get_opt(name).await;
        found.map_err(|error| described(&format!("read UserCluster {name}"), &error))
    }

    pub(super) async fn policies(&self) -> Result<Vec<LabelPropagation>, String> {
        let api: Api<LabelPropagation> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|error| described("list LabelPropagations", &error))?;
        Ok(list.items)
    }

    /// Runs `work` while this process leads; none if it does not, or if it loses the leadership.
    pub(super) async fn while_leading<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.write_access.within(WRITE_MARGIN, work).await
    }

    /// One of the Secrets that a source has made; none if there is none.
    pub(super) async fn secret(
        &self,
        namespace: &str,
        source: &str,
        name: &str,
    ) -> Result<Option<KnownSecret>, String> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let mut found = self.secrets_with(namespace, source, params).await?;
        Ok(found.remove(name))
    }

    /// The Secrets that a source has made, by name.
    pub(super) async fn secrets(
        &self,
        namespace: &str,
        source: &str,
    ) -> Result<BTreeMap<String, KnownSecret>, String> {
        self.secrets_with(namespace, source, ListParams::default()).await
    }

    async fn secrets_with(
        &self,
        namespace: &str,
        source: &str,
        params: ListParams,
    ) -> Result<BTreeMap<String, KnownSecret>, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let params = params.labels(&format!("{SOURCE_LABEL}={source}"));
        let list = api.list(&params).await;
        let list = list.map_err(|error| described(&format!("list Secrets of {namespace}"), &error))?;
        let known = list.items.into_iter().map(|secret| {
            let name = secret.name_any();
            (
                name,
                KnownSecret::new(serde_json::to_value(secret).unwrap_or_default()),
            )
        });
        Ok(known.collect())
    }

    /// The kubeconfig of a source. With a list, because the collector may list the Secrets of this
    /// namespace, and no more.
    pub(super) async fn kubeconfig(&self, at: &SecretKeyRef) -> Result<Vec<u8>, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &at.namespace);
        let place = format!("Secret {}/{}", at.namespace, at.name);
        let params = ListParams::default().fields(&format!("metadata.name={}", at.name));
        let list = api.list(&params).await;
        let list = list.map_err(|error| described(&format!("read {place}"), &error))?;
        let secret = list.items.into_iter().next();
        let secret = secret.ok_or_else(|| format!("{place} does not exist"))?;
        let data = secret.data.and_then(|mut data| data.remove(&at.key));
        data.map(|bytes| bytes.0)
            .ok_or_else(|| format!("{place} has no key {:?}", at.key))
    }

    async fn write<T>(
        &self,
        what: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, InfraError> {
        match self.write_access.within(WRITE_MARGIN, request).await {
            None => Err(InfraError::NotLeader),
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(InfraError::Request(described(what, &error))),
        }
    }

    /// Makes a UserCluster, or changes it if it differs; returns its UID. A change names the
    /// version that was read, so that an object that somebody else has just made is never changed.
    pub(super) async fn put_user_cluster(
        &self,
        wanted: &Value,
        live: Option<&UserCluster>,
    ) -> Result<String, InfraError> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("write UserCluster {name}");
        let value = live.and_then(|live| serde_json::to_value(live).ok());
        let done = match object_change(wanted, value.as_ref()) {
            ObjectChange::Keep => return Ok(live.and_then(kube::ResourceExt::uid).unwrap_or_default()),
            ObjectChange::Create => {
                let object = serde_json::from_value(without_nulls(wanted));
                let object: UserCluster =
                    object.map_err(|error| InfraError::Request(format!("cannot {what}: {error}")))?;
                self.write(&what, api.create(&PostParams::default(), &object))
                    .await?
            }
            ObjectChange::Patch(mut patch) => {
                patch["metadata"]["resourceVersion"] =
                    json!(live.and_then(kube::ResourceExt::resource_version));
                let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                self.write(&what, api.patch(name, &params, &patch)).await?
            }
        };
        tracing::info!(user_cluster = name, "the UserCluster follows its source");
        Ok(done.uid().unwrap_or_default())
    }

    /// Removes the label that says that a UserCluster hibernates, in the version that was read.
    pub(super) async fn wake(&self, live: &UserCluster) -> Result<(), InfraError> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let name = live.name_any();
        let patch = json!({ "metadata": {
            "resourceVersion": live.resource_version(), "labels": { HIBERNATES_LABEL: null },
        } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let what = format!("change UserCluster {name}");
        self.write(&what, api.patch(&name, &params, &patch)).await?;
        tracing::info!(
            user_cluster = name,
            "no source says any more that the UserCluster hibernates"
        );
        Ok(())
    }

    /// Makes or changes a Secret of a source, in the version that was read. One of that name that
    /// is not the source's is never changed.
    pub(super) async fn put_secret(
        &self,
        wanted: &Value,
        known: Option<&KnownSecret>,
    ) -> Result<(), InfraError> {
        let text = |key: &str| wanted["metadata"][key].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("write Secret {namespace}/{name}");
        match object_change(wanted, known.map(|known| &known.0)) {
            ObjectChange::Keep => Ok(()),
            ObjectChange::Create => {
                let object = serde_json::from_value(without_nulls(wanted));
                let object: Secret =
                    object.map_err(|error| InfraError::Request(format!("cannot {what}: {error}")))?;
                self.write(&what, api.create(&PostParams::default(), &object))
                    .await
                    .map(drop)
            }
            ObjectChange::Patch(mut patch) => {
                let version = known.map(|known| &known.0["metadata"]["resourceVersion"]);
                patch["metadata"]["resourceVersion"] = json!(version);
                let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                self.write(&what, api.patch(name, &params, &patch))
                    .await
                    .map(drop)
            }
        }
    }

    /// Removes a UserCluster in the version that was read, and its Secret.
    pub(super) async fn remove(
        &self,
        cluster: &UserCluster,
        secret: Option<&KnownSecret>,
    ) -> Result<(), InfraError> {
        let api: Api<UserCluster> = Api::all(self.client.clone());
        let name = cluster.name_any();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: cluster.uid(),
            resource_version: cluster.resource_version(),
        });
        let what = format!("delete UserCluster {name}");
        self.write(&what, api.delete(&name, &params)).await?;
        match secret {
            Some(secret) => self.remove_secret(secret, &DeleteParams::default()).await,
            None => Ok(()),
        }
    }

    /// Removes a Secret in the version that was read.
    pub(super) async fn remove_credentials(&self, secret: &KnownSecret) -> Result<(), InfraError> {
        let text = |key: &str| secret.0["metadata"][key].as_str().map(str::to_owned);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        });
        self.remove_secret(secret, &params).await
    }

    async fn remove_secret(&self, secret: &KnownSecret, params: &DeleteParams) -> Result<(), InfraError> {
        let text = |key: &str| secret.0["metadata"][key].as_str().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), text("namespace"));
        let what = format!("delete Secret {}/{}", text("namespace"), text("name"));
        self.write(&what, api.delete(text("name"), params))
            .await
            .map(drop)
    }

    pub(super) async fn write_status(
        &self,
        source: &ClusterSource,
        status: &ClusterSourceStatus,
    ) -> Result<(), String> {
        let api: Api<ClusterSource> = Api::all(self.client.clone());
        let body = Patch::Merge(json!({ "status": status }));
        let (name, params) = (source.name_any(), PatchParams::default());
        match self
            .write("write the status", api.patch_status(&name, &params, &body))
            .await
        {
            Ok(_) | Err(InfraError::NotLeader) => Ok(()),
            Err(InfraError::Request(why)) => Err(why),
        }
    }
}
