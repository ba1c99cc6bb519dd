//! Starts all tasks that talk to agents: pulls, the proxy for their pages, enrolment, the port on
//! which agents connect.

use std::sync::Arc;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::ids::VmKey;

use crate::{
    ca::{self, CaService, LoadedCa},
    config::CollectorConfig,
    credentials,
    enrolment::{EnrolmentAdmin, EnrolmentContext, RunningEnrolment},
    fleet::Fleet,
    ingest::{Ingest, IngestMetrics, IngestParts},
    leader::{self, WriteAccess},
    mla::PageFeed,
    scrape::{
        self, PageProxy, ProxyLimits, ProxyMetrics, PullLimits, PullMetrics, Puller, ScrapeSettings,
        ScraperInputs, ScraperParts, pushed::PushedAgents,
    },
    tokens::{JoinTokenBook, TokenStore, keep_tokens},
};

/// Queued batches of changed VMs for the scraper.
const MAX_QUEUED_BATCHES: usize = 64;
/// Queued events of agents that connect; a full queue only slows their handshakes.
const MAX_QUEUED_PUSHES: usize = 256;
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
    /// Where agents connect, with `ingest`.
    pub(crate) ingest: Option<TcpListener>,
    /// Takes the pages of VMs.
    pub(crate) feed: Option<Arc<PageFeed>>,
}

/// The running tasks, as the API uses them.
pub(crate) struct AgentTasks {
    /// None if agents are not pulled.
    pub(crate) pages: Option<Arc<PageProxy>>,
    /// None without enrolment.
    pub(crate) ca: Option<CaService>,
    /// None without enrolment.
    pub(crate) enrolment: Option<Arc<EnrolmentAdmin>>,
    /// Join tokens; none without enrolment and ingest.
    pub(crate) tokens: Option<Arc<JoinTokenBook>>,
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
        mut context: AgentContext<'_>,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<AgentTasks> {
        let none = AgentTasks {
            pages: None,
            ca: None,
            enrolment: None,
            tokens: None,
            changes: None,
        };
        let (config, fleet) = (context.config, Arc::clone(context.fleet));
        let (Some(tls), Some(trust_domain)) = (self.tls.clone(), config.trust_domain()) else {
            return Ok(none);
        };
        let mut puller = Puller::new(Arc::clone(&tls), trust_domain, pull_limits(config));
        let listener = context.ingest.take();
        let write_access = match &context.infra {
            Some(_) => context.write_access.clone(),
            None => WriteAccess::fixed(true),
        };
        let tokens = listener
            .as_ref()
            .and_then(|_| token_store(&context))
            .map(|store| Arc::new(JoinTokenBook::new(store, write_access.clone())));
        if let Some(tokens) = &tokens {
            parts.spawn(keep(Arc::clone(tokens), Arc::clone(&fleet), stop.clone()));
        }
        let feed = context.feed.take();
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
        let ingest = config.ingest.clone().unwrap_or_default();
        let pushed = Arc::new(PushedAgents::new(ingest.max_age.0));
        let pages = PageProxy::new(
            Arc::clone(&fleet),
            puller.clone(),
            Arc::clone(&pushed),
            proxy_limits(config),
            self.pages,
        );
        let (events, connects) = mpsc::channel(MAX_QUEUED_PUSHES);
        let push_leadership = listener.is_some().then(|| write_access.clone());
        if let Some(listener) = listener {
            let ingest = Ingest::new(IngestParts {
                fleet: Arc::clone(&fleet),
                puller: puller.clone(),
                enroller: enroller.clone(),
                tokens: tokens.clone(),
                agents: Arc::clone(&pushed),
                events,
                settings: ingest,
                write_access,
                metrics: IngestMetrics::register(registry),
            });
            parts.spawn(accept(ingest, listener, stop.clone()));
        }
        let scraper_parts = ScraperParts {
            fleet,
            puller: puller.with_feed(feed),
            enroller,
            settings: scrape_settings(config),
            metrics: self.pulls,
            pushed,
            push_leadership,
        };
        let inputs = ScraperInputs { changes, connects };
        parts.spawn(scraper(scraper_parts, inputs, stop.clone()));
        Ok(AgentTasks {
            pages: Some(Arc::new(pages)),
            ca,
            enrolment: admin,
            tokens,
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

async fn scraper(parts: ScraperParts, inputs: ScraperInputs, stop: CancellationToken) -> anyhow::Result<()> {
    scrape::run(parts, inputs, stop).await;
    Ok(())
}

/// Where join tokens are kept; none without enrolment.
fn token_store(context: &AgentContext<'_>) -> Option<TokenStore> {
    let config = context.config;
    let enrolment = config.enrolment.as_ref()?;
    Some(match &context.infra {
        Some(client) => {
            let namespace = leader::namespace(config.leader_election.namespace.as_deref(), client);
            TokenStore::secret(client.clone(), &namespace)
        }
        None => TokenStore::folder(enrolment.folder.as_ref()),
    })
}

async fn keep(tokens: Arc<JoinTokenBook>, fleet: Arc<Fleet>, stop: CancellationToken) -> anyhow::Result<()> {
    keep_tokens(tokens, fleet, stop).await;
    Ok(())
}

async fn accept(ingest: Ingest, listener: TcpListener, stop: CancellationToken) -> anyhow::Result<()> {
    ingest.run(listener, stop).await;
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
