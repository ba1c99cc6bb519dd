//! Starts all tasks that talk to agents: pulls, the proxy for their pages, enrolment.

use std::sync::Arc;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::ids::VmKey;

use crate::{
    ca::{self, CaService, LoadedCa},
    config::CollectorConfig,
    credentials,
    enrolment::{Enroller, EnrolmentAdmin, EnrolmentContext, RunningEnrolment},
    fleet::Fleet,
    leader::WriteAccess,
    scrape::{self, PageProxy, ProxyLimits, ProxyMetrics, PullLimits, PullMetrics, Puller, ScrapeSettings},
};

/// Queued batches of changed VMs for the scraper.
const MAX_QUEUED_BATCHES: usize = 64;
/// A pull is slow if it takes more than the timeout divided by this.
const SLOW_DIVISOR: u32 = 4;

/// How agents are pulled, before anything runs.
pub(crate) struct AgentClients {
    /// None: agents are not pulled.
    tls: Option<Arc<ClientTls>>,
    pulls: PullMetrics,
    pages: ProxyMetrics,
}

/// What the tasks need of the rest of the collector.
pub(crate) struct AgentContext<'a> {
    pub(crate) config: &'a CollectorConfig,
    pub(crate) fleet: &'a Arc<Fleet>,
    /// None without enrolment.
    pub(crate) ca: Option<LoadedCa>,
    /// The infra cluster, with `inventory.cluster`.
    pub(crate) infra: Option<Client>,
    pub(crate) write_access: WriteAccess,
}

/// The running tasks, as the API uses them.
pub(crate) struct AgentTasks {
    /// None if agents are not pulled.
    pub(crate) pages: Option<Arc<PageProxy>>,
    /// None without enrolment.
    pub(crate) ca: Option<CaService>,
    /// None without enrolment.
    pub(crate) enrolment: Option<Arc<EnrolmentAdmin>>,
    /// Takes the VMs whose state or address may have changed; none if agents are not pulled.
    pub(crate) changes: Option<mpsc::Sender<Vec<VmKey>>>,
}

impl AgentClients {
    /// Reads the certificates, and registers all metrics.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub(crate) fn new(config: &CollectorConfig, registry: &mut Registry) -> anyhow::Result<Self> {
        let from_files = credentials::agents(&config.scrape.tls)?;
        // With enrolment, the certificate in memory follows.
        let tls = from_files.or_else(|| config.enrolment.is_some().then(ClientTls::in_memory));
        Ok(Self {
            tls: tls.map(Arc::new),
            pulls: PullMetrics::register(registry),
            pages: ProxyMetrics::register(registry),
        })
    }

    /// Starts all tasks in `parts`, until `stop`.
    ///
    /// # Errors
    /// The collector's own certificate cannot be issued.
    pub(crate) fn start(
        self,
        context: AgentContext<'_>,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<AgentTasks> {
        let none = AgentTasks {
            pages: None,
            ca: None,
            enrolment: None,
            changes: None,
        };
        let (config, fleet) = (context.config, Arc::clone(context.fleet));
        let (Some(tls), Some(trust_domain)) = (self.tls.clone(), config.trust_domain()) else {
            return Ok(none);
        };
        let mut puller = Puller::new(Arc::clone(&tls), trust_domain, pull_limits(config));
        let (ca, enrolment) = issue(context, tls, registry, parts, stop)?;
        let (to_scraper, changes) = mpsc::channel(MAX_QUEUED_BATCHES);
        let (mut enroller, mut admin) = (None, None);
        if let Some(running) = enrolment {
            puller = puller.with_policy(running.guard);
            let running = running.enroller;
            admin = Some(Arc::new(EnrolmentAdmin::new(
                Arc::clone(&running),
                to_scraper.clone(),
            )));
            enroller = Some(running);
        }
        let pages = PageProxy::new(
            Arc::clone(&fleet),
            puller.clone(),
            proxy_limits(config),
            self.pages,
        );
        let settings = scrape_settings(config);
        parts.spawn(scraper(
            fleet,
            puller,
            enroller,
            settings,
            self.pulls,
            changes,
            stop.clone(),
        ));
        Ok(AgentTasks {
            pages: Some(Arc::new(pages)),
            ca,
            enrolment: admin,
            changes: Some(to_scraper),
        })
    }
}

/// Starts the authority and enrolment, if the settings ask for them.
fn issue(
    context: AgentContext<'_>,
    tls: Arc<ClientTls>,
    registry: &mut Registry,
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<(Option<CaService>, Option<RunningEnrolment>)> {
    let (Some(ca), Some(settings)) = (context.ca, &context.config.enrolment) else {
        return Ok((None, None));
    };
    let ca = ca.start(
        Arc::clone(&tls),
        context.write_access.clone(),
        registry,
        parts,
        stop,
    )?;
    let report = ca
        .clone()
        .report(Arc::clone(context.fleet), ca::unix_seconds, stop.clone());
    parts.spawn(report);
    let context = EnrolmentContext {
        config: context.config,
        settings,
        fleet: context.fleet,
        tls,
        ca: ca.clone(),
        infra: context.infra,
        write_access: context.write_access,
    };
    let running = RunningEnrolment::start(context, registry, parts, stop);
    Ok((Some(ca), Some(running)))
}

async fn scraper(
    fleet: Arc<Fleet>,
    puller: Puller,
    enroller: Option<Arc<Enroller>>,
    settings: ScrapeSettings,
    metrics: PullMetrics,
    changes: mpsc::Receiver<Vec<VmKey>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    scrape::run(fleet, puller, enroller, settings, metrics, changes, stop).await;
    Ok(())
}

fn scrape_settings(config: &CollectorConfig) -> ScrapeSettings {
    ScrapeSettings {
        interval: config.scrape.interval.0,
        concurrency: config.scrape.concurrency as usize,
        slow: config.scrape.timeout.0 / SLOW_DIVISOR,
    }
}

fn pull_limits(config: &CollectorConfig) -> PullLimits {
    let scrape = &config.scrape;
    let bytes = |setting: u64| usize::try_from(setting).unwrap_or(usize::MAX);
    PullLimits {
        timeout: scrape.timeout.0,
        report_bytes: bytes(scrape.max_report_bytes),
        metrics_bytes: bytes(scrape.max_metrics_bytes),
    }
}

fn proxy_limits(config: &CollectorConfig) -> ProxyLimits {
    let scrape = &config.scrape;
    ProxyLimits {
        timeout: scrape.timeout.0,
        bytes: usize::try_from(scrape.max_metrics_bytes).unwrap_or(usize::MAX),
        samples: scrape.max_samples,
        concurrency: scrape.concurrency as usize,
    }
}
