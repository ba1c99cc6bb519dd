//! Runs the collector: starts all parts, waits for a signal, shuts down.
//!
//! ```text
//! inventory ─ events ─▶ apply ─ changed VMs ─▶ scrape ─ results ┐
//!     │                      │       └───────▶ writers ─▶ API servers
//!     └ findings ─────────▶ fleet ◀──────────────────────────────┘
//!                            └─▶ api (snapshots) ─▶ HTTP
//! ```

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use hyper_util::service::TowerToHyperService;
use prometheus_client::{metrics::info::Info, registry::Registry};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{facts::InventoryEvent, index::FleetIndex};
use virtfleet_runtime::{
    exit::Code,
    http::{Limits, Server, ServerMetrics, Transport},
    shutdown::{self, Shutdown},
    telemetry,
};
use virtfleet_wire::{finding::Finding, ids::VmKey};

use crate::{
    access::{self, AccessMetrics},
    agent_tasks::{AgentClients, AgentContext},
    api::{self, ApiState, WatchLimits, WatchSlots},
    ca::{LoadedCa, SecretClients},
    cli,
    config::CollectorConfig,
    credentials,
    doctor::CheckStatus,
    drain::DrainReader,
    fleet::Fleet,
    history::HistoryReader,
    inventory::{
        cluster::{Inventory, WatchMetrics},
        folder,
    },
    leader::WriteAccess,
    listeners::{bind_ingest, bind_probes, listen},
    mla::{self, RunningStreams, settings::StreamRegistry, status::MlaStatus},
    open_files, panics,
    tenants::Tenants,
    volumes,
    writers::Writers,
};

/// Queued inventory events: the first read of a folder is one burst; a full queue only slows the
/// reader.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Queued batches of changed VMs for the scraper.
const MAX_QUEUED_BATCHES: usize = 64;
/// Interval at which changes of health are shown that only the time causes.
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which rules between VMs are checked.
const PLACEMENT_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum time that a running read of the folder may delay the shutdown.
const FOLDER_READ_GRACE: Duration = Duration::from_millis(500);

/// Maximum concurrent requests, with long polls.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// Runs the collector until SIGTERM or SIGINT. Its settings come from `file`, whose section `mla`
/// is read again.
pub fn serve(config: &CollectorConfig, file: &Path) -> Code {
    if let Err(error) = telemetry::init(&config.log) {
        cli::print_error(&error.to_string());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::print_error(&format!("cannot start: {error}"));
            return Code::Failure;
        }
    };
    let ended = runtime.block_on(run(config, file));
    // Dropping the runtime would wait for the read of the folder, which never ends on an
    // unreachable network filesystem.
    runtime.shutdown_timeout(FOLDER_READ_GRACE);
    match ended {
        Ok(()) => Code::Ok,
        Err(error) => {
            cli::print_error(&format!("{error:#}"));
            Code::Failure
        }
    }
}

