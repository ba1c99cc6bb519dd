//! Ties the collector together: builds every part, runs until told to stop, drains.
//!
//! ```text
//! inventory ─ events ─▶ apply ─ changed VMs ─▶ scrape ─ heard ─┐
//!     │                      │       └───────▶ writers ─▶ API servers
//!     └ findings ─────────▶ fleet ◀──────────────────────────────┘
//!                            └─▶ api (snapshots) ─▶ HTTP
//! ```

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use hyper_util::service::TowerToHyperService;
use prometheus_client::{metrics::info::Info, registry::Registry};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::facts::InventoryEvent;
use virtfleet_runtime::{
    exit::Code,
    http::{Limits, Server, ServerMetrics, Transport},
    shutdown::{self, Shutdown},
    telemetry,
};
use virtfleet_wire::{finding::Finding, ids::VmKey};

use crate::{
    api::{self, ApiState},
    cli,
    config::CollectorConfig,
    credentials,
    doctor::CheckStatus,
    fleet::Fleet,
    inventory::{
        cluster::{Inventory, WatchMetrics},
        folder,
    },
    scrape::{self, PageProxy, ProxyLimits, ProxyMetrics, PullLimits, PullMetrics, Puller, ScrapeSettings},
    tenants::Tenants,
    writers::Writers,
};

/// Inventory events that may wait: a folder's first pass comes in one burst, and a full queue only slows the reader.
const EVENTS: usize = 1024;
/// Batches of changed VMs that may wait for the scraper.
const CHANGES: usize = 64;

/// A pull that took more than this part of its time-out was slow.
const SLOW_PART: u32 = 4;

/// How long a look at the folder that is under way may hold up the end.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Requests that may be answered at once; half of them may wait for a change.
const REQUESTS: usize = 256;

/// Serves until SIGTERM or SIGINT.
pub fn serve(config: &CollectorConfig) -> Code {
    if let Err(error) = telemetry::init(&config.log) {
        cli::complain(&error.to_string());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::complain(&format!("cannot start: {error}"));
            return Code::Failure;
        }
    };
    let ended = runtime.block_on(run(config));
    // Dropped, the runtime would wait for a look at the folder, which on a dead network filesystem never ends.
    runtime.shutdown_timeout(LAST_LOOK);
    match ended {
        Ok(()) => Code::Ok,
        Err(error) => {
            cli::complain(&format!("{error:#}"));
            Code::Failure
        }
    }
}

