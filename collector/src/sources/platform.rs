//! Reads a source: its clusters and their kubeconfigs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use virtfleet_collector_core::cluster_source::{SourceCluster, SourceKind, read_cluster};

use super::report::{Ended, ReadyReason};
use crate::{
    bounded::bounded,
    objects::{ClusterSourceSpec, SourceCredentials},
};

const PAGE_SIZE: u32 = 50;
/// Maximum clusters of a source.
const MAX_FOUND: usize = 10_000;
/// Maximum size of a kubeconfig, bytes.
const MAX_KUBECONFIG_BYTES: usize = 256 << 10;
/// Maximum characters of an error of the source's API server.
const MAX_ERROR_CHARS: usize = 300;
/// Default of `spec.expirationSeconds`.
const DEFAULT_EXPIRATION_SECONDS: u32 = 6 * 3600;

/// Requested validity of an admin's kubeconfig that is used at once and not stored: a garden's
/// minimum.
const ACCOUNT_EXPIRATION_SECONDS: u32 = 600;

/// A kubeconfig of a user cluster, with its time if it was requested.
pub(super) struct Kubeconfig {
    pub(super) bytes: Vec<u8>,
    /// Version of the Secret from which it was read; empty if it was requested.
    pub(super) version: String,
    /// Start and end in seconds since 1970.
    pub(super) validity: Option<(i64, i64)>,
}

/// A source.
pub(super) struct PlatformClient<'a> {
    pub(super) client: Client,
    /// It is not the infra cluster: its error texts are not shown.
    pub(super) is_foreign: bool,
    pub(super) spec: &'a ClusterSourceSpec,
}

