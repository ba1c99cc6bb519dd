//! `cluster rotate`.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use virtfleet_runtime::digest::Sha256;

use super::{
    args::{BothClusters, TokenArgs},
    clusters::UserSide,
    place::Place,
    secret::{present, request, revoke, secret_object},
    spec::SecretPlace,
};
use crate::{
    ctl::{console::Console, fail::Fail},
    user_account::{ACCOUNT, TO_REVOKE, markers_of, used_kubeconfig},
};

/// Interval at which the status of the UserCluster is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// New token, Secret replaced, the collector uses it, old tokens revoked.
pub(super) async fn rotate(
    clusters: &BothClusters,
    token: &TokenArgs,
    infra: &Place,
    user: &UserSide,
    timeout: Duration,
    console: &mut Console<'_>,
) -> Result<(), Fail> {
    let name = clusters.name.as_str();
    let add = format!("virtfleetctl cluster add {name}");
    let Some(cluster) = present(infra, name).await? else {
        return Err(Fail::NotFound(format!(
            "there is no UserCluster {name}; make it with: {add}"
        )));
    };
    let at = SecretPlace::of(Some(&cluster), name, &clusters.secret_namespace);
    let Some(live) = infra.read(&at.object()).await? else {
        return Err(Fail::NotFound(format!(
            "there is no Secret {}/{}; make it with: {add}",
            at.namespace, at.name
        )));
    };
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "namespace": ACCOUNT.0, "name": ACCOUNT.1 },
    });
    if user.place.read(&account).await?.is_none() {
        return Err(Fail::NotFound(format!(
            "the user cluster has no ServiceAccount {}/{}; make it with: {add}",
            ACCOUNT.0, ACCOUNT.1
        )));
    }
    let previous = markers_of(&live);
    let new = request(user, name, token.duration.0).await?;
    let object = secret_object(&at, &new, &previous);
    if let Err(fail) = infra.put(&object, console).await {
        revoke(&user.place, &new.marker).await.ok();
        return Err(fail);
    }
    let fingerprint = Sha256::fingerprint(new.kubeconfig.as_bytes());
    until_used(infra, name, &fingerprint, timeout).await?;
    console.print(&format!("used       by the collector: UserCluster {name}\n"))?;
    for marker in &previous {
        if revoke(&user.place, marker).await? {
            console.print(&format!(
                "revoked    user cluster   the token of Secret {}/{marker}\n",
                ACCOUNT.0
            ))?;
        }
    }
    if previous.is_empty() {
        console.note(
            "warning: the previous token was not made by virtfleetctl and stays valid until it ends. To end all tokens \
             of the account at once, delete and recreate the ServiceAccount, then run: virtfleetctl cluster add",
        );
    } else {
        let mut done = at.object();
        done["metadata"]["annotations"] = json!({ TO_REVOKE: null });
        infra.put(&done, console).await?;
    }
    console.note(&format!("The new token is valid until {:.0}.", new.expires));
    Ok(())
}

/// Waits until the collector watches the Nodes with the new kubeconfig.
async fn until_used(infra: &Place, name: &str, fingerprint: &str, timeout: Duration) -> Result<(), Fail> {
    let end = Instant::now() + timeout;
    loop {
        let status = present(infra, name).await?.and_then(|cluster| cluster.status);
        let status = status.unwrap_or_default();
        if used_kubeconfig(&status) == Some(fingerprint) {
            return Ok(());
        }
        if Instant::now() >= end {
            let state = match status.message.as_str() {
                "" => status.phase.as_str().to_owned(),
                message => format!("{}: {message}", status.phase.as_str()),
            };
            return Err(Fail::Access(format!(
                "the collector does not use the new token yet (UserCluster {name} is {state}). The Secret has the new token, \
                 and the previous one is still valid. When the collector runs, run the same command again: it revokes the \
                 previous tokens"
            )));
        }
        sleep(POLL_INTERVAL).await;
    }
}
