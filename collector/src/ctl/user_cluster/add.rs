//! `cluster add`.

use jiff::Timestamp;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use virtfleet_wire::layered::to_yaml;

use super::{
    args::{BothClusters, SpecArgs, TokenArgs},
    clusters::{self, UserSide},
    place::Place,
    secret::{self, Present, present, secret_object, tokens_of_others},
    spec::{self, SecretPlace},
};
use crate::{
    ctl::{console::Console, fail::Fail},
    objects::LabelPropagation,
    user_account::{
        ClusterRights, admission_policies, kubeconfig_of, live_rights, markers_of, title, unneeded_objects,
        user_cluster_objects,
    },
};

/// A note tells of tokens that end sooner.
const WARN_BEFORE_SECONDS: u64 = 7 * 86_400;

/// `cluster add`.
pub(super) struct Addition<'a> {
    pub(super) clusters: &'a BothClusters,
    pub(super) spec: &'a SpecArgs,
    pub(super) token: &'a TokenArgs,
    pub(super) infra: &'a Place,
    pub(super) user: &'a UserSide,
}

impl Addition<'_> {
    pub(super) async fn run(&self, console: &mut Console<'_>) -> Result<(), Fail> {
        let name = self.clusters.name.as_str();
        clusters::check_infra(self.infra, &self.clusters.secret_namespace).await?;
        let present = present(self.infra, name).await?;
        let secret = SecretPlace::of(present.as_ref(), name, &self.clusters.secret_namespace);
        let wanted = spec::user_cluster(name, self.spec, present.as_ref(), &secret).map_err(Fail::Usage)?;
        let policies: Api<LabelPropagation> = Api::all(self.infra.client());
        let policies = policies.list(&ListParams::default()).await;
        let policies = policies.map_err(|error| self.infra.failed("list", "LabelPropagations", &error))?;
        let rights = spec::rights(self.spec, &wanted, present.as_ref(), &policies.items);
        let rights = self.with_those_of_others(rights, &secret, console).await?;
        let has_policies = admission_policies(&self.user.place.client()).await;
        let has_policies = has_policies.map_err(|error| self.user.place.fail(error))?;
        if !has_policies {
            console.note(
                "warning: the user cluster has no ValidatingAdmissionPolicies (Kubernetes 1.30): nothing limits \
                 which fields of Nodes the collector may patch",
            );
        }
        let objects = user_cluster_objects(rights, has_policies);
        let unneeded = unneeded_objects(rights);
        let done = self.write(&objects, &unneeded, &secret, &wanted, console).await;
        match done {
            Ok(true) => {
                console.note(&format!(
                    "The collector connects now: virtfleetctl clusters -o wide, or kubectl get usercluster {name}"
                ));
                Ok(())
            }
            Ok(false) => {
                console.note(&format!(
                    "User cluster {name} is as requested; nothing was changed."
                ));
                Ok(())
            }
            Err(Fail::Access(why)) if !self.infra.dry_run() => Err(Fail::Access(format!(
                "{why}. What is listed above stays. Correct the cause and run the same command again: it continues there"
            ))),
            Err(fail) => Err(fail),
        }
    }

    /// The rights, with the present ones if another collector uses the account, too: it keeps what
    /// it needs.
    async fn with_those_of_others(
        &self,
        rights: ClusterRights,
        secret: &SecretPlace,
        console: &mut Console<'_>,
    ) -> Result<ClusterRights, Fail> {
        let user = &self.user.place;
        let own = self.infra.read(&secret.object()).await?;
        let own = own.as_ref().map(markers_of).unwrap_or_default();
        let others = tokens_of_others(user, &own).await?;
        if others.is_empty() {
            return Ok(rights);
        }
        let live = live_rights(&user.writer)
            .await
            .map_err(|error| user.fail(error))?;
        let shared = rights.with(live);
        if shared != rights {
            console.note(&format!(
                "rights that this UserCluster does not need stay in the user cluster: {} of another collector is bound to \
                 the same account. When that one is gone, run this command again",
                others.join(", ")
            ));
        }
        Ok(shared)
    }

    /// Returns whether anything changed.
    async fn write(
        &self,
        objects: &[Value],
        unneeded: &[Value],
        secret: &SecretPlace,
        wanted: &Value,
        console: &mut Console<'_>,
    ) -> Result<bool, Fail> {
        let mut changed = false;
        for object in objects {
            print(object, &self.user.place, console)?;
            changed |= self.user.place.put(object, console).await?;
        }
        for object in unneeded {
            changed |= self.user.place.delete(object, console).await?;
        }
        changed |= self.secret(secret, console).await?;
        print(wanted, self.infra, console)?;
        changed |= self.infra.put(wanted, console).await?;
        Ok(changed)
    }

    /// Writes the Secret with a new token, unless the present one works.
    async fn secret(&self, at: &SecretPlace, console: &mut Console<'_>) -> Result<bool, Fail> {
        let live = self.infra.read(&at.object()).await?;
        let known = live.as_ref().and_then(|live| kubeconfig_of(live, &at.key));
        if let Some(text) = &known {
            match secret::check(text, self.user).await {
                Present::Valid(expires) => {
                    self.infra.put(&at.object(), console).await?;
                    note_expiry(&self.clusters.name, expires, console);
                    return Ok(false);
                }
                Present::Unusable(why) => console.note(&format!("the present kubeconfig is replaced: {why}")),
            }
        }
        if self.infra.dry_run() {
            let mut object = at.object();
            object["stringData"] = json!({ &at.key: "(a kubeconfig with a new token)" });
            print(&object, self.infra, console)?;
            return Ok(true);
        }
        let new = secret::request(self.user, &self.clusters.name, self.token.duration.0).await?;
        let previous = live.as_ref().map(markers_of).unwrap_or_default();
        let object = secret_object(at, &new, &previous);
        if let Err(fail) = self.infra.put(&object, console).await {
            secret::revoke(&self.user.place, &new.marker).await.ok();
            return Err(fail);
        }
        console.note(&format!("The token is valid until {:.0}.", new.expires));
        Ok(true)
    }
}

/// With a dry run, prints an object as YAML.
fn print(object: &Value, place: &Place, console: &mut Console<'_>) -> Result<(), Fail> {
    if place.dry_run() {
        let document = format!("---\n# {}: {}\n{}", place.name, title(object), to_yaml(object));
        console.print(&document)?;
    }
    Ok(())
}

/// Tells of a token that ends soon.
fn note_expiry(name: &str, expires: Option<u64>, console: &mut Console<'_>) {
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    if let Some(expires) = expires.filter(|expires| *expires < now + WARN_BEFORE_SECONDS) {
        let end = i64::try_from(expires)
            .ok()
            .and_then(|at| Timestamp::from_second(at).ok());
        let end = end.map_or_else(String::new, |end| format!(" at {end:.0}"));
        console.note(&format!(
            "warning: the collector's token ends{end}: virtfleetctl cluster rotate {name}"
        ));
    }
}
