//! Accept loop, and handling of one connection.

pub use super::limits::Limits;
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::Service,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    RequestPeer, ServerMetrics,
    admission::{Admission, Ticket},
    guarded::Guarded,
    write_deadline::WriteDeadline,
};
use crate::{
    shutdown::Shutdown,
    throttle::Throttle,
    tls::{TlsAcceptor, peer_names},
};

#[derive(Debug, Clone)]
pub enum Transport {
    Plain,
    /// TLS with certificates on both sides.
    Tls(Arc<TlsAcceptor>),
    /// By the address at which a connection arrives; it is closed if none matches. For a socket
    /// that listens on more addresses than are served. An unspecified address matches all
    /// addresses of its family, and `::` all.
    ByAddress(Arc<[(IpAddr, Transport)]>),
}

impl Transport {
    fn of(&self, stream: &TcpStream) -> Option<Self> {
        let Self::ByAddress(served) = self else {
            return Some(self.clone());
        };
        let local = stream.local_addr().ok()?.ip().to_canonical();
        let matches = |address: IpAddr| {
            address.to_canonical() == local
                || address.is_unspecified() && (address.is_ipv6() || local.is_ipv4())
        };
        let (_, transport) = served.iter().find(|(address, _)| matches(*address))?;
        transport.of(stream)
    }
}

/// One service on any number of listeners, with common limits.
#[derive(Debug, Clone)]
pub struct Server<S> {
    service: S,
    requests: Arc<Semaphore>,
    limits: Limits,
    admission: Arc<Admission>,
    metrics: ServerMetrics,
    rejection_log: Arc<Throttle>,
}

/// A service that a server can run.
pub trait HttpService:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The response's body.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;
}

impl<S> Server<S>
where
    S: HttpService<Future: 'static>,
{
    /// A server without listeners.
    pub fn new(service: S, limits: Limits, metrics: ServerMetrics) -> Self {
        Self {
            service,
            requests: Arc::new(Semaphore::new(limits.requests)),
            admission: Admission::new(&limits),
            limits,
            metrics,
            rejection_log: Arc::new(Throttle::new(Duration::from_secs(10))),
        }
    }

    /// Serves a connection that this process opened itself, until it ends. After
    /// `shutdown.graceful` a running request may still end: within `shutdown_grace`, and until
    /// `shutdown.hard`. The peer has the role of the client, and every limit applies as to an
    /// accepted connection.
    ///
    /// # Errors
    /// The kernel refuses to use the stream without blocking.
    pub async fn serve_opened(
        &self,
        stream: std::net::TcpStream,
        tls: Arc<TlsAcceptor>,
        shutdown: &Shutdown,
    ) -> std::io::Result<ConnectionEnd> {
        stream.set_nonblocking(true)?;
        let peer = stream.peer_addr()?;
        let stream = TcpStream::from_std(stream)?;
        let Some(ticket) = self.admission.admit(peer.ip()) else {
            self.metrics.dropped.inc();
            return Ok(ConnectionEnd::Aborted);
        };
        let cut = CancellationToken::new();
        let connection = Connection {
            server: self.clone(),
            peer,
            ticket,
            graceful: shutdown.graceful.clone(),
            cut: cut.clone(),
        };
        let run = connection.run(stream, Transport::Tls(tls));
        tokio::pin!(run);
        let grace = async {
            shutdown.graceful.cancelled().await;
            tokio::select! {
                () = tokio::time::sleep(self.limits.shutdown_grace) => {}
                () = shutdown.hard.cancelled() => {}
            }
        };
        tokio::select! {
            end = run.as_mut() => return Ok(end),
            () = grace => cut.cancel(),
        }
        Ok(run.await)
    }

    /// Accepts connections until `shutdown.graceful`, then waits for running requests: at most
    /// `shutdown_grace`, and until `shutdown.hard`. Returns how many connections were aborted.
    pub async fn serve(self, listener: TcpListener, transport: Transport, shutdown: Shutdown) -> usize {
        let tasks = TaskTracker::new();
        let cut = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.graceful.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of files or memory: the connection stays in the queue, so a loop without
                    // a pause would spin.
                    if let Some(held) = self.rejection_log.pass(Instant::now()) {
                        tracing::warn!(%error, held, "cannot accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Some(transport) = transport.of(&stream) else {
                tracing::debug!(%peer, "connection closed: this address is not served");
                continue;
            };
            // The loop never waits for a slot: a client with all slots would block it.
            let Some(ticket) = self.admission.admit(peer.ip()) else {
                self.metrics.dropped.inc();
                self.log_rejected(peer, "connection closed", "all connections are busy");
                continue;
            };
            let connection = Connection {
                server: self.clone(),
                peer,
                ticket,
                graceful: shutdown.graceful.clone(),
                cut: cut.clone(),
            };
            tasks.spawn(connection.run(stream, transport));
        }
        drop(listener);
        tasks.close();
        tokio::select! {
            () = tasks.wait() => return 0,
            () = tokio::time::sleep(self.limits.shutdown_grace) => {}
            () = shutdown.hard.cancelled() => {}
        }
        let left = tasks.len();
        cut.cancel();
        tasks.wait().await;
        left
    }
}