fn own_registry() -> Registry {
    let mut registry = Registry::with_prefix("virtfleet_collector");
    registry.register(
        "build",
        "The collector's build",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    registry
}

async fn run(config: &CollectorConfig) -> anyhow::Result<()> {
    let shutdown = shutdown::signals().context("cannot listen to signals")?;
    let mut registry = own_registry();
    let pull_metrics = PullMetrics::register(&mut registry);
    let proxy_metrics = ProxyMetrics::register(&mut registry);
    let server_metrics = ServerMetrics::register(&mut registry);

    let puller = puller(config)?;
    warn_of_files(config);
    let tenants = Arc::new(Tenants::default());
    let cluster = if let Some(settings) = &config.inventory.cluster {
        let metrics = WatchMetrics::register(&mut registry);
        Some((
            Inventory::new(settings, config.scrape.service_cidrs.as_deref(), &tenants).await?,
            metrics,
        ))
    } else {
        look_at_folder(config, &shutdown).await?;
        None
    };
    let fleet = Arc::new(Fleet::new(config.dial_rules(), jiff::Timestamp::now));
    let (listener, transport) = listen(config).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let probes = bind_probes(config).await?;

    let mut parts = JoinSet::new();
    let stop = CancellationToken::new();
    let (events, incoming) = mpsc::channel(EVENTS);
    let (problems, findings) = watch::channel(Vec::new());
    let mut listeners = Vec::new();
    let inventory = if let Some((cluster, metrics)) = cluster {
        // Before anybody is told of a cluster: until then the fleet takes the inventory for a folder.
        fleet.set_cluster_statuses(tenants.stands());
        parts.spawn(follow_stands(Arc::clone(&fleet), Arc::clone(&tenants)));
        parts.spawn(cluster.watch(events, problems, Arc::clone(&tenants), metrics, stop.clone()));
        "live clusters"
    } else {
        let folder = PathBuf::from(&config.inventory.folder);
        parts.spawn(watch_folder(folder, events, problems, stop.clone()));
        config.inventory.folder.as_str()
    };
    let (to_labels, label_changes) = mpsc::channel(CHANGES);
    listeners.push(to_labels);
    let writers = Writers::start(
        config,
        &fleet,
        &tenants,
        label_changes,
        &mut registry,
        &mut parts,
        &stop,
    )?;
    parts.spawn(note(Arc::clone(&fleet), findings));
    let pages = puller.map(|puller| {
        let (to_scraper, changes) = mpsc::channel(CHANGES);
        listeners.push(to_scraper);
        let limits = proxy_limits(config);
        let pages = PageProxy::new(Arc::clone(&fleet), puller.clone(), limits, proxy_metrics);
        let (fleet, settings) = (Arc::clone(&fleet), scrape_settings(config));
        parts.spawn(scraper(
            fleet,
            puller,
            settings,
            pull_metrics,
            changes,
            stop.clone(),
        ));
        Arc::new(pages)
    });
    parts.spawn(apply(Arc::clone(&fleet), incoming, listeners));

    let state = ApiState {
        fleet,
        labels: Arc::clone(&writers.book),
        writing: writers.writing.clone(),
        pages,
        registry: Arc::new(registry),
        procfs: Arc::from(Path::new("/proc")),
        instance: jiff::Timestamp::now().as_microsecond().cast_unsigned(),
        waiting: Arc::new(Semaphore::new(REQUESTS / 2)),
        shutdown: shutdown.graceful.clone(),
    };
    if let Some(probes) = probes {
        parts.spawn(serve_probes(state.clone(), probes, shutdown.clone()));
    }
    let service = TowerToHyperService::new(api::router(state));
    let server = Server::new(service, limits(), server_metrics);
    let http = tokio::spawn(server.serve(listener, transport, shutdown.clone()));
    tracing::info!(%address, inventory, "serving");
    notify(&[sd_notify::NotifyState::Ready]);

    let ended = watch_over(&mut parts, &shutdown).await;
    notify(&[sd_notify::NotifyState::Stopping]);
    shutdown.graceful.cancel();
    let cut = http.await.context("the server has panicked")?;
    stop.cancel();
    writers.end().await;
    parts.shutdown().await;
    if cut > 0 {
        tracing::warn!(connections = cut, "cut, because they did not end in time");
    }
    tracing::info!("stopped");
    ended
}

/// Looked at before anybody is told that we serve; the watch looks again, and names what is wrong inside. On a thread of its
/// own: on a dead network filesystem this hangs, and a signal must still be heard.
async fn look_at_folder(config: &CollectorConfig, shutdown: &Shutdown) -> anyhow::Result<()> {
    let folder = config.inventory.folder.clone();
    let look = tokio::task::spawn_blocking(move || {
        std::fs::read_dir(&folder)
            .map(drop)
            .with_context(|| format!("inventory.folder: cannot read {folder}"))
    });
    tokio::select! {
        () = shutdown.graceful.cancelled() => anyhow::bail!("told to stop before the inventory's folder answered"),
        looked = look => looked.context("the look at the folder has panicked")?,
    }
}

/// Returns when it is time to stop: on a signal, or because a part that should run for ever has ended.
async fn watch_over(parts: &mut JoinSet<anyhow::Result<()>>, shutdown: &Shutdown) -> anyhow::Result<()> {
    tokio::select! {
        () = shutdown.graceful.cancelled() => Ok(()),
        Some(ended) = parts.join_next() => {
            ended.context("a part of the collector has panicked")??;
            anyhow::bail!("a part of the collector that should run for ever has ended")
        }
    }
}

async fn watch_folder(
    folder: PathBuf,
    events: mpsc::Sender<InventoryEvent>,
    problems: watch::Sender<Vec<Finding>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    folder::watch(folder, events, problems, stop)
        .await
        .context("the inventory cannot be read")
}

/// Applies what the inventory says, in batches, and tells the scraper and the label sender which VMs to look at.
async fn apply(
    fleet: Arc<Fleet>,
    mut events: mpsc::Receiver<InventoryEvent>,
    changed: Vec<mpsc::Sender<Vec<VmKey>>>,
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, EVENTS).await > 0 {
        let keys: BTreeSet<_> = batch.drain(..).flat_map(|event| fleet.apply(event)).collect();
        if keys.is_empty() {
            continue;
        }
        let keys: Vec<_> = keys.into_iter().collect();
        for listener in &changed {
            if listener.send(keys.clone()).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn note(fleet: Arc<Fleet>, mut findings: watch::Receiver<Vec<Finding>>) -> anyhow::Result<()> {
    while findings.changed().await.is_ok() {
        let now = findings.borrow_and_update().clone();
        fleet.set_inventory_findings(now);
    }
    Ok(())
}

/// Tells the fleet how each user cluster stands, with every change.
async fn follow_stands(fleet: Arc<Fleet>, tenants: Arc<Tenants>) -> anyhow::Result<()> {
    let mut changes = tenants.changes();
    loop {
        changes.mark_unchanged();
        fleet.set_cluster_statuses(tenants.stands());
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

async fn scraper(
    fleet: Arc<Fleet>,
    puller: Puller,
    settings: ScrapeSettings,
    metrics: PullMetrics,
    changes: mpsc::Receiver<Vec<VmKey>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    scrape::run(fleet, puller, settings, metrics, changes, stop).await;
    Ok(())
}

fn scrape_settings(config: &CollectorConfig) -> ScrapeSettings {
    ScrapeSettings {
        interval: config.scrape.interval.0,
        concurrency: config.scrape.concurrency as usize,
        slow: config.scrape.timeout.0 / SLOW_PART,
    }
}

/// Logs what `check-config` would say. Files that cannot be used end the start; a certificate that has expired may be replaced
/// while this runs.
fn warn_of_files(config: &CollectorConfig) {
    if !config.scrape.tls.is_set() {
        tracing::info!("scrape.tls is not set: agents are not pulled");
    }
    for line in credentials::check(config, now()) {
        if line.status != CheckStatus::Ok {
            tracing::warn!(key = line.what, next = line.next, "{}", line.detail);
        }
    }
}

/// None when `scrape.tls` is not set.
fn puller(config: &CollectorConfig) -> anyhow::Result<Option<Puller>> {
    let scrape = &config.scrape;
    let Some(client) = credentials::agents(&scrape.tls)? else {
        return Ok(None);
    };
    let trust_domain = scrape
        .tls
        .trust_domain
        .as_deref()
        .context("scrape.tls.trustDomain is not set")?;
    let bytes = |setting: u64| usize::try_from(setting).unwrap_or(usize::MAX);
    let limits = PullLimits {
        timeout: scrape.timeout.0,
        report_bytes: bytes(scrape.max_report_bytes),
        metrics_bytes: bytes(scrape.max_metrics_bytes),
    };
    Ok(Some(Puller::new(Arc::new(client), trust_domain, limits)))
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

async fn listen(config: &CollectorConfig) -> anyhow::Result<(TcpListener, Transport)> {
    let server = &config.server;
    let transport = match credentials::server(server)? {
        Some(tls) => Transport::Tls(Arc::new(tls)),
        None if server.is_plain() => Transport::Plain,
        None => anyhow::bail!("server.tls.certificate and server.tls.key are not both set"),
    };
    let listener = bind("server.address", &server.address).await?;
    Ok((listener, transport))
}

async fn bind_probes(config: &CollectorConfig) -> anyhow::Result<Option<TcpListener>> {
    match &config.server.probe_address {
        Some(address) => bind("server.probeAddress", address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(setting: &str, text: &str) -> anyhow::Result<TcpListener> {
    let address: SocketAddr = text.parse().with_context(|| format!("{setting}: {text:?}"))?;
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{setting}: cannot listen on {address}"))
}

/// Never returns: once the server has stopped, so does everything else.
async fn serve_probes(state: ApiState, listener: TcpListener, shutdown: Shutdown) -> anyhow::Result<()> {
    let service = TowerToHyperService::new(api::probes(state));
    let server = Server::new(service, Limits::default(), ServerMetrics::default());
    server.serve(listener, Transport::Plain, shutdown).await;
    std::future::pending().await
}

/// A long poll may wait, so requests may take longer here than at an agent.
fn limits() -> Limits {
    let others = Limits::default();
    Limits {
        connections: 512,
        new_connections: 128,
        connections_per_peer: 256,
        requests: REQUESTS,
        request_timeout: api::LONGEST_WAIT + others.request_timeout,
        ..others
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

/// Tells systemd, when it is there.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_poll_is_answered_before_the_request_is_cut() {
        assert!(limits().request_timeout > api::LONGEST_WAIT);
    }
}
