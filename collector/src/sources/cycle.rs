//! One cycle of one source: list, plan, write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;
use virtfleet_collector_core::cluster_source::{
    AccountStep, CredentialStep, ExistingCluster, NamePattern, SourceCluster, SourcePlan, SourceRules,
    WantedCluster, credential_step, plan,
};

use super::{
    accounts::{AccountJob, AccountPlan, Accounts, is_replaceable, step},
    infra::{InfraError, KnownSecret, SourceInfra},
    platform::{Kubeconfig, PlatformClient},
    report::{Ended, ReadyReason, SourceReport},
    wanted,
};
use crate::{
    objects::{ClusterSource, LabelPropagation, SourceCredentials, UserCluster},
    tenants::Tenants,
};

/// Annotation of a ClusterSource that allows any number of removals at once.
const ALLOW_REMOVAL: &str = "virtfleet.io/allow-removal";
/// UserClusters that are worked on at the same time.
const PARALLEL_CLUSTERS: usize = 16;
/// Maximum time for the work on one UserCluster in a cycle. With 500, of which every tenth takes
/// longer, a cycle takes less than half a minute.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct SourceCycle {
    pub(super) infra: Arc<SourceInfra>,
    pub(super) tenants: Arc<Tenants>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) source: Arc<ClusterSource>,
}

/// What is due for the account in one user cluster after the work on it.
type ClusterDone = Result<Option<AccountJob>, Ended>;

/// What a cycle has read.
#[derive(Clone, Copy)]
struct CycleState<'a> {
    platform: &'a PlatformClient<'a>,
    /// UserClusters by name.
    live: &'a BTreeMap<&'a str, &'a UserCluster>,
    /// The source's Secrets by name.
    secrets: &'a BTreeMap<String, KnownSecret>,
    /// All LabelPropagations, if the source has accounts.
    policies: &'a [LabelPropagation],
}

/// The work on one UserCluster.
#[derive(Clone, Copy)]
enum ClusterTask<'a> {
    /// It is made or changed, and its kubeconfig or account renewed.
    Keep(&'a WantedCluster),
    /// Only its kubeconfig or account is renewed.
    Renew(&'a WantedCluster),
    /// The label is removed that says that it hibernates.
    Wake(&'a str),
    /// It is removed if the source confirms that its cluster is gone.
    Remove(&'a str),
}

impl<'a> ClusterTask<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Keep(one) | Self::Renew(one) => &one.name,
            Self::Wake(name) | Self::Remove(name) => name,
        }
    }
}

impl SourceCycle {
    pub(super) async fn run(&self) -> SourceReport {
        match self.try_run().await {
            Ok(report) => report,
            Err((reason, why)) => SourceReport::failed(&self.source, reason, why),
        }
    }

    async fn try_run(&self) -> Result<SourceReport, Ended> {
        let rules = self.rules()?;
        let platform = self.platform().await?;
        let (found, unreadable) = platform.list().await?;
        let all = self.infra.user_clusters().await;
        let all = all.map_err(|why| (ReadyReason::InfraFailed, why))?;
        let existing: Vec<ExistingCluster> = all.iter().map(wanted::existing).collect();
        let planned = plan(&rules, &found, &existing);
        let mut report = SourceReport::planned(&self.source, found.len(), &planned, unreadable);
        let secrets = self
            .infra
            .secrets(&self.source.spec.secret_namespace, &rules.name)
            .await;
        let secrets = secrets.map_err(|why| (ReadyReason::InfraFailed, why))?;
        let by_name: BTreeMap<&str, &UserCluster> = all
            .iter()
            .filter_map(|one| Some((one.metadata.name.as_deref()?, one)))
            .collect();
        let policies = if self.source.spec.credentials == SourceCredentials::Account {
            let policies = self.infra.policies().await;
            policies.map_err(|why| (ReadyReason::InfraFailed, why))?
        } else {
            Vec::new()
        };
        let state = CycleState {
            platform: &platform,
            live: &by_name,
            secrets: &secrets,
            policies: &policies,
        };
        let mut due = BTreeMap::new();
        for (name, done) in self.work_on_all(state, &tasks(&planned)).await? {
            match done {
                Ok(job) => due.extend(job.map(|job| (name.to_owned(), job))),
                Err((reason, why)) => report.add_failure(reason, format!("{name}: {why}")),
            }
        }
        self.accounts.set_due(&rules.name, due);
        for one in planned.keep.iter().chain(&planned.renew) {
            if let Some(why) = self.accounts.error(&rules.name, &one.name) {
                let known = secrets.get(&wanted::secret_name(&one.name));
                let known = known.and_then(|known| known.account(&one.cluster.uid));
                report.add_account_failure(one, &why, known.map(|known| known.validity));
            }
        }
        Ok(report)
    }

