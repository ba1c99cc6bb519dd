//! One cycle of one source: list, plan, write.

use std::{collections::BTreeMap, sync::Arc};

use virtfleet_collector_core::cluster_source::{
    AccountStep, CredentialStep, ExistingCluster, NamePattern, SourceCluster, SourcePlan, SourceRules,
    WantedCluster, credential_step, plan,
};

use super::{
    accounts::{AccountJob, AccountPlan, Accounts, is_replaceable, step},
    infra::{InfraError, KnownSecret, SourceInfra},
    platform::{Kubeconfig, PlatformClient},
    report::{ReadyReason, SourceReport},
    wanted,
};
use crate::{
    objects::{ClusterSource, LabelPropagation, SourceCredentials, UserCluster},
    tenants::Tenants,
};

/// Annotation of a ClusterSource that allows any number of removals at once.
const ALLOW_REMOVAL: &str = "virtfleet.io/allow-removal";

/// One cycle of one source.
pub(super) struct SourceCycle {
    pub(super) infra: Arc<SourceInfra>,
    pub(super) tenants: Arc<Tenants>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) source: Arc<ClusterSource>,
}

/// Why a cycle ended early.
type Ended = (ReadyReason, String);

impl SourceCycle {
    pub(super) async fn run(&self) -> SourceReport {
        match self.try_run().await {
            Ok(report) => report,
            Err((reason, why)) => SourceReport::failed(&self.source, reason, why),
        }
    }

    async fn try_run(&self) -> Result<SourceReport, Ended> {
        let rules = self.rules()?;
        if self.source.spec.suspend {
            let why = "spec.suspend is set: nothing is made, changed or removed".to_owned();
            self.accounts.set_due(&rules.name, BTreeMap::new());
            return Err((ReadyReason::Suspended, why));
        }
        let platform = self.platform().await?;
        let (found, unreadable) = platform
            .list()
            .await
            .map_err(|why| (ReadyReason::Unreachable, why))?;
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
        let has_accounts = self.source.spec.credentials == SourceCredentials::Account;
        let policies = if has_accounts {
            let policies = self.infra.policies().await;
            policies.map_err(|why| (ReadyReason::InfraFailed, why))?
        } else {
            Vec::new()
        };
        let mut due = BTreeMap::new();
        for one in &planned.keep {
            let live = by_name.get(one.name.as_str()).copied();
            let kept = if has_accounts {
                let known = secrets.get(&wanted::secret_name(&one.name));
                let job = self.keep_account(&platform, one, live, known, &policies).await;
                job.map(|job| due.extend(job.map(|job| (one.name.clone(), job))))
            } else {
                self.keep(&platform, one, live, &secrets).await
            };
            if let Err((reason, why)) = kept {
                report.add_failure(reason, format!("{}: {why}", one.name));
            }
            // Another process leads: it continues.
            if reason_is_lost(&report) {
                break;
            }
        }
        report.managed = planned.keep.len();
        self.accounts.set_due(&rules.name, due);
        for one in &planned.keep {
            if let Some(why) = self.accounts.error(&rules.name, &one.name) {
                let known = secrets.get(&wanted::secret_name(&one.name));
                let known = known.and_then(|known| known.account(&one.cluster.uid));
                report.add_account_failure(one, &why, known.map(|known| known.validity));
            }
        }
        self.remove(&platform, &planned, &by_name, &secrets, &mut report)
            .await;
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

    /// Makes or changes one UserCluster and its Secret.
    async fn keep(
        &self,
        platform: &PlatformClient<'_>,
        one: &WantedCluster,
        live: Option<&UserCluster>,
        secrets: &BTreeMap<String, KnownSecret>,
    ) -> Result<(), (ReadyReason, String)> {
        let object = wanted::user_cluster(&self.source, one);
        let written = self.infra.put_user_cluster(&object, live).await;
        let uid = written.map_err(|error| infra_failed(&error))?;
        let name = wanted::secret_name(&one.name);
        let known = secrets.get(&name);
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
        let secret = wanted::secret(&self.source, one, &uid, &new);
        let written = self.infra.put_secret(&secret, known).await;
        written.map_err(|error| infra_failed(&error))
    }

    /// Makes or changes one UserCluster. Returns what is due for the account in it. Sends no
    /// request to the user cluster.
    async fn keep_account(
        &self,
        platform: &PlatformClient<'_>,
        one: &WantedCluster,
        live: Option<&UserCluster>,
        known: Option<&KnownSecret>,
        policies: &[LabelPropagation],
    ) -> Result<Option<AccountJob>, (ReadyReason, String)> {
        let object = wanted::user_cluster(&self.source, one);
        let written = self.infra.put_user_cluster(&object, live).await;
        written.map_err(|error| infra_failed(&error))?;
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
            step(live, known, uid, &AccountPlan::of(live, policies), &version, now)
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
    ) -> Result<Option<Kubeconfig>, (ReadyReason, String)> {
        let read = platform.copy(cluster).await;
        read.map_err(|why| (ReadyReason::CredentialsFailed, why))
    }

    /// Removes UserClusters whose clusters are gone: the source confirms it for each.
    async fn remove(
        &self,
        platform: &PlatformClient<'_>,
        planned: &SourcePlan,
        live: &BTreeMap<&str, &UserCluster>,
        secrets: &BTreeMap<String, KnownSecret>,
        report: &mut SourceReport,
    ) {
        for name in &planned.remove {
            let Some(cluster) = live.get(name.as_str()) else {
                continue;
            };
            match platform.exists(&wanted::existing(cluster).source_key).await {
                Ok(false) => {}
                // The list was outdated.
                Ok(true) => continue,
                Err(why) => {
                    report.add_failure(ReadyReason::Unreachable, format!("{name}: {why}"));
                    continue;
                }
            }
            let removed = self
                .infra
                .remove(cluster, secrets.get(&wanted::secret_name(name)))
                .await;
            match removed {
                Ok(()) => tracing::info!(
                    source = report.name,
                    user_cluster = name,
                    "the UserCluster is removed: its cluster does not exist any more"
                ),
                Err(error) => {
                    let (reason, why) = infra_failed(&error);
                    report.add_failure(reason, format!("{name}: {why}"));
                }
            }
        }
    }
}

fn infra_failed(error: &InfraError) -> (ReadyReason, String) {
    match error {
        InfraError::NotLeader => (ReadyReason::LeadershipLost, "another process leads".to_owned()),
        InfraError::Request(why) => (ReadyReason::InfraFailed, why.clone()),
    }
}

fn reason_is_lost(report: &SourceReport) -> bool {
    report.reason == ReadyReason::LeadershipLost
}
