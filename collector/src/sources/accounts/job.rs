//! Makes one account, brings it up to date, or gives it a new token.
//!
//! The admin's kubeconfig is read only here. It is dropped at the end, and no error has any text of
//! it.

use std::{sync::Arc, time::Duration};

use kube::{Client, config::Kubeconfig};
use tokio::time::timeout;
use virtfleet_collector_core::cluster_source::{AccountStep, KnownCredential, WantedCluster};

use super::{
    super::{
        infra::{InfraError, KnownSecret, SourceInfra},
        platform::PlatformClient,
        wanted::{self, AccountSecret},
    },
    state::{AccountPlan, step},
};
use crate::{
    bounded::bounded,
    objects::{ClusterSource, UserCluster},
    tenants::Tenants,
    user_account::{
        self, Authority, ClusterRights, Credential, KubeconfigFacts, ObjectError, ObjectWriter, TokenOwner,
        UserServer, admission_policies, is_accepted, live_rights, markers, revoke, unneeded_objects,
        user_cluster_objects,
    },
};

const TOKEN_VALIDITY: Duration = Duration::from_hours(30 * 24);
/// Minimum validity of a token; a shorter one would be renewed in almost every cycle.
const MIN_TOKEN_SECONDS: i64 = 600;
/// Maximum time for one job.
const JOB_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two attempts to repair an account whose user cluster cannot be reached.
const VERIFY_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum characters of an error.
const MAX_ERROR_CHARS: usize = 400;

/// Everything that is due for the account in one user cluster.
pub(in crate::sources) struct AccountJob {
    pub(in crate::sources) infra: Arc<SourceInfra>,
    pub(in crate::sources) tenants: Arc<Tenants>,
    pub(in crate::sources) source: Arc<ClusterSource>,
    /// The client of the source.
    pub(in crate::sources) platform: Client,
    pub(in crate::sources) is_foreign: bool,
    pub(in crate::sources) wanted: WantedCluster,
    /// Version of the admin's kubeconfig.
    pub(in crate::sources) version: String,
}

/// What a job has found in the infra cluster.
struct JobState {
    uid: String,
    secret: Option<KnownSecret>,
    plan: AccountPlan,
    step: AccountStep,
}

/// A user cluster as its admin reaches it.
struct AdminSide {
    client: Client,
    server: UserServer,
    /// Version of the admin's kubeconfig.
    version: String,
}

impl AccountJob {
    /// Does what is due. Returns the minimum time until the next attempt.
    pub(super) async fn run(&self) -> Result<Duration, String> {
        let work = self.infra.while_leading(Box::pin(self.try_run()));
        let done = match timeout(JOB_TIMEOUT, work).await {
            Ok(Some(done)) => done,
            // Another process leads: it continues.
            Ok(None) => Ok(Duration::ZERO),
            Err(_) => Err(format!("it took more than {} seconds", JOB_TIMEOUT.as_secs())),
        };
        done.map_err(|why| bounded(&why, MAX_ERROR_CHARS))
    }

    async fn try_run(&self) -> Result<Duration, String> {
        let Some(state) = self.state().await? else {
            return Ok(Duration::ZERO);
        };
        if state.step == AccountStep::Keep {
            return Ok(Duration::ZERO);
        }
        let admin = self.admin().await?;
        let known = state.secret.as_ref().and_then(KnownSecret::kubeconfig);
        let has_moved = known.is_none_or(|known| admin.server.check(&known).is_err());
        match state.step {
            AccountStep::Compare if !has_moved => self.store(&state, &admin, None).await?,
            AccountStep::Revoke if !has_moved => self.revoke(&state, &admin).await?,
            _ => self.write(&state, &admin, has_moved).await?,
        }
        Ok(match state.step {
            AccountStep::Verify => VERIFY_INTERVAL,
            _ => Duration::ZERO,
        })
    }

    /// The UserCluster, its Secret, and what is due; none if the UserCluster is not the source's
    /// any more. Read again, because the job may have waited.
    async fn state(&self) -> Result<Option<JobState>, String> {
        let source = self.source.metadata.name.as_deref().unwrap_or_default();
        let Some(cluster) = self.infra.user_cluster(&self.wanted.name).await? else {
            return Ok(None);
        };
        let existing = wanted::existing(&cluster);
        let is_ours = existing.source.as_deref() == Some(source)
            && existing.source_uid == self.wanted.cluster.uid
            && !existing.is_deleting;
        if !is_ours {
            return Ok(None);
        }
        let name = wanted::secret_name(&self.wanted.name);
        let namespace = &self.source.spec.secret_namespace;
        let secret = self.infra.secret(namespace, source, &name).await?;
        let plan = AccountPlan::of(&cluster, &self.infra.policies().await?);
        let step = self.step(&cluster, secret.as_ref(), &plan);
        Ok(Some(JobState {
            uid: cluster.metadata.uid.unwrap_or_default(),
            secret,
            plan,
            step,
        }))
    }