    fn rules(&self) -> Result<SourceRules, Ended> {
        let spec = &self.source.spec;
        let pattern = spec.name_pattern.as_deref().map(NamePattern::new).transpose();
        let annotations = self.source.metadata.annotations.as_ref();
        Ok(SourceRules {
            name: self.source.metadata.name.clone().unwrap_or_default(),
            selector: spec.selector.as_ref().map(Into::into).unwrap_or_default(),
            pattern: pattern.map_err(|why| (ReadyReason::Invalid, format!("spec.namePattern: {why}")))?,
            max_clusters: spec.max_clusters as usize,
            vm_namespace: spec.vms.as_ref().and_then(|vms| vms.namespace.clone()),
            allow_removal: annotations
                .is_some_and(|all| all.get(ALLOW_REMOVAL).is_some_and(|value| value == "true")),
            is_suspended: spec.suspend,
        })
    }

    async fn platform(&self) -> Result<PlatformClient<'_>, Ended> {
        let failed = |why: String| (ReadyReason::Unreachable, why);
        let (client, is_foreign) = match &self.source.spec.kubeconfig {
            None => (self.infra.client(), false),
            Some(at) => {
                let bytes = self.infra.kubeconfig(&at.secret).await.map_err(failed)?;
                let client = self.tenants.connect(bytes).await;
                let place = format!("Secret {}/{}", at.secret.namespace, at.secret.name);
                (client.map_err(|why| failed(format!("{place}: {why}")))?, true)
            }
        };
        Ok(PlatformClient {
            client,
            is_foreign,
            spec: &self.source.spec,
        })
    }

    /// Does the work on all UserClusters. Returns each one's name with what is due for the account
    /// in it, by name, so that of several failures the same one is shown in each cycle.
    ///
    /// # Errors
    /// Another process leads: it continues.
    async fn work_on_all<'a>(
        &self,
        state: CycleState<'_>,
        tasks: &[ClusterTask<'a>],
    ) -> Result<Vec<(&'a str, ClusterDone)>, Ended> {
        let work = stream::iter(0..tasks.len()).map(|at| self.work_in_time(state, tasks[at]));
        let mut work = work.buffer_unordered(PARALLEL_CLUSTERS);
        let mut all = Vec::with_capacity(tasks.len());
        while let Some((name, done)) = work.next().await {
            match done {
                Err(ended @ (ReadyReason::LeadershipLost, _)) => return Err(ended),
                done => all.push((name, done)),
            }
        }
        all.sort_by_key(|(name, _)| *name);
        Ok(all)
    }

    /// As `work`, for a limited time. Whoever answers late must not delay all others.
    async fn work_in_time<'a>(&self, state: CycleState<'_>, task: ClusterTask<'a>) -> (&'a str, ClusterDone) {
        let done = timeout(CLUSTER_TIMEOUT, self.work(state, task)).await;
        let done = done.unwrap_or_else(|_| {
            let (reason, what) = match task {
                ClusterTask::Keep(_) | ClusterTask::Renew(_) => (
                    ReadyReason::CredentialsFailed,
                    "reading its kubeconfig and writing its objects",
                ),
                ClusterTask::Wake(_) => (ReadyReason::InfraFailed, "changing its label"),
                ClusterTask::Remove(_) => (ReadyReason::Unreachable, "confirming and making its removal"),
            };
            let limit = CLUSTER_TIMEOUT.as_secs();
            Err((reason, format!("{what} took more than {limit} seconds")))
        });
        (task.name(), done)
    }

    /// Does the work on one UserCluster.
    async fn work(&self, state: CycleState<'_>, task: ClusterTask<'_>) -> ClusterDone {
        let (one, may_change) = match task {
            ClusterTask::Keep(one) => (one, true),
            ClusterTask::Renew(one) => (one, false),
            ClusterTask::Wake(name) => return self.wake(state, name).await.map(|()| None),
            ClusterTask::Remove(name) => return self.remove(state, name).await.map(|()| None),
        };
        let live = state.live.get(one.name.as_str()).copied();
        let known = state.secrets.get(&wanted::secret_name(&one.name));
        let credentials = self.source.spec.credentials;
        let uid = if may_change {
            let object = wanted::user_cluster(&self.source, one);
            let written = self.infra.put_user_cluster(&object, live).await;
            written.map_err(|error| infra_failed(&error))?
        } else {
            // Others are made or replaced when the pause is over.
            let present = known.and_then(|known| known.credentials(&one.cluster.uid));
            if present != Some(credentials.as_str()) {
                return Ok(None);
            }
            live.and_then(|live| live.metadata.uid.clone())
                .unwrap_or_default()
        };
        if credentials == SourceCredentials::Account {
            return self.keep_account(state, one, live, known).await;
        }
        self.keep_kubeconfig(state.platform, one, &uid, known).await?;
        Ok(None)
    }

    /// Makes or changes the Secret of one UserCluster, whose UID is `uid`.
    async fn keep_kubeconfig(
        &self,
        platform: &PlatformClient<'_>,
        one: &WantedCluster,
        uid: &str,
        known: Option<&KnownSecret>,
    ) -> Result<(), Ended> {
        let requested = known.and_then(|known| known.requested(&self.source.spec, &one.cluster.uid));
        let step = credential_step(
            self.source.spec.kind,
            requested,
            jiff::Timestamp::now().as_second(),
        );
        // The API server of a cluster that is off or being deleted may not answer any more.
        let step = if one.is_suspended && step == CredentialStep::Request {
            CredentialStep::Keep
        } else {
            step
        };
        let new = match step {
            CredentialStep::Keep => return Ok(()),
            CredentialStep::Copy => self.copied(platform, &one.cluster).await?,
            CredentialStep::Request => Some(
                platform
                    .request(&one.cluster)
                    .await
                    .map_err(|why| (ReadyReason::CredentialsFailed, why))?,
            ),
        };
        let Some(new) = new else { return Ok(()) };
        let secret = wanted::secret(&self.source, one, uid, &new);
        let written = self.infra.put_secret(&secret, known).await;
        written.map_err(|error| infra_failed(&error))
    }

    /// What is due for the account in one user cluster. Sends no request to it.
    async fn keep_account(
        &self,
        state: CycleState<'_>,
        one: &WantedCluster,
        live: Option<&UserCluster>,
        known: Option<&KnownSecret>,
    ) -> Result<Option<AccountJob>, Ended> {
        let platform = state.platform;
        let uid = &one.cluster.uid;
        let known = match known {
            Some(secret) if !is_replaceable(secret, uid) => {
                let removed = self.infra.remove_credentials(secret).await;
                removed.map_err(|error| infra_failed(&error))?;
                None
            }
            known => known,
        };
        // The API server of a cluster that is off or being deleted may not answer any more.
        if one.is_suspended {
            return Ok(None);
        }
        let version = platform.version(&one.cluster).await;
        let version = version.map_err(|why| (ReadyReason::CredentialsFailed, why))?;
        let Some(version) = version else {
            return Ok(None);
        };
        let now = jiff::Timestamp::now().as_second();
        let step = live.map_or(AccountStep::Renew, |live| {
            let plan = AccountPlan::of(live, state.policies);
            step(live, known, uid, &plan, &version, now)
        });
        Ok((step != AccountStep::Keep).then(|| AccountJob {
            infra: Arc::clone(&self.infra),
            tenants: Arc::clone(&self.tenants),
            source: Arc::clone(&self.source),
            platform: platform.client.clone(),
            is_foreign: platform.is_foreign,
            wanted: one.clone(),
            version,
        }))
    }

    /// The kubeconfig in the source; none while the source has none.
    async fn copied(
        &self,
        platform: &PlatformClient<'_>,
        cluster: &SourceCluster,
    ) -> Result<Option<Kubeconfig>, Ended> {
        let read = platform.copy(cluster).await;
        read.map_err(|why| (ReadyReason::CredentialsFailed, why))
    }

    async fn wake(&self, state: CycleState<'_>, name: &str) -> Result<(), Ended> {
        let Some(cluster) = state.live.get(name).copied() else {
            return Ok(());
        };
        let changed = self.infra.wake(cluster).await;
        changed.map_err(|error| infra_failed(&error))
    }

    /// Removes a UserCluster whose cluster is gone, if the source confirms it.
    async fn remove(&self, state: CycleState<'_>, name: &str) -> Result<(), Ended> {
        let Some(cluster) = state.live.get(name).copied() else {
            return Ok(());
        };
        let exists = state.platform.exists(&wanted::existing(cluster).source_key).await;
        if exists.map_err(|why| (ReadyReason::Unreachable, why))? {
            // The list was outdated.
            return Ok(());
        }
        let secret = state.secrets.get(&wanted::secret_name(name));
        let removed = self.infra.remove(cluster, secret).await;
        removed.map_err(|error| infra_failed(&error))?;
        tracing::info!(
            source = self.source.metadata.name.as_deref().unwrap_or_default(),
            user_cluster = name,
            "the UserCluster is removed: its cluster does not exist any more"
        );
        Ok(())
    }
}

/// The work on all UserClusters of a plan.
fn tasks(planned: &SourcePlan) -> Vec<ClusterTask<'_>> {
    let keep = planned.keep.iter().map(ClusterTask::Keep);
    let renew = planned.renew.iter().map(ClusterTask::Renew);
    let wake = planned.awake.iter().map(|name| ClusterTask::Wake(name));
    let remove = planned.remove.iter().map(|name| ClusterTask::Remove(name));
    keep.chain(renew).chain(wake).chain(remove).collect()
}

fn infra_failed(error: &InfraError) -> Ended {
    match error {
        InfraError::NotLeader => (ReadyReason::LeadershipLost, "another process leads".to_owned()),
        InfraError::Request(why) => (ReadyReason::InfraFailed, why.clone()),
    }
}

#[cfg(test)]
#[path = "cycle_tests.rs"]
mod tests;