impl PlatformClient<'_> {
    fn api(&self, version: &str) -> Api<DynamicObject> {
        let (group, _, kind, plural) = self.spec.kind.resource();
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        match &self.spec.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// `clusters.cluster.x-k8s.io`.
    fn rbac(&self) -> String {
        let (group, _, _, plural) = self.spec.kind.resource();
        format!("{plural}.{group}")
    }

    /// All clusters, and why other objects cannot be read.
    ///
    /// # Errors
    /// The list is not complete.
    pub(super) async fn list(&self) -> Result<(Vec<SourceCluster>, Vec<String>), Ended> {
        let (_, versions, _, _) = self.spec.kind.resource();
        for version in versions {
            match self.list_version(version).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    let reason = match &error {
                        kube::Error::Api(status) if status.code == 401 => ReadyReason::Unauthorized,
                        _ => ReadyReason::Unreachable,
                    };
                    return Err((reason, self.explain("list", &self.rbac(), &error)));
                }
                Ok(objects) if objects.len() > MAX_FOUND => {
                    let why = format!("it has more than {MAX_FOUND} {}", self.rbac());
                    return Err((ReadyReason::Unreachable, why));
                }
                Ok(objects) => {
                    let mut unreadable = Vec::new();
                    let read = |object: DynamicObject| {
                        let value = serde_json::to_value(object).unwrap_or_default();
                        read_cluster(self.spec.kind, &value)
                            .map_err(|why| unreadable.push(bounded(&why, MAX_ERROR_CHARS)))
                            .ok()
                    };
                    let found: Vec<_> = objects.into_iter().filter_map(read).collect();
                    return Ok((found, unreadable));
                }
            }
        }
        let why = format!(
            "the API server has no {}: is it the right one for a source of the kind {}?",
            self.rbac(),
            self.spec.kind.as_str()
        );
        Err((ReadyReason::Unreachable, why))
    }

    async fn list_version(&self, version: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        let api = self.api(version);
        let mut params = ListParams::default().limit(PAGE_SIZE);
        let mut all = Vec::new();
        loop {
            let page = api.list(&params).await?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if all.len() <= MAX_FOUND => params = params.continue_token(&token),
                _ => return Ok(all),
            }
        }
    }

    /// Whether a cluster exists, by its key.
    ///
    /// # Errors
    /// The API server does not say.
    pub(super) async fn exists(&self, key: &str) -> Result<bool, String> {
        let (group, versions, kind, plural) = self.spec.kind.resource();
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, key),
        };
        for version in versions {
            let resource =
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            match api.get_opt(name).await {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(error) => return Err(self.explain("get", &format!("{} {key}", self.rbac()), &error)),
            }
        }
        Ok(false)
    }

    /// Name and key of the Secret with a cluster's kubeconfig.
    fn secret_of(&self, cluster: &SourceCluster) -> (String, &'static str) {
        match (self.spec.kind, self.spec.credentials) {
            (SourceKind::Kkp, SourceCredentials::Viewer) => ("viewer-kubeconfig".to_owned(), "kubeconfig"),
            (SourceKind::Kkp, _) => ("admin-kubeconfig".to_owned(), "kubeconfig"),
            _ => (format!("{}-kubeconfig", cluster.name), "value"),
        }
    }

    /// Version of the Secret with the kubeconfig of a cluster, which is not read itself; none while
    /// there is no such Secret, empty for a garden, which has no versions.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn version(&self, cluster: &SourceCluster) -> Result<Option<String>, String> {
        if self.spec.kind == SourceKind::Gardener {
            return Ok(Some(String::new()));
        }
        let Some(namespace) = &cluster.credential_namespace else {
            return Ok(None);
        };
        let (name, _) = self.secret_of(cluster);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = secrets.get_metadata_opt(&name).await;
        let found =
            found.map_err(|error| self.explain("get", &format!("Secret {namespace}/{name}"), &error))?;
        Ok(found.map(|found| version_of(&found.metadata)))
    }

    /// The kubeconfig of an admin, to make an account with it; none while there is none.
    ///
    /// # Errors
    /// It cannot be read, or the garden gives none.
    pub(super) async fn admin(&self, cluster: &SourceCluster) -> Result<Option<Kubeconfig>, String> {
        match self.spec.kind {
            SourceKind::Gardener => self.request(cluster).await.map(Some),
            SourceKind::Kkp | SourceKind::ClusterApi => self.copy(cluster).await,
        }
    }

    /// The kubeconfig in the Secret of a cluster; none while there is no such Secret.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn copy(&self, cluster: &SourceCluster) -> Result<Option<Kubeconfig>, String> {
        let Some(namespace) = &cluster.credential_namespace else {
            return Ok(None);
        };
        let (name, key) = self.secret_of(cluster);
        let title = format!("Secret {namespace}/{name}");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets.get_opt(&name).await;
        let secret = secret.map_err(|error| self.explain("get", &title, &error))?;
        let Some(secret) = secret else { return Ok(None) };
        let version = version_of(&secret.metadata);
        let data = secret.data.and_then(|mut data| data.remove(key));
        let bytes = data
            .ok_or_else(|| format!("{title} of the source has no key {key:?}"))?
            .0;
        if bytes.len() > MAX_KUBECONFIG_BYTES {
            return Err(format!(
                "{title} of the source has more than {MAX_KUBECONFIG_BYTES} bytes"
            ));
        }
        Ok(Some(Kubeconfig {
            bytes,
            version,
            validity: None,
        }))
    }

    /// Requests a kubeconfig from a garden.
    ///
    /// # Errors
    /// The garden gives none.
    pub(super) async fn request(&self, cluster: &SourceCluster) -> Result<Kubeconfig, String> {
        let (subresource, kind) = match self.spec.credentials {
            SourceCredentials::Viewer => ("viewerkubeconfig", "ViewerKubeconfigRequest"),
            SourceCredentials::Account | SourceCredentials::Admin => {
                ("adminkubeconfig", "AdminKubeconfigRequest")
            }
        };
        let namespace = cluster.namespace.as_deref().unwrap_or_default();
        let (group, versions, _, plural) = self.spec.kind.resource();
        let version = versions.first().copied().unwrap_or_default();
        let path = format!(
            "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{}/{subresource}",
            cluster.name
        );
        let seconds = match self.spec.credentials {
            SourceCredentials::Account => ACCOUNT_EXPIRATION_SECONDS,
            _ => self.spec.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS),
        };
        let body = json!({
            "apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": kind,
            "metadata": ObjectMeta { name: Some(cluster.name.clone()), ..ObjectMeta::default() },
            "spec": { "expirationSeconds": seconds },
        });
        let request = http::Request::post(&path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes());
        let request = request.map_err(|error| error.to_string())?;
        let title = format!("{plural}/{subresource} of {}", cluster.key);
        let answer: Result<Value, _> = self.client.request(request).await;
        let answer = answer.map_err(|error| self.explain("create", &title, &error))?;
        let text = answer["status"]["kubeconfig"].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).unwrap_or_default();
        let end = answer["status"]["expirationTimestamp"].as_str();
        let end: Option<jiff::Timestamp> = end.and_then(|text| text.parse().ok());
        match end {
            Some(end) if !bytes.is_empty() && bytes.len() <= MAX_KUBECONFIG_BYTES => Ok(Kubeconfig {
                bytes,
                version: String::new(),
                validity: Some((jiff::Timestamp::now().as_second(), end.as_second())),
            }),
            _ => Err(format!(
                "the garden's answer to {title} has no status.kubeconfig with status.expirationTimestamp"
            )),
        }
    }

    /// An error with what to do about it.
    fn explain(&self, verb: &str, what: &str, error: &kube::Error) -> String {
        let next = match error {
            kube::Error::Api(status) if status.code == 403 => {
                format!("; grant the source's kubeconfig the verb {verb} on {what}")
            }
            kube::Error::Api(status) if status.code == 401 => match &self.spec.kubeconfig {
                Some(at) => format!(
                    "; the source's token or certificate has expired or was revoked: put a new kubeconfig into the Secret {}/{}",
                    at.secret.namespace, at.secret.name
                ),
                None => "; the API server does not accept the collector's own account".to_owned(),
            },
            _ => String::new(),
        };
        let text = match error {
            kube::Error::Api(status) if self.is_foreign => format!("status {}", status.code),
            other => bounded(&other.to_string(), MAX_ERROR_CHARS),
        };
        format!("cannot {verb} {what}: {text}{next}")
    }
}