impl<S> Server<S> {
    fn log_rejected(&self, peer: SocketAddr, what: &str, reason: &str) {
        if let Some(held) = self.rejection_log.pass(Instant::now()) {
            tracing::warn!(%peer, reason, held, "{what}");
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client was authorised, and then either side closed the connection.
    Served,
    /// The client showed no valid certificate, or sent nothing in time; why.
    NoClient(String),
    /// The client's certificate is valid and not authorised; why.
    Unauthorised(String),
    /// This process closed it: it stops, or needed the slot.
    Aborted,
}

struct Connection<S> {
    server: Server<S>,
    peer: SocketAddr,
    ticket: Ticket,
    graceful: CancellationToken,
    cut: CancellationToken,
}

impl<S> Connection<S>
where
    S: HttpService<Future: 'static>,
{
    async fn run(self, stream: TcpStream, transport: Transport) -> ConnectionEnd {
        self.server.metrics.accepted.inc();
        self.server.metrics.open.inc();
        let end = tokio::select! {
            () = self.cut.cancelled() => ConnectionEnd::Aborted,
            () = self.ticket.is_taken() => {
                self.server.metrics.dropped.inc();
                ConnectionEnd::Aborted
            }
            () = self.stays_new() => self.handshake_failed("the client did not send a request in time"),
            end = self.negotiate(stream, transport) => end,
        };
        self.server.metrics.open.dec();
        end
    }

    /// Returns when the client has not proved its identity, or sent a request, in time.
    async fn stays_new(&self) {
        let limits = &self.server.limits;
        tokio::time::sleep(limits.first_byte_timeout + limits.handshake_timeout).await;
        if !self.ticket.is_new() {
            std::future::pending::<()>().await;
        }
    }

    async fn negotiate(&self, stream: TcpStream, transport: Transport) -> ConnectionEnd {
        // Responses are written in one piece; waiting to fill a segment only adds latency.
        drop(stream.set_nodelay(true));
        // Also ready if the client has disconnected, which the next read detects.
        let limit = self.server.limits.first_byte_timeout;
        tokio::select! {
            () = self.graceful.cancelled() => return ConnectionEnd::Aborted,
            ready = tokio::time::timeout(limit, stream.readable()) => if ready.is_err() {
                return self.handshake_failed("the client sent nothing");
            },
        }
        match transport {
            Transport::Plain => {
                self.http(stream, None).await;
                ConnectionEnd::Served
            }
            // Resolved when the connection was accepted.
            Transport::ByAddress(_) => ConnectionEnd::Aborted,
            Transport::Tls(acceptor) => {
                let config = acceptor.config(Instant::now());
                let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
                let limit = self.server.limits.handshake_timeout;
                let stream = tokio::select! {
                    () = self.graceful.cancelled() => return ConnectionEnd::Aborted,
                    result = tokio::time::timeout(limit, handshake) => match result {
                        Ok(Ok(stream)) => stream,
                        Ok(Err(error)) => return self.handshake_failed(&error.to_string()),
                        Err(_) => return self.handshake_failed("the client did not finish the handshake in time"),
                    },
                };
                match acceptor.authorise(stream.get_ref().1.peer_certificates()) {
                    Ok(client) => {
                        tracing::debug!(peer = %self.peer, client, "connected");
                        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                        let names = certificate.map(peer_names);
                        if names.is_some() {
                            self.ticket.idle();
                        }
                        self.http(stream, names).await;
                        ConnectionEnd::Served
                    }
                    Err(reason) => {
                        self.server.metrics.unauthorised.inc();
                        self.server
                            .log_rejected(self.peer, "the client is not authorized", &reason);
                        ConnectionEnd::Unauthorised(reason)
                    }
                }
            }
        }
    }

    fn handshake_failed(&self, reason: &str) -> ConnectionEnd {
        self.server.metrics.handshake_failures.inc();
        self.server
            .log_rejected(self.peer, "connection closed before its first request", reason);
        ConnectionEnd::NoClient(reason.to_owned())
    }

    /// The service for this connection; `names` are those of the client's certificate.
    fn guarded(&self, names: Option<Vec<String>>) -> Guarded<S> {
        Guarded {
            client: Arc::new(RequestPeer {
                address: self.peer,
                names,
            }),
            ticket: self.ticket.clone(),
            service: self.server.service.clone(),
            requests: Arc::clone(&self.server.requests),
            timeout: self.server.limits.request_timeout,
            metrics: self.server.metrics.clone(),
        }
    }

    async fn http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        names: Option<Vec<String>>,
    ) {
        let io = TokioIo::new(WriteDeadline::new(stream, self.server.limits.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.server.limits.idle_timeout)
            .max_buf_size(16 * 1024)
            .serve_connection(io, self.guarded(names));
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.graceful.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %self.peer, %error, "connection ended early");
        }
    }
}
