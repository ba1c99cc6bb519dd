//! The collector's token in a user cluster, and the kubeconfig with it.
//!
//! Each token is bound to a Secret of its own: deleting the Secret revokes this token and no other,
//! so that a new token can be in use before the old one ends.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Node, Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{error::ObjectError, kubeconfig::UserServer};

/// Namespace and name of the collector's ServiceAccount in a user cluster.
pub(crate) const ACCOUNT: (&str, &str) = ("virtfleet", "virtfleet-collector");
/// Label of the Secrets to which tokens are bound.
pub(crate) const CREDENTIAL_LABEL: &str = "virtfleet.io/credential";
/// Annotation of these Secrets: UID of the UserCluster. It tells infra clusters apart.
const OWNER_UID: &str = "virtfleet.io/user-cluster-uid";
/// Maximum Secrets in a list of them.
const MAX_MARKERS: u32 = 500;
/// Timeout of a request that only checks a token.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// A new token with its kubeconfig.
pub(crate) struct Credential {
    /// The Secret to which the token is bound.
    pub(crate) marker: String,
    pub(crate) expires: Timestamp,
    pub(crate) kubeconfig: String,
}

/// For which UserCluster a token is, as its Secret says.
pub(crate) struct TokenOwner<'a> {
    pub(crate) user_cluster: &'a str,
    /// UID of the UserCluster, if it exists already.
    pub(crate) uid: Option<&'a str>,
    /// The program that requests the token.
    pub(crate) made_by: &'a str,
}

/// A Secret to which a token is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenMarker {
    pub(crate) name: String,
    /// UID of the UserCluster, if the program that made it knew it.
    pub(crate) owner_uid: Option<String>,
}

/// Requests a token. On failure nothing of it is left.
pub(crate) async fn request(
    client: &Client,
    server: &UserServer,
    owner: &TokenOwner<'_>,
    duration: Duration,
) -> Result<Credential, ObjectError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), ACCOUNT.0);
    let mut marker = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "virtfleet.io/credential",
        "metadata": {
            "generateName": "virtfleet-credential-",
            "labels": { CREDENTIAL_LABEL: "true", "app.kubernetes.io/managed-by": owner.made_by },
            "annotations": { "virtfleet.io/user-cluster": owner.user_cluster },
        },
    });
    if let Some(uid) = owner.uid {
        marker["metadata"]["annotations"][OWNER_UID] = uid.into();
    }
    let title = format!("Secret {}/virtfleet-credential-*", ACCOUNT.0);
    let made = match serde_json::from_value(marker) {
        Ok(marker) => secrets.create(&PostParams::default(), &marker).await,
        Err(error) => Err(kube::Error::SerdeError(error)),
    };
    let made = made.map_err(ObjectError::of("create", title))?;
    let (name, uid) = (
        made.metadata.name.unwrap_or_default(),
        made.metadata.uid.unwrap_or_default(),
    );
    match token(client, &name, uid, duration).await {
        Ok((token, expires)) => Ok(Credential {
            marker: name,
            expires,
            kubeconfig: server.kubeconfig(&token),
        }),
        Err(error) => {
            revoke(client, &name).await.ok();
            Err(error)
        }
    }
}

async fn token(
    client: &Client,
    marker: &str,
    uid: String,
    duration: Duration,
) -> Result<(String, Timestamp), ObjectError> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(marker.to_owned()),
                uid: Some(uid),
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), ACCOUNT.0);
    let answer = accounts
        .create_token_request(ACCOUNT.1, &PostParams::default(), &request)
        .await;
    let title = format!("a token of ServiceAccount {}/{}", ACCOUNT.0, ACCOUNT.1);
    let answer = answer.map_err(ObjectError::of("request", title))?;
    let status = answer.status.ok_or_else(|| {
        ObjectError::Answer("the user cluster's API server returned no token; check its log".to_owned())
    })?;
    Ok((status.token, status.expiration_timestamp.0))
}

/// Revokes a token by deleting its Secret. Returns whether there was one.
pub(crate) async fn revoke(client: &Client, marker: &str) -> Result<bool, ObjectError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), ACCOUNT.0);
    match secrets.delete(marker, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => {
            let title = format!("Secret {}/{marker}", ACCOUNT.0);
            Err(ObjectError::of("delete", title)(error))
        }
    }
}

/// The Secrets to which tokens of any collector are bound.
pub(crate) async fn markers(client: &Client) -> Result<Vec<TokenMarker>, ObjectError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), ACCOUNT.0);
    let params = ListParams::default()
        .labels(&format!("{CREDENTIAL_LABEL}=true"))
        .limit(MAX_MARKERS);
    let list = secrets.list_metadata(&params).await;
    let list = list.map_err(ObjectError::of("list", format!("Secrets of {}", ACCOUNT.0)))?;
    let marker = |one: kube::core::PartialObjectMeta<Secret>| {
        let owner_uid = one.metadata.annotations.and_then(|mut all| all.remove(OWNER_UID));
        let name = one.metadata.name?;
        Some(TokenMarker { name, owner_uid })
    };
    Ok(list.items.into_iter().filter_map(marker).collect())
}

/// Whether the API server accepts the token of a client. True if it cannot be reached: only the
/// collector may be able to.
pub(crate) async fn is_accepted(client: &Client) -> bool {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = ListParams::default().limit(1);
    let answer = tokio::time::timeout(CHECK_TIMEOUT, nodes.list_metadata(&params)).await;
    !matches!(answer, Ok(Err(kube::Error::Api(status))) if status.code == 401)
}