    fn step(&self, cluster: &UserCluster, secret: Option<&KnownSecret>, plan: &AccountPlan) -> AccountStep {
        let uid = &self.wanted.cluster.uid;
        step(cluster, secret, uid, plan, &self.version, now())
    }

    /// Reads the admin's kubeconfig, with the rules and limits for those of user clusters.
    async fn admin(&self) -> Result<AdminSide, String> {
        let platform = PlatformClient {
            client: self.platform.clone(),
            is_foreign: self.is_foreign,
            spec: &self.source.spec,
        };
        let found = platform.admin(&self.wanted.cluster).await?;
        let found = found.ok_or("the source has no kubeconfig of an admin for this cluster any more")?;
        let unusable = |why: String| format!("the admin's kubeconfig in the source cannot be used: {why}");
        // First, because it checks the text before it is parsed.
        let client = self.tenants.connect(found.bytes.clone()).await;
        let client = client.map_err(unusable)?;
        let server = server_of(&found.bytes).map_err(unusable)?;
        Ok(AdminSide {
            client,
            server,
            version: found.version,
        })
    }

    /// Writes the objects, requests a token if it is needed, and stores both.
    async fn write(&self, state: &JobState, admin: &AdminSide, has_moved: bool) -> Result<(), String> {
        let writer = ObjectWriter {
            client: admin.client.clone(),
            dry_run: false,
        };
        let markers = markers(&admin.client).await.map_err(of_user_cluster)?;
        let known = state.known_markers(&self.wanted.cluster.uid);
        let is_ours = |marker: &user_account::TokenMarker| {
            known.contains(&marker.name) || marker.owner_uid.as_deref() == Some(state.uid.as_str())
        };
        let mut rights = state.plan.rights;
        // The rights belong to the whole namespace of the account: another collector must keep its
        // own.
        let is_shared = !markers.iter().all(is_ours);
        if is_shared {
            rights = rights.with(live_rights(&writer).await.map_err(of_user_cluster)?);
        }
        write_objects(&writer, rights).await.map_err(of_user_cluster)?;
        if !self.needs_token(state, has_moved).await? {
            return self.store(state, admin, None).await;
        }
        // Tokens that an interrupted attempt has left are revoked as well.
        let ours = markers.iter().filter(|marker| is_ours(marker));
        let previous: Vec<String> = ours.map(|marker| marker.name.clone()).collect();
        let owner = TokenOwner {
            user_cluster: &self.wanted.name,
            uid: Some(&state.uid),
            made_by: "virtfleet-collector",
        };
        let issued = now();
        let new = user_account::request(&admin.client, &admin.server, &owner, TOKEN_VALIDITY).await;
        let new = new.map_err(of_user_cluster)?;
        let stored = match validity(issued, new.expires.as_second()) {
            Ok(validity) => self.store(state, admin, Some((&new, validity, &previous))).await,
            Err(why) => Err(why),
        };
        if stored.is_err() {
            revoke(&admin.client, &new.marker).await.ok();
        } else {
            tracing::info!(
                user_cluster = self.wanted.name,
                expires = %new.expires,
                "the collector's account in the user cluster has a new token"
            );
        }
        stored
    }

    async fn needs_token(&self, state: &JobState, has_moved: bool) -> Result<bool, String> {
        if has_moved || state.step == AccountStep::Renew {
            return Ok(true);
        }
        let known = state.secret.as_ref().and_then(KnownSecret::kubeconfig);
        match (state.step, known) {
            (AccountStep::Verify, Some(known)) => match self.tenants.connect(known).await {
                Ok(client) => Ok(!is_accepted(&client).await),
                Err(_) => Ok(true),
            },
            _ => Ok(false),
        }
    }

    /// Revokes old tokens.
    async fn revoke(&self, state: &JobState, admin: &AdminSide) -> Result<(), String> {
        for marker in state.secret.iter().flat_map(KnownSecret::old_markers) {
            revoke(&admin.client, &marker).await.map_err(of_user_cluster)?;
        }
        let stored = AccountSecret {
            admin_version: &admin.version,
            objects: &state.plan.objects,
            to_revoke: &[],
            new: None,
        };
        self.put(state, &stored).await?;
        tracing::info!(
            user_cluster = self.wanted.name,
            "old tokens of the collector's account in the user cluster are revoked"
        );
        Ok(())
    }

