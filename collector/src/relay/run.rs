//! Runs the relay until a signal.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context as _;
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use virtfleet_collector_core::{connect_rate::ConnectRate, dial::DialRules};
use virtfleet_runtime::{
    exit::Code,
    http::{Limits, Server, ServerMetrics, Transport},
    shutdown, telemetry,
};
use virtfleet_wire::settings::LogSettings;

use super::{
    args::RelayArgs,
    listener::{RelayDirection, RelayListener},
    metrics::{DirectionMetrics, RelayMetrics},
    stop::RelayStop,
};
use crate::{
    open_files::{OTHER_FILES, raised_limit},
    panics,
    print::print_error,
    probes,
    slots::ConnectionSlots,
};

/// Maximum time for connections with traffic to end during a shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Open files of a connection: one to each side.
const FILES_PER_CONNECTION: u64 = 2;

/// Runs the relay until SIGTERM or SIGINT.
pub fn run(args: &RelayArgs, log: &LogSettings) -> Code {
    if let Err(error) = telemetry::init(log) {
        print_error(&error.to_string());
    }
    // One thread: copying bytes is I/O, and a relay is one of many small pods.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .context("cannot start")
        .and_then(|runtime| runtime.block_on(serve(args)));
    match ended {
        Ok(()) => Code::Ok,
        Err(error) => {
            print_error(&format!("{error:#}"));
            Code::Failure
        }
    }
}

async fn serve(args: &RelayArgs) -> anyhow::Result<()> {
    let shutdown = shutdown::signals().context("cannot install signal handlers")?;
    check_file_limit(args);
    let mut registry = Registry::with_prefix("virtfleet_relay");
    panics::register(&mut registry);
    let metrics = RelayMetrics::register(&mut registry);
    let (stop, tasks, accepting) = (RelayStop::default(), TaskTracker::new(), TaskTracker::new());

    let rules = DialRules::new(args.allow.clone(), Vec::new(), args.port);
    let per_peer = args.connect_per_peer.unwrap_or(args.max_connections);
    let pull = relay_listener(args, RelayDirection::Pull(rules), per_peer, metrics.pull, &stop);
    let listener = bind("--connect.address", args.connect_address).await?;
    let connect = listener.local_addr().context("the listener has no address")?;
    accepting.spawn(Arc::new(pull).accept(listener, tasks.clone()));

    if let Some(collector) = args.collector.clone() {
        let direction = RelayDirection::Push(collector);
        let push = relay_listener(args, direction, args.forward_per_peer, metrics.push, &stop);
        let listener = bind("--forward.address", args.forward_address).await?;
        accepting.spawn(Arc::new(push).accept(listener, tasks.clone()));
    }

    let listener = bind("--probe.address", args.probe_address).await?;
    let service = TowerToHyperService::new(probes::router(registry));
    let server = Server::new(service, Limits::default(), ServerMetrics::default());
    let probes = tokio::spawn(server.serve(listener, Transport::Plain, shutdown.clone()));
    tracing::info!(%connect, forward = args.collector.as_ref().map(ToString::to_string), "relaying");

    shutdown.graceful.cancelled().await;
    stop.drain.cancel();
    accepting.close();
    accepting.wait().await;
    tasks.close();
    tokio::select! {
        () = tasks.wait() => {}
        () = tokio::time::sleep(SHUTDOWN_GRACE) => {}
        () = shutdown.hard.cancelled() => {}
    }
    let left = tasks.len();
    if left > 0 {
        tracing::warn!(connections = left, "closed connections that did not end in time");
    }
    stop.cut.cancel();
    tasks.wait().await;
    probes.await.context("the server of the probes panicked")?;
    tracing::info!("stopped");
    Ok(())
}

/// Warns if the limit on open files allows fewer connections than the flags.
fn check_file_limit(args: &RelayArgs) {
    let directions = 1 + u64::from(args.collector.is_some());
    let needed = OTHER_FILES + directions * FILES_PER_CONNECTION * u64::from(args.max_connections);
    if let Some(limit) = raised_limit().filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            "the limit on open files is too low for --max-connections; raise it, or lower the flag"
        );
    }
}

fn relay_listener(
    args: &RelayArgs,
    direction: RelayDirection,
    per_peer: u32,
    metrics: DirectionMetrics,
    stop: &RelayStop,
) -> RelayListener {
    RelayListener {
        rate: matches!(direction, RelayDirection::Push(_)).then(|| ConnectRate::of_peer(per_peer)),
        rates: Mutex::default(),
        direction,
        slots: ConnectionSlots::new(args.max_connections, per_peer),
        connect_timeout: args.connect_timeout,
        idle_timeout: args.idle_timeout,
        metrics,
        refusals: RelayListener::throttle(),
        stop: stop.clone(),
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}
