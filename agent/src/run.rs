//! `run`: settings → collectors → listeners → serve until stopped → drain.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use virtfleet_agent_core::{VERSION, pass::status_line};
use virtfleet_agent_host::{Requester, Roots, passed_sockets, request_reconcile};
use virtfleet_agent_metrics::{COLLECTORS, Context, Registry};
use virtfleet_agent_service::{
    dns_watch::{self, DnsWatchEnded, DnsWatchThread},
    enrolment::Enrolment,
    pause::ClockWatch,
    push::{Pusher, TokenFile, WayTracker},
    report::Reporter,
    server::{ListenError, OwnMetrics, Routes, Worker, WorkerGone, bind, push_tls},
};
use virtfleet_agent_state::{
    DnsHistory,
    settings::{self, LoadedSettings},
};
use virtfleet_runtime::{
    exit::Code,
    http::{Limits, Server, Transport},
    shutdown::{self, Shutdown},
    telemetry,
};
use virtfleet_wire::settings::{AgentConfig, LogSettings, ServerSettings};

use crate::cli::Args;

/// Maximum time for threads that block to end, after everything else has.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Why it ended, with the exit code.
pub fn run(args: &Args) -> Result<(), (anyhow::Error, Code)> {
    let settings = settings::load(&args.roots, args.config.as_deref());
    let failure = |error: anyhow::Error| (error, Code::Failure);
    if settings.config.server.listeners.is_empty() {
        return Err((nothing_to_serve(&settings), Code::Config));
    }
    let log = LogSettings {
        level: args.log_level.unwrap_or(settings.config.log.level),
        format: args.log_format.unwrap_or(settings.config.log.format),
    };
    telemetry::init(&log).map_err(|error| failure(error.into()))?;
    for problem in &settings.problems {
        tracing::error!(section = problem.section(), "not applied: {problem}");
    }
    for key in &settings.ignored {
        tracing::warn!(section = key.section(), "{key}");
    }
    // One thread serves and one collects. At rest neither runs, and the agent stays small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")
        .map_err(failure)?;
    let served = runtime.block_on(serve(args, &settings));
    // An attempt to connect may still block in its thread. Nothing needs its result.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    served
}

async fn serve(args: &Args, settings: &LoadedSettings) -> Result<(), (anyhow::Error, Code)> {
    let failure = |error: anyhow::Error| (error, Code::Failure);
    let config = &settings.config;
    // Reported as early as possible: root's reconcile runs compare it with the settings on disk.
    notify(NotifyState::Status(&status_line(&settings.digest())));
    let shutdown = shutdown::signals()
        .context("cannot handle signals")
        .map_err(failure)?;
    let hangup = signal(SignalKind::hangup())
        .context("cannot handle signals")
        .map_err(failure)?;
    // Only the command line can be invalid here; the settings were checked when they were loaded.
    let history = DnsHistory::default();
    let metrics = args
        .collectors
        .apply_to(&config.metrics)
        .map_err(|error| (error.into(), Code::Usage))?;
    let context = Context {
        dns: history.clone(),
        nic: config.nic.clone(),
        ..Context::new(args.roots.clone(), metrics)
    };
    let registry = Registry::with_table(COLLECTORS, context, &args.collectors.switched)
        .map_err(|error| (error.into(), Code::Usage))?;
    let reporter = Reporter::new(args.roots.clone(), VERSION, settings).with_history(history.clone());
    let (own, server_metrics) = OwnMetrics::new(&args.roots, settings.problems.len());
    // Started before the server: a node that has no certificates yet still needs DNS.
    let dns_watch = dns_watch::start(&args.roots, settings, &history)
        .context("cannot start a thread")
        .map_err(failure)?;
    let tracker = WayTracker::new(&args.roots, &config.push);
    let enrolment = enrolment(&args.roots, config, &tracker).map_err(failure)?;
    let reporter = reporter
        .with_enrolment(enrolment.clone())
        .with_tracker(tracker.clone())
        .with_listener_query();
    let own = own
        .with_enrolment(enrolment.clone())
        .with_tracker(tracker.clone());
    let bound = bind(&config.server, enrolment.as_ref(), passed());
    let listeners = bound.await.map_err(cannot_serve)?;
    let push_tls = match config.push.collector {
        Some(_) => Some(push_tls(&config.server.tls, enrolment.as_ref()).map_err(cannot_serve)?),
        None => None,
    };
    let worker = Worker::start(registry, reporter, own, ClockWatch::new(&args.roots))
        .context("cannot start a thread")
        .map_err(failure)?;
    let ready = Arc::new(AtomicBool::new(false));
    let routes = Routes::new(worker.clone(), Arc::clone(&ready))
        .with_enrolment(enrolment)
        .with_tracker(tracker.clone());
    let limits = limits(&config.server);
    let server = Server::new(routes.clone(), limits.clone(), server_metrics.clone());
    let mut serving = JoinSet::new();
    for (listener, transport) in listeners {
        let address = listener
            .local_addr()
            .context("a listener has no address")
            .map_err(failure)?;
        tracing::info!(%address, tls = matches!(transport, Transport::Tls(_)), "serving");
        serving.spawn(server.clone().serve(listener, transport, shutdown.clone()));
    }
    let pusher = push_tls.and_then(|tls| {
        let (roots, push) = (&args.roots, &config.push);
        Pusher::new(
            roots,
            push,
            routes,
            limits,
            server_metrics,
            Arc::new(tls),
            tracker,
        )
    });
    if let Some(pusher) = pusher {
        let shutdown = shutdown.clone();
        serving.spawn(async move {
            pusher.run(shutdown).await;
            0
        });
    }
    let watchdog = sd_notify::watchdog_enabled();
    tokio::select! {
        stopped = until_stopped(&worker, &ready, &shutdown) => stopped.map_err(|gone| failure(gone.into()))?,
        ended = ended(dns_watch.as_ref()) => return Err(failure(ended.into())),
        () = feed(&worker, dns_watch.as_ref(), watchdog, &notify) => {}
        () = pass_on(hangup, &args.roots) => {}
    }
    notify(NotifyState::Stopping);
    drain(serving).await.map_err(failure)?;
    tracing::info!("stopped");
    Ok(())
}