fn own_registry() -> Registry {
    let mut registry = Registry::with_prefix("virtfleet_collector");
    registry.register(
        "build",
        "Build information of the collector",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    panics::register(&mut registry);
    registry
}

async fn run(config: &CollectorConfig, file: &Path) -> anyhow::Result<()> {
    let shutdown = shutdown::signals().context("cannot install signal handlers")?;
    let mut registry = own_registry();
    let file_limit = open_files::raised_limit();
    let agents = AgentClients::new(config, &mut registry)?;
    let server_metrics = ServerMetrics::register(&mut registry);
    let access_metrics = AccessMetrics::register(&mut registry);
    let mla = mla::registered_status(&mut registry);

    warn_about_files(config);
    let tenants = Arc::new(Tenants::default());
    let cluster = live_inventory(config, &tenants, &mut registry, &shutdown).await?;
    let clients = cluster.as_ref().map(|(cluster, _)| cluster.secret_clients());
    let ca = load_ca(config, clients, &shutdown).await?;
    let access = access::from_settings(&config.server, tenants.infra(), access_metrics)?;
    let fleet = empty_fleet(config);
    let (listener, transport) = listen(config, ca.as_ref()).await?;
    let ingest = bind_ingest(config).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let probes = bind_probes(config).await?;

    let mut parts = JoinSet::new();
    let stop = CancellationToken::new();
    let (events, incoming) = mpsc::channel(MAX_QUEUED_EVENTS);
    let (problems, findings) = watch::channel(Vec::new());
    let inventory = inventory_name(config);
    let sources = mla::start(config, file, &fleet, &mut parts, &stop);
    let (watched, changes) = ((&fleet, &tenants, &sources.registry), (events, problems));
    let api_server = cluster.as_ref().map(|(cluster, _)| cluster.api_server());
    match cluster {
        Some(cluster) => watch_cluster(cluster, watched, changes, &mut parts, &stop),
        None => watch_folder(inventory, watched.2, changes, &mut parts, &stop),
    }
    let (to_labels, label_changes) = mpsc::channel(MAX_QUEUED_BATCHES);
    let writers = Writers::start(
        config,
        &fleet,
        &tenants,
        label_changes,
        &mut registry,
        &mut parts,
        &stop,
    )?;
    let leads = mla::leadership(&writers.write_access, &tenants);
    let feeding = leads.clone();
    let running_streams = RunningStreams::start(config, &fleet, &sources, &mla, leads, api_server, &stop);
    let context = AgentContext {
        config,
        fleet: &fleet,
        ca,
        infra: tenants.infra(),
        write_access: writers.write_access.clone(),
        ingest,
        feed: Some(Arc::clone(&running_streams.feed)),
    };
    let agents = agents.start(context, &mut registry, &mut parts, &stop)?;
    let listeners = [to_labels].into_iter().chain(agents.changes).collect();
    parts.spawn(apply(Arc::clone(&fleet), incoming, listeners));
    keep_current(&fleet, (&mla, feeding), (findings, file_limit), &mut parts);
    read_volumes(config, &fleet, tenants.infra(), &writers.write_access, &mut parts);

    let state = ApiState {
        access: Arc::new(access),
        fleet,
        labels: Arc::clone(&writers.statuses),
        mla,
        write_access: writers.write_access.clone(),
        pages: agents.pages,
        ca: agents.ca,
        enrolment: agents.enrolment,
        tokens: agents.tokens,
        registry: Arc::new(registry),
        procfs: Arc::from(Path::new("/proc")),
        instance: jiff::Timestamp::now().as_microsecond().cast_unsigned(),
        drains: Arc::new(DrainReader::new(tenants)),
        histories: histories(config),
        waiting: WatchSlots::new(WatchLimits::LONG_POLLS),
        watching: WatchSlots::new(WatchLimits::STREAMS),
        shutdown: shutdown.graceful.clone(),
    };
    if let Some(probes) = probes {
        parts.spawn(serve_probes(state.clone(), probes, shutdown.clone()));
    }
    let server = Server::new(
        TowerToHyperService::new(api::router(state)),
        limits(),
        server_metrics,
    );
    let http = tokio::spawn(server.serve(listener, transport, shutdown.clone()));
    tracing::info!(%address, inventory, "serving");
    notify(&[sd_notify::NotifyState::Ready]);

    let ended = supervise(&mut parts, &shutdown).await;
    notify(&[sd_notify::NotifyState::Stopping]);
    shutdown.graceful.cancel();
    report_closed(http.await.context("the HTTP server panicked")?);
    stop.cancel();
    running_streams.end().await;
    writers.end().await;
    parts.shutdown().await;
    tracing::info!("stopped");
    ended
}

/// A fleet without VMs, with the rules of the settings.
fn empty_fleet(config: &CollectorConfig) -> Arc<Fleet> {
    let fleet = Fleet::new(config.dial_rules(), jiff::Timestamp::now);
    Arc::new(fleet.with_managed_rules(config.managed_rules()))
}

/// The reader of longer histories, if the settings have a Prometheus.
fn histories(config: &CollectorConfig) -> Option<Arc<HistoryReader>> {
    let settings = config.prometheus.clone()?;
    Some(Arc::new(HistoryReader::new(settings, now_ms)))
}

/// The inventory in log messages: its folder, or that it is live.
fn inventory_name(config: &CollectorConfig) -> &str {
    match config.inventory.cluster {
        Some(_) => "live clusters",
        None => &config.inventory.folder,
    }
}

/// Keeps what the fleet knows current, beside the inventory.
fn keep_current(
    fleet: &Arc<Fleet>,
    (mla, feeding): (&Arc<MlaStatus>, WriteAccess),
    (findings, file_limit): (watch::Receiver<Vec<Finding>>, Option<u64>),
    parts: &mut JoinSet<anyhow::Result<()>>,
) {
    if let Some(limit) = file_limit {
        parts.spawn(open_files::watch(Arc::clone(fleet), limit));
    }
    parts.spawn(note(Arc::clone(fleet), findings));
    parts.spawn(settle(Arc::clone(fleet)));
    parts.spawn(check_placement(Arc::clone(fleet)));
    parts.spawn(mla::report::report(
        Arc::clone(mla),
        Arc::clone(fleet),
        feeding,
        now_ms,
    ));
}

/// Reads the volumes of VMs that wait for them; nothing if the inventory is a folder.
fn read_volumes(
    config: &CollectorConfig,
    fleet: &Arc<Fleet>,
    infra: Option<kube::Client>,
    write_access: &WriteAccess,
    parts: &mut JoinSet<anyhow::Result<()>>,
) {
    let (Some(cluster), Some(client)) = (&config.inventory.cluster, infra) else {
        return;
    };
    let is_namespaced = !cluster.namespaces.is_empty();
    let (fleet, write_access) = (Arc::clone(fleet), write_access.clone());
    parts.spawn(volumes::run(fleet, client, write_access, is_namespaced));
}

fn watch_folder(
    folder: &str,
    streams: &Arc<StreamRegistry>,
    (events, problems): (mpsc::Sender<InventoryEvent>, watch::Sender<Vec<Finding>>),
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) {
    let watch = folder::watch(folder.into(), events, problems, Arc::clone(streams), stop.clone());
    parts.spawn(async { watch.await.context("the inventory cannot be read") });
}

fn report_closed(connections: usize) {
    if connections > 0 {
        tracing::warn!(connections, "closed connections that did not end in time");
    }
}

/// Loads the fleet's authority; none without enrolment.
async fn load_ca(
    config: &CollectorConfig,
    clients: Option<SecretClients>,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<LoadedCa>> {
    tokio::select! {
        () = shutdown.graceful.cancelled() => anyhow::bail!("stopped before the authority could be loaded"),
        loaded = LoadedCa::load(config, clients.as_ref()) => loaded,
    }
}

/// The infra cluster; none if the inventory is a folder, which is checked.
async fn live_inventory(
    config: &CollectorConfig,
    tenants: &Tenants,
    registry: &mut Registry,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<(Inventory, WatchMetrics)>> {
    let Some(settings) = &config.inventory.cluster else {
        check_folder(config, shutdown).await?;
        return Ok(None);
    };
    let metrics = WatchMetrics::register(registry);
    let inventory = Inventory::new(settings, config.scrape.service_cidrs.as_deref(), tenants);
    Ok(Some((inventory.await?, metrics)))
}

/// Checks that the folder is readable before readiness is reported; the watch reads it again and
/// reports problems inside. Runs on a separate thread: on an unreachable network filesystem this
/// blocks, but signals must still be handled.
async fn check_folder(config: &CollectorConfig, shutdown: &Shutdown) -> anyhow::Result<()> {
    let folder = config.inventory.folder.clone();
    let read = tokio::task::spawn_blocking(move || {
        std::fs::read_dir(&folder)
            .map(drop)
            .with_context(|| format!("inventory.folder: cannot read {folder}"))
    });
    tokio::select! {
        () = shutdown.graceful.cancelled() => anyhow::bail!("stopped before the folder of the inventory could be read"),
        read = read => read.context("reading the folder panicked")?,
    }
}

/// Returns on a signal, or an error if a task ends that must not end.
async fn supervise(parts: &mut JoinSet<anyhow::Result<()>>, shutdown: &Shutdown) -> anyhow::Result<()> {
    tokio::select! {
        () = shutdown.graceful.cancelled() => Ok(()),
        Some(ended) = parts.join_next() => {
            ended.context("a task of the collector panicked")??;
            anyhow::bail!("a task of the collector ended unexpectedly")
        }
    }
}

/// Watches the infra cluster and the user clusters.
fn watch_cluster(
    (cluster, metrics): (Inventory, WatchMetrics),
    (fleet, tenants, streams): (&Arc<Fleet>, &Arc<Tenants>, &Arc<StreamRegistry>),
    (events, problems): (mpsc::Sender<InventoryEvent>, watch::Sender<Vec<Finding>>),
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) {
    // Until the first status is set, the fleet treats the inventory as a folder.
    let statuses = tenants.statuses();
    fleet.change(|index| index.set_cluster_statuses(statuses));
    parts.spawn(follow_cluster_statuses(Arc::clone(fleet), Arc::clone(tenants)));
    let (tenants, streams) = (Arc::clone(tenants), Arc::clone(streams));
    parts.spawn(cluster.watch(events, problems, tenants, streams, metrics, stop.clone()));
}

/// Applies inventory events in batches, and passes the changed VMs to the scraper and the label
/// writer.
async fn apply(
    fleet: Arc<Fleet>,
    mut events: mpsc::Receiver<InventoryEvent>,
    changed: Vec<mpsc::Sender<Vec<VmKey>>>,
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, MAX_QUEUED_EVENTS).await > 0 {
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

/// Shows changes of health that have lasted long enough.
async fn settle(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(SETTLE_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        fleet.change(FleetIndex::settle);
    }
}

/// Checks rules between VMs from time to time.
async fn check_placement(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(PLACEMENT_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fleet = Arc::clone(&fleet);
        tokio::task::spawn_blocking(move || fleet.check_placement()).await?;
    }
}

async fn note(fleet: Arc<Fleet>, mut findings: watch::Receiver<Vec<Finding>>) -> anyhow::Result<()> {
    while findings.changed().await.is_ok() {
        let now = findings.borrow_and_update().clone();
        fleet.change(|index| index.set_inventory_findings(now));
    }
    Ok(())
}

/// Passes each change of a user cluster's status to the fleet.
async fn follow_cluster_statuses(fleet: Arc<Fleet>, tenants: Arc<Tenants>) -> anyhow::Result<()> {
    let mut changes = tenants.changes();
    loop {
        changes.mark_unchanged();
        let statuses = tenants.statuses();
        fleet.change(|index| index.set_cluster_statuses(statuses));
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Logs the problems that `check-config` would report. Unusable files end the start; an expired
/// certificate may be replaced later.
fn warn_about_files(config: &CollectorConfig) {
    if !config.pulls_agents() {
        tracing::info!("neither enrolment nor scrape.tls is set: agents are not pulled");
    }
    for line in credentials::check(config, now()) {
        if line.status != CheckStatus::Ok {
            tracing::warn!(key = line.what, next = line.next, "{}", line.detail);
        }
    }
}

/// Returns only on an error: when this server ends, the collector shuts down.
async fn serve_probes(state: ApiState, listener: TcpListener, shutdown: Shutdown) -> anyhow::Result<()> {
    let service = TowerToHyperService::new(api::probes(state));
    let server = Server::new(service, Limits::default(), ServerMetrics::default());
    server.serve(listener, Transport::Plain, shutdown).await;
    std::future::pending().await
}

/// Requests may be long polls, so the limits are longer than an agent's.
fn limits() -> Limits {
    let others = Limits::default();
    Limits {
        connections: 512,
        new_connections: 128,
        connections_per_peer: 256,
        requests: MAX_CONCURRENT_REQUESTS,
        request_timeout: api::MAX_WAIT + others.request_timeout,
        ..others
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// Seconds since 1970.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

/// Notifies systemd, if it runs this process.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_poll_ends_before_the_request_timeout() {
        assert!(limits().request_timeout > api::MAX_WAIT);
    }

    #[test]
    fn long_polls_leave_a_third_of_all_requests_to_others() {
        assert!(WatchLimits::LONG_POLLS.all * 3 <= limits().requests * 2);
    }
}