    /// Stores what was written, with a new token and the Secrets of older ones if there is one.
    async fn store(
        &self,
        state: &JobState,
        admin: &AdminSide,
        new: Option<(&Credential, KnownCredential, &[String])>,
    ) -> Result<(), String> {
        let old = state.secret.iter().flat_map(KnownSecret::old_markers);
        let old: Vec<String> = old.collect();
        let stored = AccountSecret {
            admin_version: &admin.version,
            objects: &state.plan.objects,
            to_revoke: new.map_or(&old, |(_, _, previous)| previous),
            new: new.map(|(new, validity, _)| (new, validity)),
        };
        self.put(state, &stored).await
    }

    async fn put(&self, state: &JobState, stored: &AccountSecret<'_>) -> Result<(), String> {
        let secret = wanted::account_secret(&self.source, &self.wanted, &state.uid, stored);
        let written = self.infra.put_secret(&secret, state.secret.as_ref()).await;
        written.map_err(|error| match error {
            InfraError::NotLeader => "another process leads".to_owned(),
            InfraError::Request(why) => why,
        })
    }
}

impl JobState {
    /// The Secrets of the user cluster to which known tokens are bound.
    fn known_markers(&self, uid: &str) -> Vec<String> {
        let secret = self.secret.as_ref();
        let ours = secret.filter(|secret| secret.account(uid).is_some());
        ours.map(KnownSecret::markers).unwrap_or_default()
    }
}

/// Writes the objects of the account in the user cluster, and deletes those that it does not need.
async fn write_objects(writer: &ObjectWriter, rights: ClusterRights) -> Result<(), ObjectError> {
    let has_policies = admission_policies(&writer.client).await?;
    for object in user_cluster_objects(rights, has_policies) {
        writer.put(&object).await?;
    }
    for object in unneeded_objects(rights) {
        writer.delete(&object).await?;
    }
    Ok(())
}

fn of_user_cluster(error: ObjectError) -> String {
    error.of_user_cluster()
}

/// The present time in seconds since 1970.
fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// The server that a kubeconfig of an admin names.
fn server_of(bytes: &[u8]) -> Result<UserServer, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    // The parser's message may quote the text, which has the credentials.
    let parsed = Kubeconfig::from_yaml(text).map_err(|_| "it is not a valid kubeconfig".to_owned())?;
    let context = parsed.current_context.as_deref();
    let context = context.ok_or("it has no current-context")?;
    let facts = KubeconfigFacts::of(&parsed, Some(context))?;
    match facts.authority {
        Authority::Data(authority) => Ok(UserServer {
            url: facts.server,
            authority,
        }),
        Authority::File(_) | Authority::None => {
            Err("it has no certificate-authority-data, and the collector verifies API servers".to_owned())
        }
    }
}

/// The time of a token that was requested at `issued` and ends at `expires`. The user cluster's API
/// server says when it ends; the collector renews it in time even if that is wrong.
fn validity(issued: i64, expires: i64) -> Result<KnownCredential, String> {
    let requested = i64::try_from(TOKEN_VALIDITY.as_secs()).unwrap_or(i64::MAX);
    let expires = expires.min(issued.saturating_add(requested));
    let seconds = expires.saturating_sub(issued);
    if seconds < MIN_TOKEN_SECONDS {
        return Err(format!(
            "the user cluster's API server issues tokens for {} seconds only; at least {MIN_TOKEN_SECONDS} are needed",
            seconds.max(0)
        ));
    }
    Ok(KnownCredential { issued, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_not_believed_beyond_what_was_requested() {
        let days = 30 * 86_400;
        for (expires, expected) in [
            (1000 + 3600, Some(1000 + 3600)),
            (1000 + days, Some(1000 + days)),
            (i64::MAX, Some(1000 + days)),
            (1000 + 599, None),
            (0, None),
            (i64::MIN, None),
        ] {
            let found = validity(1000, expires);
            assert_eq!(
                found.as_ref().ok().map(|found| found.expires),
                expected,
                "{found:?}"
            );
        }
    }

    #[test]
    fn an_admins_kubeconfig_needs_one_server_with_an_authority() {
        let text = |cluster: &str| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {{token: hunter2}}}}]\n"
            )
        };
        let good = text("{server: 'https://a:1', certificate-authority-data: YWJj}");
        let server = server_of(good.as_bytes()).unwrap();
        assert_eq!(
            (server.url.as_str(), server.authority.as_str()),
            ("https://a:1", "abc")
        );
        for bad in [
            text("{server: 'https://a:1'}"),
            text("{server: 'https://a:1', certificate-authority: /ca}"),
            good.replace("current-context: c\n", ""),
            good.replace("current-context: c\n", "current-context: d\n"),
            "{ token: hunter2".to_owned(),
        ] {
            let error = server_of(bad.as_bytes()).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
