//! Runs simulated agents: listeners, TLS, and what an enrolled agent answers.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Runtime,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use virtfleet_runtime::tls::{PUSH_PROTOCOL, peer_names};
use virtfleet_wire::{
    enrolment::{CERTIFICATE_PATH, CLAIM_PATH, EnrolmentEvidence, MAX_BODY_BYTES, REQUEST_PATH},
    exposition::{CONTENT_TYPE, Page},
};

use super::{
    disk::{AgentDisk, provider},
    fault::EnrolFault,
    protocol::AgentState,
    push::{self, PushPace, PushTo},
    spec::AgentSpec,
};
use crate::{
    sim::{
        Guest, Model, guest_report,
        trouble::{Drip, Endless},
        write_page,
    },
    wait::until,
};

/// Maximum time until an agent has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the TLS handshake, as the real agent has.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks whether an agent that connects accepts connections, too.
const REACHABLE_POLL: Duration = Duration::from_millis(200);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Runs agents that accept the collectors of one fleet.
pub struct AgentHost {
    // Held for its drop: the runtime owns every task.
    runtime: Option<Runtime>,
    clients: Arc<dyn ClientCertVerifier>,
    started: Instant,
}

/// A running agent. Dropping it leaves it running; see [`RunningAgent::stop`].
pub struct RunningAgent {
    state: Arc<AgentState>,
    task: AbortHandle,
}

impl RunningAgent {
    /// Stops it with its connections, and returns its disk.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(self) -> Result<AgentDisk> {
        self.task.abort();
        until(STOP_TIMEOUT, "the agent has stopped", || self.task.is_finished())?;
        Ok(self.disk())
    }

    /// A copy of its disk.
    pub fn disk(&self) -> AgentDisk {
        self.state.disk().clone()
    }

    /// Replaces its disk; new connections are served with it.
    pub fn replace_disk(&self, disk: AgentDisk) {
        *self.state.disk() = disk;
    }

    /// Lets an agent that connects also accept connections on its address.
    pub fn set_reachable(&self) {
        self.state.reachable.store(true, Ordering::Relaxed);
    }

    /// Lets requests for the page wait, or no longer.
    pub fn hold_pages(&self, holds: bool) {
        self.state.holds_pages.store(holds, Ordering::Relaxed);
    }

    /// Number of requests for the page so far that had to wait.
    pub fn held_pages(&self) -> u64 {
        self.state.held_pages.load(Ordering::Relaxed)
    }

    /// Number of connections so far that it opened itself.
    pub fn pushes(&self) -> u64 {
        self.state.pushes.load(Ordering::Relaxed)
    }

    /// Number of answered requests for a report so far.
    pub fn reports(&self) -> u64 {
        self.state.reports.load(Ordering::Relaxed)
    }

    /// Number of connections so far, of anybody.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Number of requests for a CSR so far.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Number of requests for its claim so far.
    pub fn claims(&self) -> u64 {
        self.state.claims.load(Ordering::Relaxed)
    }

    /// Number of accepted certificates so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl AgentHost {
    /// A host whose agents accept clients with these roots (a PEM file) only.
    pub fn new(client_roots: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let read = CertificateDer::pem_file_iter(client_roots)
            .map_err(|error| anyhow::anyhow!("{}: {error}", client_roots.display()))?;
        for certificate in read {
            roots.add(certificate.map_err(|error| anyhow::anyhow!("{error}"))?)?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .context("verifier of client certificates")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("agents")
            .enable_all()
            .build()
            .context("runtime of the agents")?;
        Ok(Self {
            runtime: Some(runtime),
            clients,
            started: Instant::now(),
        })
    }

    /// Runs an agent.
    ///
    /// # Errors
    /// Its address cannot be bound.
    pub fn run(&self, spec: AgentSpec) -> Result<RunningAgent> {
        let runtime = self.runtime.as_ref().context("the host has ended")?;
        let guest = spec.guest;
        let place = match spec.push {
            Some(push) => AgentPlace::Pushing(push, spec.address),
            None => AgentPlace::Listening({
                let _entered = runtime.enter();
                listen(spec.address)
                    .with_context(|| format!("listen on {} for {}", spec.address, guest.name))?
            }),
        };
        let evidence = EnrolmentEvidence {
            smbios_uuid: Some(guest.firmware),
            hostname: Some(guest.name.clone()),
            macs: guest.mac.parse().into_iter().collect(),
            boot_id: None,
        };
        let state = AgentState::new(spec.disk, evidence, spec.fault)
            .with_token(spec.token)
            .with_kubelet(spec.kubelet);
        let state = Arc::new(state);
        let agent = Arc::new(ServedAgent {
            model: Model::new(&guest),
            guest: spec.reports_as.unwrap_or(guest),
            state: Arc::clone(&state),
            clients: Arc::clone(&self.clients),
            started: self.started,
        });
        let task = runtime.spawn(serve(place, agent)).abort_handle();
        Ok(RunningAgent { state, task })
    }
}

