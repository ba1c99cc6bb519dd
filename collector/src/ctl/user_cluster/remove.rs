//! `cluster remove`.

use std::io::{self, BufRead as _, IsTerminal as _};

use serde_json::{Value, json};

use super::{
    args::BothClusters,
    clusters,
    place::Place,
    secret::{present, tokens_of_others},
    spec::{MADE_BY, SecretPlace},
};
use crate::{
    ctl::{console::Console, fail::Fail},
    user_account::{
        ACCOUNT, CREDENTIAL_LABEL, ClusterRights, admission_policies, markers_of, title, user_cluster_objects,
    },
};

/// Removes the UserCluster first, so that the collector writes nothing any more; then its Secret;
/// then what the user cluster has.
pub(super) async fn remove(
    clusters: &BothClusters,
    infra: &Place,
    yes: bool,
    infra_only: bool,
    console: &mut Console<'_>,
) -> Result<(), Fail> {
    let name = clusters.name.as_str();
    let user = if infra_only {
        None
    } else {
        Some(clusters::user_place(clusters, infra.dry_run()).await?)
    };
    let cluster = present(infra, name).await?;
    let at = SecretPlace::of(cluster.as_ref(), name, &clusters.secret_namespace);
    let secret = infra.read(&at.object()).await?;
    if !yes && !infra.dry_run() {
        ask(name, infra_only, console)?;
    }
    console.note(&format!(
        "Labels that the collector has set on the Nodes stay. To restore them before, see \
         docs/labels.md, or: virtfleetctl labels diff --all --cluster {name}"
    ));
    let object = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
    });
    let mut changed = infra.delete(&object, console).await?;
    let ours = secret
        .as_ref()
        .is_some_and(|secret| secret["metadata"]["annotations"][MADE_BY] == "virtfleetctl");
    if ours {
        changed |= infra.delete(&at.object(), console).await?;
    } else if secret.is_some() {
        console.note(&format!(
            "{} was not made by virtfleetctl and stays",
            title(&at.object())
        ));
    }
    if let Some(user) = &user {
        let own = secret.as_ref().map(markers_of).unwrap_or_default();
        changed |= remove_there(user, &own, console).await?;
    }
    if !changed {
        console.note(&format!("There was nothing of user cluster {name} to remove."));
    }
    Ok(())
}

/// Removes the collector's account and rights from the user cluster, unless another collector uses
/// them.
async fn remove_there(user: &Place, own: &[String], console: &mut Console<'_>) -> Result<bool, Fail> {
    let mut changed = false;
    for marker in own {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": ACCOUNT.0, "name": marker },
        });
        changed |= user.delete(&object, console).await?;
    }
    let others = tokens_of_others(user, own).await?;
    if !others.is_empty() {
        console.note(&format!(
            "the account and its rights stay in the user cluster: {} of another collector is bound to them. Delete the \
             Secrets in {} with the label {} to remove them as well",
            others.join(", "),
            ACCOUNT.0,
            CREDENTIAL_LABEL
        ));
        return Ok(changed);
    }
    let has_policies = admission_policies(&user.client()).await;
    for object in reverse_objects(has_policies.map_err(|error| user.fail(error))?) {
        changed |= user.delete(&object, console).await?;
    }
    console.note(&format!(
        "the namespace {} stays in the user cluster; delete it if nothing else is in it",
        ACCOUNT.0
    ));
    Ok(changed)
}

/// What is deleted, in this order: rights before the admission policy that limits them.
fn reverse_objects(has_policies: bool) -> Vec<Value> {
    let all = ClusterRights {
        labels: true,
        follow_if_safe: true,
        node_conditions: true,
    };
    let mut objects = user_cluster_objects(all, has_policies);
    objects.retain(|object| object["kind"] != "Namespace");
    let rank = |object: &Value| match object["kind"].as_str() {
        Some("ClusterRoleBinding" | "RoleBinding") => 0,
        Some("ClusterRole" | "Role") => 1,
        Some("ServiceAccount") => 2,
        Some("ValidatingAdmissionPolicyBinding") => 3,
        _ => 4,
    };
    objects.sort_by_key(rank);
    objects
}

/// Asks on a terminal; elsewhere `--yes` is needed.
fn ask(name: &str, infra_only: bool, console: &mut Console<'_>) -> Result<(), Fail> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Fail::Usage(
            "cluster remove asks on a terminal; set --yes to remove without a question".into(),
        ));
    }
    let what = if infra_only {
        "its UserCluster and Secret"
    } else {
        "its UserCluster, Secret, account and rights"
    };
    write!(console.err, "Remove user cluster {name}: {what}? [y/N] ")?;
    console.err.flush()?;
    let mut line = String::new();
    stdin.lock().read_line(&mut line)?;
    if matches!(line.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Fail::Usage("nothing was removed".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_go_before_the_policy_that_limits_them() {
        let kinds: Vec<_> = reverse_objects(true)
            .iter()
            .map(|object| object["kind"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(
            kinds,
            [
                "ClusterRoleBinding",
                "RoleBinding",
                "ClusterRoleBinding",
                "ClusterRole",
                "Role",
                "ClusterRole",
                "ServiceAccount",
                "ValidatingAdmissionPolicyBinding",
                "ValidatingAdmissionPolicy"
            ]
        );
        assert_eq!(reverse_objects(false).len(), 7);
    }
}