/// The error of a listener, with its exit code.
fn cannot_serve(error: ListenError) -> (anyhow::Error, Code) {
    // The address may become free and the certificate may be issued later; then a restart succeeds.
    let code = match &error {
        ListenError::Bind { .. } | ListenError::Passed(_) => Code::Failure,
        ListenError::Tls(error) if error.is_missing_file() => Code::Failure,
        _ => Code::Config,
    };
    (anyhow::Error::new(error).context("cannot serve"), code)
}

/// Waits for everything that serves to end.
async fn drain(mut serving: JoinSet<usize>) -> anyhow::Result<()> {
    let mut cut = 0;
    while let Some(ended) = serving.join_next().await {
        cut += ended.context("a task that serves has panicked")?;
    }
    if cut > 0 {
        tracing::warn!(
            connections = cut,
            "connections closed because they did not end in time"
        );
    }
    Ok(())
}

/// The enrolment, if the settings ask for it, and a listener speaks TLS or the agent may connect.
fn enrolment(roots: &Roots, config: &AgentConfig, tracker: &WayTracker) -> anyhow::Result<Option<Enrolment>> {
    let (server, push) = (&config.server, &config.push);
    let client_ca = server.tls.client_ca.as_deref().unwrap_or_default();
    let serves_tls = push.collector.is_some() || server.listeners.iter().any(|listener| !listener.plain);
    if !server.tls.enrolment || !serves_tls {
        return Ok(None);
    }
    let enrolment = Enrolment::open(roots, client_ca).context("cannot prepare enrolment")?;
    let token = push.token_file.as_deref();
    let token = token.map(|path| TokenFile::new(roots, path));
    Ok(Some(
        enrolment
            .with_token(token, tracker)
            .with_node_proof(push.kubelet_certificate.is_some()),
    ))
}

/// Sockets that systemd has opened for this process. Without them the agent opens its own.
fn passed() -> Vec<std::net::TcpListener> {
    match passed_sockets() {
        Ok((sockets, others)) => {
            for reason in others {
                tracing::warn!(reason, "systemd passed a socket that is not used");
            }
            sockets
        }
        Err(error) => {
            tracing::warn!(%error, "the sockets that systemd passed are not used");
            Vec::new()
        }
    }
}

/// Sets `ready` once the first scrape has finished. Returns when the agent is stopped, even if the
/// first scrape hangs.
///
/// # Errors
/// The worker thread has ended. The agent can then serve nothing, and must be restarted.
async fn until_stopped(worker: &Worker, ready: &AtomicBool, shutdown: &Shutdown) -> Result<(), WorkerGone> {
    tokio::select! {
        () = shutdown.graceful.cancelled() => return Ok(()),
        first = worker.ready() => first?,
    }
    ready.store(true, Ordering::Release);
    notify(NotifyState::Ready);
    // Memory that only the start needed is released.
    virtfleet_agent_host::release_memory();
    tokio::select! {
        () = shutdown.graceful.cancelled() => Ok(()),
        gone = worker.gone() => Err(gone),
    }
}