/// UID and version of a Secret.
fn version_of(metadata: &ObjectMeta) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.uid), text(&metadata.resource_version))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode};
    use http_body_util::BodyExt as _;
    use kube::client::Body;

    use super::*;

    /// Requests, as method, path and body.
    type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// A client whose answers are made by `answer`: status and body for a method and path.
    fn client(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> (Client, Requests) {
        let requests = Requests::default();
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
                let (code, reply) = answer(&method, &path);
                let body = serde_json::from_slice(&body).unwrap_or_default();
                seen.lock().unwrap().push((method, path, body));
                let mut response = Response::new(Body::from(reply.to_string().into_bytes()));
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        (Client::new(service, "default"), requests)
    }

    fn spec(kind: &str, credentials: &str) -> ClusterSourceSpec {
        let spec = json!({ "kind": kind, "credentials": credentials, "expirationSeconds": 1200 });
        serde_json::from_value(spec).unwrap()
    }

    fn status(code: u16) -> (u16, Value) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "", "message": "hunter2",
        });
        (code, body)
    }

    fn shoot() -> Value {
        json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": { "namespace": "garden-dev", "name": "prod", "uid": "u" },
            "spec": {}, "status": { "technicalID": "shoot--dev--prod" },
        })
    }

    #[tokio::test]
    async fn a_garden_is_asked_for_a_short_kubeconfig() {
        for (credentials, subresource, kind, seconds) in [
            ("Viewer", "viewerkubeconfig", "ViewerKubeconfigRequest", 1200),
            ("Admin", "adminkubeconfig", "AdminKubeconfigRequest", 1200),
            ("Account", "adminkubeconfig", "AdminKubeconfigRequest", 600),
        ] {
            let (client, requests) = client(|method, _| match method {
                "POST" => {
                    let status = json!({
                        "kubeconfig": STANDARD.encode("k"), "expirationTimestamp": "2100-01-01T00:00:00Z",
                    });
                    (201, json!({ "status": status }))
                }
                _ => (
                    200,
                    json!({
                        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootList",
                        "metadata": { "resourceVersion": "1" }, "items": [shoot(), { "metadata": { "name": "x" } }],
                    }),
                ),
            });
            let spec = spec("Gardener", credentials);
            let platform = PlatformClient {
                client,
                is_foreign: true,
                spec: &spec,
            };
            let (found, unreadable) = platform.list().await.unwrap();
            assert_eq!((found.len(), unreadable.len()), (1, 1));
            assert_eq!(platform.version(&found[0]).await.unwrap().as_deref(), Some(""));
            let new = platform.request(&found[0]).await.unwrap();
            assert_eq!(
                (new.bytes.as_slice(), new.validity.unwrap().1),
                (&b"k"[..], 4_102_444_800)
            );
            let requests = requests.lock().unwrap();
            let (method, path, body) = requests.last().unwrap();
            assert_eq!(method, "POST");
            assert_eq!(
                path,
                &format!("/apis/core.gardener.cloud/v1beta1/namespaces/garden-dev/shoots/prod/{subresource}")
            );
            assert_eq!(
                (&body["kind"], &body["spec"]["expirationSeconds"]),
                (&json!(kind), &json!(seconds))
            );
        }
    }

    #[tokio::test]
    async fn an_answer_without_a_kubeconfig_is_an_error() {
        let spec = spec("Gardener", "Viewer");
        let cluster = read_cluster(SourceKind::Gardener, &shoot()).unwrap();
        for (code, reply, word) in [
            (201, json!({ "status": {} }), "no status.kubeconfig"),
            (
                201,
                json!({ "status": { "kubeconfig": "!", "expirationTimestamp": "x" } }),
                "no status.kubeconfig",
            ),
            (
                403,
                status(403).1,
                "grant the source's kubeconfig the verb create",
            ),
            (401, status(401).1, "the collector's own account"),
        ] {
            let (client, _) = client(move |_, _| (code, reply.clone()));
            let platform = PlatformClient {
                client,
                is_foreign: true,
                spec: &spec,
            };
            let error = platform.request(&cluster).await.err().unwrap();
            assert!(error.contains(word) && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_older_version_of_cluster_api_is_read_too() {
        let spec: ClusterSourceSpec =
            serde_json::from_value(json!({ "kind": "ClusterAPI", "credentials": "Admin" })).unwrap();
        let (client, requests) = client(|_, path| {
            if path.contains("v1beta2") {
                return status(404);
            }
            let item = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                "metadata": { "namespace": "team", "name": "blue", "uid": "u" },
                "spec": { "infrastructureRef": { "kind": "KubevirtCluster" } },
            });
            (
                200,
                json!({ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "ClusterList", "metadata": {}, "items": [item] }),
            )
        });
        let platform = PlatformClient {
            client,
            is_foreign: false,
            spec: &spec,
        };
        let (found, _) = platform.list().await.unwrap();
        assert_eq!(found[0].key, "team/blue");
        assert!(requests.lock().unwrap()[1].1.contains("v1beta1"));
    }

    #[tokio::test]
    async fn a_server_without_the_kind_is_an_error_not_an_empty_list() {
        let spec = serde_json::from_value(json!({ "kind": "KKP" })).unwrap();
        let (client, _) = client(|_, _| status(404));
        let platform = PlatformClient {
            client,
            is_foreign: true,
            spec: &spec,
        };
        let (reason, error) = platform.list().await.err().unwrap();
        assert_eq!(reason, ReadyReason::Unreachable);
        assert!(error.contains("clusters.kubermatic.k8c.io"), "{error}");
    }

    #[tokio::test]
    async fn an_expired_kubeconfig_is_named_with_its_secret() {
        let spec = json!({
            "kind": "Gardener", "kubeconfig": { "secret": { "namespace": "kubeconfigs", "name": "garden" } },
        });
        let spec: ClusterSourceSpec = serde_json::from_value(spec).unwrap();
        let (client, _) = client(|_, _| status(401));
        let platform = PlatformClient {
            client,
            is_foreign: true,
            spec: &spec,
        };
        let (reason, error) = platform.list().await.err().unwrap();
        assert_eq!(reason, ReadyReason::Unauthorized);
        let expected = "cannot list shoots.core.gardener.cloud: status 401; the source's token or certificate has expired \
                        or was revoked: put a new kubeconfig into the Secret kubeconfigs/garden";
        assert_eq!(error, expected);
        let shoot = read_cluster(SourceKind::Gardener, &shoot()).unwrap();
        let error = platform.request(&shoot).await.err().unwrap();
        assert!(error.ends_with("the Secret kubeconfigs/garden"), "{error}");
    }
}
