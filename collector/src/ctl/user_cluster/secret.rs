//! The Secret in the infra cluster with the collector's kubeconfig, and its token.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{Api, Client, Config, config::KubeConfigOptions};
use serde_json::{Value, json};

use super::{
    clusters::UserSide,
    place::Place,
    spec::{MADE_BY, SecretPlace},
};
use crate::{
    access::token_claims::UnverifiedClaims,
    ctl::fail::Fail,
    objects::UserCluster,
    user_account::{self, CREDENTIAL, Credential, EXPIRES, TO_REVOKE, TokenOwner, is_accepted, token_of},
};

/// The UserCluster, if it exists.
pub(super) async fn present(infra: &Place, name: &str) -> Result<Option<UserCluster>, Fail> {
    let api: Api<UserCluster> = Api::all(infra.client());
    let found = api.get_opt(name).await;
    found.map_err(|error| infra.failed("read", &format!("UserCluster {name}"), &error))
}

/// The Secrets in the user cluster to which tokens of other collectors are bound; `own` are those
/// of this one.
pub(super) async fn tokens_of_others(user: &Place, own: &[String]) -> Result<Vec<String>, Fail> {
    let all = user_account::markers(&user.client()).await;
    let names = all.map_err(|error| user.fail(error))?.into_iter();
    let names = names.map(|marker| marker.name);
    Ok(names.filter(|name| !own.contains(name)).collect())
}

/// Requests a token. On failure nothing of it is left.
pub(super) async fn request(user: &UserSide, cluster: &str, duration: Duration) -> Result<Credential, Fail> {
    let owner = TokenOwner {
        user_cluster: cluster,
        uid: None,
        made_by: "virtfleetctl",
    };
    let new = user_account::request(&user.place.client(), &user.server, &owner, duration).await;
    new.map_err(|error| user.place.fail(error))
}

/// Revokes a token by deleting its Secret. Returns whether there was one.
pub(super) async fn revoke(user: &Place, marker: &str) -> Result<bool, Fail> {
    let done = user_account::revoke(&user.client(), marker).await;
    done.map_err(|error| user.fail(error))
}

/// What is known about a kubeconfig that is already there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Present {
    /// The collector can use it; the end of its token, in seconds since 1970.
    Valid(Option<u64>),
    /// It names another API server or authority, its token is not accepted, or it is none.
    Unusable(String),
}

/// Checks the kubeconfig in the infra cluster with one request to the user cluster.
pub(super) async fn check(text: &[u8], user: &UserSide) -> Present {
    let unusable = |why: &str| Present::Unusable(why.to_owned());
    let parsed = match user.server.check(text) {
        Ok(parsed) => parsed,
        Err(why) => return unusable(why),
    };
    let expires = UnverifiedClaims::of(&token_of(&parsed)).expires;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    let client = config.ok().and_then(|config| Client::try_from(config).ok());
    match client {
        None => unusable("its credentials cannot be used"),
        Some(client) if is_accepted(&client).await => Present::Valid(expires),
        Some(_) => unusable("its token is not accepted"),
    }
}

pub(super) fn secret_object(at: &SecretPlace, new: &Credential, previous: &[String]) -> Value {
    let mut object = at.object();
    let mut annotations = BTreeMap::from([
        (MADE_BY, "virtfleetctl".to_owned()),
        (CREDENTIAL, new.marker.clone()),
        (EXPIRES, format!("{:.0}", new.expires)),
    ]);
    if !previous.is_empty() {
        annotations.insert(TO_REVOKE, previous.join(","));
    }
    object["metadata"]["annotations"] = json!(annotations);
    object["data"] = json!({ &at.key: STANDARD.encode(&new.kubeconfig) });
    object
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::user_account::{kubeconfig_of, markers_of};

    #[test]
    fn a_secret_remembers_what_is_to_be_revoked() {
        let at = SecretPlace::of(None, "blue", "n");
        let new = |marker: &str| Credential {
            marker: marker.into(),
            expires: Timestamp::UNIX_EPOCH,
            kubeconfig: "k".into(),
        };
        let first = secret_object(&at, &new("a"), &[]);
        assert_eq!(markers_of(&first), ["a"]);
        let second = secret_object(&at, &new("b"), &markers_of(&first));
        assert_eq!(markers_of(&second), ["a", "b"]);
        assert_eq!(kubeconfig_of(&second, "kubeconfig"), Some(b"k".to_vec()));
        assert_eq!(second["metadata"]["annotations"][EXPIRES], "1970-01-01T00:00:00Z");
        assert_eq!(markers_of(&at.object()), [""; 0]);
    }
}
