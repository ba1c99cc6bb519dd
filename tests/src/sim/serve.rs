//! The listeners of a simulated fleet: one for each guest, TLS 1.3 with client certificates, and
//! the faults.

use std::{
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Runtime,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use virtfleet_runtime::http::Limits;
use virtfleet_wire::{
    exposition::{CONTENT_TYPE, Page},
    finding::{Finding, Severity},
};

use super::{
    fault::{Fault, LATE},
    model::Model,
    page::write_page,
    plan::{Guest, Plan},
    report::guest_report,
    trouble::{Drip, Endless},
};
use crate::pki::Authority;

/// A running fleet. Dropping it ends it.
pub struct Fleet {
    // Held for its drop: the runtime owns every task.
    runtime: Option<Runtime>,
    counts: Arc<Counts>,
    asked: Vec<Asked>,
}

/// Times of a guest's report requests.
type Asked = Arc<Mutex<Vec<Instant>>>;

/// Request counters of the fleet.
#[derive(Debug, Default)]
struct Counts {
    pages: AtomicU64,
    reports: AtomicU64,
}

/// One guest's agent.
struct Agent {
    guest: Guest,
    model: Model,
    acceptor: TlsAcceptor,
    started: Instant,
    seq: AtomicU64,
    counts: Arc<Counts>,
    asked: Asked,
    /// The guest whose UUID and boot id it claims.
    victim: Guest,
}

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// The limits of the real agent's server.
fn patience() -> Limits {
    Limits::default()
}

impl Fleet {
    /// Listens for every guest of `plan`, with certificates of `authority`.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub fn start(plan: &Plan, authority: &Authority) -> Result<Self> {
        let stranger = Authority::new("untrusted authority")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("fleet-sim")
            .enable_all()
            .build()
            .context("runtime of the fleet")?;
        let counts = Arc::new(Counts::default());
        let started = Instant::now();
        let mut all_asked = Vec::new();
        for guest in &plan.guests {
            let shown = match guest.fault {
                Some(Fault::WrongVm) => &plan.guests[(guest.index + 1) % plan.guests.len()],
                _ => guest,
            };
            let issuer = if guest.fault == Some(Fault::WrongCa) {
                &stranger
            } else {
                authority
            };
            let certificate = issuer.agent(&shown.cluster, &shown.name, &shown.uid)?;
            let acceptor = TlsAcceptor::from(authority.server_config(&certificate)?);
            let listener = {
                let _entered = runtime.enter();
                listen(guest.address)
                    .with_context(|| format!("listen on {} for {}", guest.address, guest.name))?
            };
            let asked = Asked::default();
            all_asked.push(Arc::clone(&asked));
            let agent = Agent {
                asked,
                victim: plan.guests[0].clone(),
                guest: guest.clone(),
                model: Model::new(guest),
                acceptor,
                started,
                seq: AtomicU64::new(0),
                counts: Arc::clone(&counts),
            };
            runtime.spawn(accept(listener, Arc::new(agent)));
        }
        Ok(Self {
            runtime: Some(runtime),
            counts,
            asked: all_asked,
        })
    }

    /// Times at which the report of the guest with this index was requested, in order.
    pub fn asked(&self, index: usize) -> Vec<Instant> {
        let asked = self
            .asked
            .get(index)
            .map(|asked| asked.lock().map(|asked| asked.clone()));
        asked.and_then(Result::ok).unwrap_or_default()
    }

    /// Number of requests for metrics pages so far.
    pub fn pages(&self) -> u64 {
        self.counts.pages.load(Ordering::Relaxed)
    }

    /// Number of requests for reports so far.
    pub fn reports(&self) -> u64 {
        self.counts.reports.load(Ordering::Relaxed)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Shut down in the background: waiting would panic within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Raises this process's limit of open files to the maximum and returns it: each guest needs a
/// listener and connections.
pub fn raise_file_limit() -> Result<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raise the limit of open files")?;
    Ok(most)
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

async fn accept(listener: TcpListener, agent: Arc<Agent>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, Arc::clone(&agent)))),
            // No file descriptor left, or the peer has disconnected: this guest tries again, others
            // continue.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(stream: TcpStream, agent: Arc<Agent>) {
    if agent.guest.fault == Some(Fault::Silent) {
        // Held open until the peer closes the connection; input is discarded.
        while stream.readable().await.is_ok() {
            let mut sink = [0_u8; 512];
            match stream.try_read(&mut sink) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        return;
    }
    drop(stream.set_nodelay(true));
    let Ok(Ok(stream)) = timeout(patience().handshake_timeout, agent.acceptor.accept(stream)).await else {
        return;
    };
    match agent.guest.fault {
        Some(Fault::Continue) => {
            return flood(stream, "", "HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        Some(Fault::Headers) => {
            return flood(stream, "HTTP/1.1 200 OK\r\n", "x-header: a value\r\n").await;
        }
        _ => {}
    }
    let service = service_fn(move |request| {
        let answer = agent.answer(&request);
        async { answer }
    });
    // A client that disconnects early is not an error here.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience().idle_timeout)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    drop(served);
}

/// Sends `first`, then `line` repeatedly until the peer disconnects.
async fn flood(mut stream: impl AsyncWrite + Unpin, first: &str, line: &str) {
    let many = line.repeat(1000).into_bytes();
    if stream.write_all(first.as_bytes()).await.is_err() {
        return;
    }
    while stream.write_all(&many).await.is_ok() {}
}

impl Agent {
    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Body>, hyper::http::Error> {
        let gzip = request
            .headers()
            .get(header::ACCEPT_ENCODING)
            .is_some_and(|value| value.to_str().is_ok_and(|text| text.contains("gzip")));
        let path = request.uri().path();
        match path {
            "/metrics" => self.counts.pages.fetch_add(1, Ordering::Relaxed),
            "/v1/report" => {
                if let Ok(mut asked) = self.asked.lock() {
                    asked.push(Instant::now());
                }
                self.counts.reports.fetch_add(1, Ordering::Relaxed)
            }
            _ => 0,
        };
        match (self.guest.fault, path) {
            (Some(Fault::Http500), _) => full(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                "something broke\n",
            ),
            (Some(Fault::Garbage), _) => full(
                StatusCode::OK,
                CONTENT_TYPE,
                "<html>\u{1}not what you asked for\n{{{\n",
            ),
            (Some(Fault::Endless), "/metrics") => {
                body(StatusCode::OK, CONTENT_TYPE, Endless::default().boxed_unsync())
            }
            (Some(Fault::Slow), "/metrics") => drip(CONTENT_TYPE, self.page()),
            (Some(Fault::Slow), "/v1/report") => drip("application/json", self.report()),
            (Some(Fault::Late), "/metrics") => spread(CONTENT_TYPE, self.page()),
            (Some(Fault::Late), "/v1/report") => spread("application/json", self.report()),
            (Some(Fault::Findings), "/v1/report") => full(StatusCode::OK, "application/json", findings()),
            (Some(Fault::Claims), "/v1/report") => full(StatusCode::OK, "application/json", self.claims()),
            (Some(Fault::Redirect), "/metrics") => redirect(),
            (Some(Fault::Forge), "/metrics") => full(StatusCode::OK, CONTENT_TYPE, self.forged()),
            (Some(Fault::Echo), "/v1/report") => full(StatusCode::OK, "application/json", echo()),
            (Some(Fault::Sections), "/v1/report") => full(StatusCode::OK, "application/json", sections()),
            (Some(Fault::HugeReport), "/v1/report") => full(StatusCode::OK, "application/json", huge()),
            (_, "/metrics") if gzip => zipped(&self.page()),
            (_, "/metrics") => full(StatusCode::OK, CONTENT_TYPE, self.page()),
            (_, "/v1/report") => full(StatusCode::OK, "application/json", self.report()),
            (_, "/healthz" | "/readyz") => full(StatusCode::OK, "text/plain", "ok\n"),
            _ => full(StatusCode::NOT_FOUND, "text/plain", "there is no such path\n"),
        }
    }

    fn page(&self) -> Bytes {
        if let Some(page) = self.guest.page {
            return Bytes::from_static(page.as_bytes());
        }
        let mut page = Page::new();
        write_page(
            &mut page,
            &self.guest,
            &self.model,
            self.started.elapsed().as_secs_f64(),
            now(),
        );
        Bytes::copy_from_slice(page.as_bytes())
    }

    /// Its own page, plus series that would join as another VM's placement.
    fn forged(&self) -> Bytes {
        let mut page = self.page().to_vec();
        page.extend_from_slice(
            b"virtfleet_vm_placement_info{cluster=\"cluster-a\",namespace=\"cluster-a\",name=\"worker-0\",zone=\"forged\"} 1\n\
              virtfleet_guest_forged 1 1700000000000\n",
        );
        Bytes::from(page)
    }

    /// A report with another VM's identity, and with findings that only the collector reports.
    fn claims(&self) -> Bytes {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let elapsed = self.started.elapsed().as_secs_f64();
        let mut report = guest_report(&self.victim, &self.model, elapsed, now(), seq);
        let subject = format!("{}/{}", self.victim.cluster, self.victim.name);
        report.findings = (0..100)
            .map(|number| {
                let id = format!("identity-uuid-mismatch-{number}");
                Finding::new(
                    &id,
                    Severity::Critical,
                    ("VM", &subject),
                    "Forged",
                    "\u{7f}".repeat(1000),
                )
            })
            .collect();
        report
            .to_json_within_limit()
            .map_or_else(|error| Bytes::from(error.to_string()), Bytes::from)
    }

    fn report(&self) -> Bytes {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let elapsed = self.started.elapsed().as_secs_f64();
        let report = guest_report(&self.guest, &self.model, elapsed, now(), seq);
        report
            .to_json_within_limit()
            .map_or_else(|error| Bytes::from(error.to_string()), Bytes::from)
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The beginning of a report, followed by 10 MiB.
fn huge() -> Bytes {
    let mut text =
        b"{\"apiVersion\":\"report.virtfleet.io/v1\",\"kind\":\"GuestReport\",\"bootId\":\"".to_vec();
    text.resize(10 * 1024 * 1024, b'x');
    text.extend_from_slice(b"\"}");
    Bytes::from(text)
}

/// A redirect to the URL of the fleet page, as if the guest were trusted.
fn redirect() -> Result<Response<Body>, hyper::http::Error> {
    let mut response = full(StatusCode::FOUND, "text/plain", "")?;
    response
        .headers_mut()
        .insert(header::LOCATION, header::HeaderValue::from_static("/v1/report"));
    Ok(response)
}

/// The beginning of a report with 250 KiB of control characters as its version.
fn echo() -> Bytes {
    let version = "\u{7f}".repeat(250 * 1024);
    Bytes::from(format!(
        "{{\"kind\":\"GuestReport\",\"apiVersion\":\"{version}\"}}"
    ))
}

/// A report of 20,000 empty sections.
fn sections() -> Bytes {
    let all: Vec<_> = (0..20_000).map(|n| format!("\"{n}\":{{}}")).collect();
    Bytes::from(format!(
        "{{\"apiVersion\":\"report.virtfleet.io/v1\",\"kind\":\"GuestReport\",\"sections\":{{{}}}}}",
        all.join(",")
    ))
}

/// A report of 20,000 empty findings.
fn findings() -> Bytes {
    let all = vec!["{}"; 20_000].join(",");
    Bytes::from(format!(
        "{{\"apiVersion\":\"report.virtfleet.io/v1\",\"kind\":\"GuestReport\",\"findings\":[{all}]}}"
    ))
}

fn zipped(text: &[u8]) -> Result<Response<Body>, hyper::http::Error> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(8 * 1024), Compression::fast());
    let bytes = encoder
        .write_all(text)
        .and_then(|()| encoder.finish())
        .unwrap_or_default();
    let mut response = full(StatusCode::OK, CONTENT_TYPE, bytes)?;
    response
        .headers_mut()
        .insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    Ok(response)
}

fn drip(kind: &str, bytes: Bytes) -> Result<Response<Body>, hyper::http::Error> {
    body(StatusCode::OK, kind, Drip::new(bytes).boxed_unsync())
}

fn spread(kind: &str, bytes: Bytes) -> Result<Response<Body>, hyper::http::Error> {
    body(StatusCode::OK, kind, Drip::spread(bytes, LATE).boxed_unsync())
}

fn full(
    status: StatusCode,
    kind: &str,
    bytes: impl Into<Bytes>,
) -> Result<Response<Body>, hyper::http::Error> {
    body(status, kind, Full::new(bytes.into()).boxed_unsync())
}

fn body(status: StatusCode, kind: &str, body: Body) -> Result<Response<Body>, hyper::http::Error> {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(body)
}
