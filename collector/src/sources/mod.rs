//! Makes, keeps and removes UserClusters from `ClusterSource`s, while this process leads.
//!
//! ```text
//! ClusterSource ─▶ platform (list, kubeconfigs) ─▶ core plan ─▶ infra (UserClusters, Secrets)
//!                                                      ├▶ accounts, which work beside the cycle
//!                                                      └▶ report ─▶ status, findings, metrics
//! ```
//! Each cycle lists everything again. A list is used completely or not at all, so a source that
//! does not answer removes nothing. `docs/decisions/0048-cluster-sources.md` has the reasons.

mod accounts;
mod cycle;
mod hibernation;
mod infra;
mod metrics;
mod platform;
mod report;
mod wanted;

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::metrics::SourceMetrics;
use self::{accounts::Accounts, cycle::SourceCycle, infra::SourceInfra, report::SourceReport};
use crate::{fleet::Fleet, leader::WriteAccess, tenants::Tenants};

/// Default time between the end of a cycle and the start of the next one.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum time for one source in a cycle.
const SOURCE_TIMEOUT: Duration = Duration::from_mins(2);
/// Sources that are read at the same time.
const PARALLEL_SOURCES: usize = 4;

pub struct SourceTask {
    /// The client of the infra cluster.
    pub client: Client,
    /// Makes clients for sources.
    pub tenants: Arc<Tenants>,
    /// Gets the findings.
    pub fleet: Arc<Fleet>,
    pub metrics: SourceMetrics,
    /// Whether this process may write.
    pub write_access: WriteAccess,
    /// Time between the end of a cycle and the start of the next one.
    pub interval: Duration,
}

impl std::fmt::Debug for SourceTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceTask").finish_non_exhaustive()
    }
}

/// Follows all ClusterSources until `stop`.
pub async fn run(task: SourceTask, stop: CancellationToken) {
    let accounts = Arc::new(Accounts::new());
    let both = async { tokio::join!(task.follow(&accounts), accounts.work()) };
    stop.run_until_cancelled(both).await;
}

impl SourceTask {
    async fn follow(&self, accounts: &Arc<Accounts>) {
        while self.write_access.until_leads().await {
            while self.write_access.leads() {
                self.cycle(accounts).await;
                sleep(self.interval).await;
            }
            self.fleet
                .change(|index| index.set_cluster_source_findings(Vec::new()));
            self.metrics.clear();
            accounts.retain_sources(&[]);
        }
    }

    /// One cycle over all sources.
    async fn cycle(&self, accounts: &Arc<Accounts>) {
        let infra = Arc::new(SourceInfra::new(self.client.clone(), self.write_access.clone()));
        let sources = match infra.sources().await {
            Ok(sources) => sources,
            Err(why) => {
                tracing::debug!(why, "ClusterSources cannot be listed");
                return;
            }
        };
        let names: Vec<String> = sources
            .iter()
            .filter_map(|source| source.metadata.name.clone())
            .collect();
        accounts.retain_sources(&names);
        hibernation::wake_orphans(&infra, &names).await;
        let (mut waiting, mut running, mut reports) = (sources.into_iter(), JoinSet::new(), Vec::new());
        loop {
            while running.len() < PARALLEL_SOURCES
                && let Some(source) = waiting.next()
            {
                let cycle = SourceCycle {
                    infra: Arc::clone(&infra),
                    tenants: Arc::clone(&self.tenants),
                    accounts: Arc::clone(accounts),
                    source: Arc::new(source),
                };
                running.spawn(one(cycle));
            }
            match running.join_next().await {
                Some(Ok(report)) => reports.push(report),
                Some(Err(error)) => tracing::error!(%error, "the cycle of a ClusterSource panicked"),
                None => break,
            }
        }
        self.metrics.set(&reports);
        let mut findings: Vec<_> = reports.iter().flat_map(SourceReport::findings).collect();
        findings.sort_by(|a, b| (&a.id, &a.subject.name).cmp(&(&b.id, &b.subject.name)));
        self.fleet
            .change(|index| index.set_cluster_source_findings(findings));
    }
}

/// One cycle of one source, with its status written.
async fn one(cycle: SourceCycle) -> SourceReport {
    let report = timeout(SOURCE_TIMEOUT, cycle.run()).await;
    let report = report.unwrap_or_else(|_| {
        let why = format!("it took more than {} seconds", SOURCE_TIMEOUT.as_secs());
        SourceReport::failed(&cycle.source, report::ReadyReason::Unreachable, why)
    });
    if let Some(status) = report.status(cycle.source.status.as_ref(), &infra::now())
        && let Err(why) = cycle.infra.write_status(&cycle.source, &status).await
    {
        tracing::warn!(
            source = report.name,
            why,
            "the status of a ClusterSource cannot be written"
        );
    }
    report
}