/// Returns when the thread of the DNS watch has ended: the agent must then be restarted. Never
/// returns without such a thread.
async fn ended(dns_watch: Option<&DnsWatchThread>) -> DnsWatchEnded {
    match dns_watch {
        Some(thread) => thread.ended().await,
        None => std::future::pending().await,
    }
}

/// Notifies systemd's watchdog twice per period as long as neither the worker nor the DNS watch
/// hangs; otherwise systemd restarts the agent. A slow worker, for example with a hung mount, is
/// bounded by deadlines far below the period. Without a watchdog there is no timer. Never returns.
async fn feed(
    worker: &Worker,
    dns_watch: Option<&DnsWatchThread>,
    period: Option<Duration>,
    notify: &dyn Fn(NotifyState<'_>),
) {
    if let Some(period) = period {
        let mut ticks = interval((period / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if worker.alive().await.is_err() {
                break;
            }
            if dns_watch.is_some_and(DnsWatchThread::is_hung) {
                tracing::error!("the DNS watch hangs; systemd will restart the agent");
                break;
            }
            notify(NotifyState::Watchdog);
        }
    }
    std::future::pending::<()>().await;
}

/// On SIGHUP, which `systemctl reload` sends, requests a reconcile run from root. That run restarts
/// the agent if the settings have changed and are valid. The agent itself never reloads settings.
/// Never returns.
async fn pass_on(mut hangup: Signal, roots: &Roots) {
    while hangup.recv().await.is_some() {
        match request_reconcile(roots, Requester::Agent) {
            Ok(()) => tracing::info!("requested a reconcile run"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "restart virtfleet-agent to apply new settings");
            }
        }
    }
    std::future::pending::<()>().await;
}

/// One error line with all possible reasons: problems of the listeners, of TLS, and of whole files.
fn nothing_to_serve(settings: &LoadedSettings) -> anyhow::Error {
    let reasons: Vec<String> = settings
        .problems
        .iter()
        .filter(|problem| matches!(problem.section(), "" | "server"))
        .map(ToString::to_string)
        .collect();
    anyhow::anyhow!(
        "cannot serve, because no listener is left: {} (virtfleet-agent check-config)",
        reasons.join("; ")
    )
}

/// Minimum number of connections that may be in their handshakes at once, even if fewer may be
/// open.
const MIN_HANDSHAKES: usize = 8;

fn limits(server: &ServerSettings) -> Limits {
    Limits {
        connections: server.max_connections as usize,
        new_connections: (server.max_connections as usize / 2).max(MIN_HANDSHAKES),
        connections_per_peer: (server.max_connections as usize * 3).div_ceil(4),
        requests: server.max_requests as usize,
        request_timeout: server.request_timeout.0,
        shutdown_grace: server.shutdown_grace.0,
        ..Limits::default()
    }
}

/// Notifies systemd, if it is there.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::net::UnixDatagram;
    use virtfleet_agent_host::Roots;

    use super::*;
    use crate::cli::{CollectorFlags, Verb};

    /// The arguments of `run` with these settings.
    fn args(text: &str) -> (tempfile::TempDir, Args) {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("agent.yaml");
        let head = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
        fs::write(&config, format!("{head}{text}")).unwrap();
        let args = Args {
            roots: Roots::default(),
            config: Some(config),
            log_level: None,
            log_format: None,
            collectors: CollectorFlags::default(),
            verb: Verb::Run,
        };
        (dir, args)
    }

    #[test]
    fn without_a_listener_one_line_has_the_reason_and_systemd_does_not_restart() {
        for (text, reason) in [
            (
                "",
                "(default): server.tls: listener default serves HTTPS and needs server.tls.certificate",
            ),
            ("server: {listeners: []}", "agent.yaml:3: server.listeners: empty"),
            ("server: [", "agent.yaml:4: not YAML"),
        ] {
            let (_dir, args) = args(text);
            let (error, code) = run(&args).unwrap_err();
            let line = format!("{error:#}");
            assert_eq!(code, Code::Config, "{line}");
            assert!(line.contains(reason) && !line.contains('\n'), "{line}");
        }
    }

    #[tokio::test]
    async fn an_address_in_use_allows_a_restart() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let (_dir, args) = args(&format!(
            "server: {{listeners: [{{name: default, address: \"{address}\", plain: true}}]}}"
        ));
        let settings = settings::load(&args.roots, args.config.as_deref());
        let (error, code) = serve(&args, &settings).await.unwrap_err();
        assert_eq!(code, Code::Failure, "{error:#}");
    }

    #[tokio::test]
    async fn a_hung_first_scrape_does_not_prevent_stopping() {
        let (ready, shutdown) = (AtomicBool::new(false), Shutdown::default());
        shutdown.graceful.cancel();
        let worker = Worker::scripted(None);
        let stopped = until_stopped(&worker, &ready, &shutdown);
        let stopped = tokio::time::timeout(Duration::from_secs(20), stopped).await;
        assert_eq!(stopped.unwrap(), Ok(()));
        assert!(!ready.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn a_worker_that_ends_ends_the_agent() {
        for answers in [0, 1] {
            let (ready, shutdown) = (AtomicBool::new(false), Shutdown::default());
            let worker = Worker::scripted(Some(answers));
            let stopped = until_stopped(&worker, &ready, &shutdown);
            let stopped = tokio::time::timeout(Duration::from_secs(20), stopped).await;
            assert_eq!(stopped.unwrap(), Err(WorkerGone), "{answers}");
            assert_eq!(ready.load(Ordering::Acquire), answers == 1);
        }
    }

    /// The messages that systemd receives from a worker that finishes `jobs` jobs and then hangs:
    /// at most 11, and after the first `least` until there is none for half a second.
    async fn notifications(
        least: usize,
        jobs: usize,
        dns_watch: Option<&DnsWatchThread>,
        period: Option<Duration>,
    ) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let systemd = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let own = std::os::unix::net::UnixDatagram::unbound().unwrap();
        own.connect(dir.path().join("notify")).unwrap();
        let tell = |state: NotifyState<'_>| {
            own.send(state.to_string().as_bytes()).unwrap();
        };
        let worker = Worker::hanging_after(jobs, true);
        let (mut notifications, mut buffer) = (Vec::new(), [0; 64]);
        // Read all the time, because an unread socket buffers few messages.
        let listening = async {
            while notifications.len() < 11 {
                let longest = if notifications.len() < least { 60_000 } else { 500 };
                let message = tokio::time::timeout(Duration::from_millis(longest), systemd.recv(&mut buffer));
                let Ok(length) = message.await else { return };
                let message = String::from_utf8_lossy(&buffer[..length.unwrap()]);
                notifications.push(message.trim_end().to_owned());
            }
        };
        tokio::select! {
            biased;
            () = listening => {}
            () = feed(&worker, dns_watch, period, &tell) => {}
        }
        notifications
    }

    #[tokio::test]
    async fn the_watchdog_is_notified_as_long_as_the_worker_works() {
        let short = Some(Duration::from_millis(10));
        let none = Vec::<String>::new();
        let three = notifications(3, 3, None, short).await;
        assert_eq!(three, vec!["WATCHDOG=1"; 3], "then it hangs");
        assert_eq!(notifications(0, 0, None, short).await, none);
        assert_eq!(notifications(0, 3, None, None).await, none, "without a watchdog");
        assert_eq!(notifications(11, 1000, None, short).await.len(), 11);
        let (works, _ends) = DnsWatchThread::scripted(Duration::from_mins(1));
        assert_eq!(notifications(11, 1000, Some(&works), short).await.len(), 11);
        let (hangs, _ends) = DnsWatchThread::scripted(Duration::ZERO);
        assert_eq!(notifications(0, 1000, Some(&hangs), short).await, none);
    }

    #[tokio::test]
    async fn a_dns_watch_that_ends_ends_the_agent() {
        let (thread, ends) = DnsWatchThread::scripted(Duration::ZERO);
        let limit = Duration::from_millis(100);
        tokio::time::timeout(limit, ended(None)).await.unwrap_err();
        tokio::time::timeout(limit, ended(Some(&thread)))
            .await
            .unwrap_err();
        drop(ends);
        assert_eq!(ended(Some(&thread)).await, DnsWatchEnded);
    }

    #[tokio::test]
    async fn a_busy_worker_counts_as_alive() {
        let worker = Worker::hanging_after(1, true);
        let waiting = worker.alive();
        tokio::time::timeout(Duration::from_secs(20), waiting)
            .await
            .unwrap()
            .unwrap();
        let hangs = tokio::time::timeout(Duration::from_millis(100), worker.alive()).await;
        assert!(hangs.is_err(), "earlier jobs do not count");
        assert_eq!(Worker::hanging_after(0, false).alive().await, Err(WorkerGone));
    }
}