impl Drop for AgentHost {
    fn drop(&mut self) {
        // Waiting would panic within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What one agent serves.
struct ServedAgent {
    guest: Guest,
    model: Model,
    state: Arc<AgentState>,
    clients: Arc<dyn ClientCertVerifier>,
    started: Instant,
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(64)
}

/// How an agent is reached.
enum AgentPlace {
    /// It listens.
    Listening(TcpListener),
    /// It connects, and listens on its address once that is reachable.
    Pushing(PushTo, SocketAddr),
}

async fn serve(place: AgentPlace, agent: Arc<ServedAgent>) {
    match place {
        AgentPlace::Listening(listener) => accept(listener, agent).await,
        AgentPlace::Pushing(push, address) => {
            let listening = async {
                while !agent.state.reachable.load(Ordering::Relaxed) {
                    tokio::time::sleep(REACHABLE_POLL).await;
                }
                if let Ok(listener) = listen(address) {
                    accept(listener, Arc::clone(&agent)).await;
                }
            };
            let (served, state) = (Arc::clone(&agent), Arc::clone(&agent.state));
            let serve = move |stream| connection(stream, Arc::clone(&served), false);
            match push.pace {
                PushPace::Quick => {
                    tokio::join!(listening, push::connect(push, state, serve));
                }
                PushPace::Real(seed) => push::connect_as_real(push, seed, state, serve).await,
            }
        }
    }
}

async fn accept(listener: TcpListener, agent: Arc<ServedAgent>) {
    // Dropped with this task: stopping an agent closes its connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    agent.state.connections.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(connection(stream, Arc::clone(&agent), true));
                }
                // No file descriptor left, or the peer has disconnected.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, agent: Arc<ServedAgent>, is_dialled: bool) {
    drop(stream.set_nodelay(true));
    let protocol: &[u8] = if is_dialled { b"http/1.1" } else { PUSH_PROTOCOL };
    let config = agent.state.before_connection().and_then(|()| {
        let clients = Arc::clone(&agent.clients);
        agent.state.disk().server_config(clients, protocol)
    });
    let Ok(config) = config else { return };
    let is_enrolled = agent.state.disk().is_enrolled();
    let accepted = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await;
    let Ok(Ok(stream)) = accepted else { return };
    let is_collector = is_collector(&stream);
    let service = service_fn(move |request| {
        let agent = Arc::clone(&agent);
        async move {
            if !is_collector {
                return answer(StatusCode::FORBIDDEN, "text/plain", Bytes::new());
            }
            if is_dialled && request.uri().path() == "/v1/report" {
                agent.state.dialled_now();
            }
            agent.respond(request, is_enrolled).await
        }
    });
    // A client that disconnects early is not an error here.
    let served = http1::Builder::new()
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    drop(served);
}

fn is_collector(stream: &TlsStream<TcpStream>) -> bool {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let names = certificates.first().map(peer_names).unwrap_or_default();
    names
        .iter()
        .any(|name| name.starts_with("spiffe://") && name.ends_with("/collector"))
}

impl ServedAgent {
    async fn respond(
        &self,
        request: Request<Incoming>,
        is_enrolled: bool,
    ) -> Result<Response<Body>, hyper::http::Error> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            REQUEST_PATH | CERTIFICATE_PATH | CLAIM_PATH => {
                if path == REQUEST_PATH
                    && let Some(special) = self.special().await
                {
                    return special;
                }
                let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
                let answered =
                    body.map_err(|error| anyhow::anyhow!("{error}"))
                        .and_then(|body| match path.as_str() {
                            REQUEST_PATH => self.state.request(&body.to_bytes()),
                            CLAIM_PATH => self.state.claim(),
                            _ => self.state.certificate(&body.to_bytes()),
                        });
                match answered {
                    Ok((status, body)) => answer(status, "application/json", Bytes::from(body)),
                    Err(error) => answer(StatusCode::BAD_REQUEST, "text/plain", error.to_string().into()),
                }
            }
            _ if !is_enrolled => answer(StatusCode::FORBIDDEN, "text/plain", "not enrolled\n".into()),
            "/v1/report" => {
                self.state.reports.fetch_add(1, Ordering::Relaxed);
                answer(StatusCode::OK, "application/json", self.report())
            }
            "/metrics" => {
                self.state.page_is_released().await;
                answer(StatusCode::OK, CONTENT_TYPE, self.page())
            }
            _ => answer(StatusCode::NOT_FOUND, "text/plain", Bytes::new()),
        }
    }

    /// The answer of an agent that answers no CSR.
    async fn special(&self) -> Option<Result<Response<Body>, hyper::http::Error>> {
        let fault = self.state.fault()?;
        let is_special = matches!(
            fault,
            EnrolFault::Slow | EnrolFault::Endless | EnrolFault::Garbage | EnrolFault::Silent
        );
        self.state
            .requests
            .fetch_add(u64::from(is_special), Ordering::Relaxed);
        let body: Body = match fault {
            EnrolFault::Slow => Drip::new(Bytes::from(vec![b' '; 10_000])).boxed_unsync(),
            EnrolFault::Endless => Endless::default().boxed_unsync(),
            EnrolFault::Garbage => Full::from("<html>\u{1}").boxed_unsync(),
            EnrolFault::Silent => std::future::pending().await,
            _ => return None,
        };
        Some(Response::builder().body(body))
    }

    fn report(&self) -> Bytes {
        let elapsed = self.started.elapsed().as_secs_f64();
        let report = guest_report(&self.guest, &self.model, elapsed, now(), 1);
        report
            .to_json_within_limit()
            .map_or_else(|error| Bytes::from(error.to_string()), Bytes::from)
    }

    fn page(&self) -> Bytes {
        let mut page = Page::new();
        let elapsed = self.started.elapsed().as_secs_f64();
        write_page(&mut page, &self.guest, &self.model, elapsed, now());
        Bytes::copy_from_slice(page.as_bytes())
    }
}

fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn answer(status: StatusCode, kind: &str, body: Bytes) -> Result<Response<Body>, hyper::http::Error> {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(body).boxed_unsync())
}
