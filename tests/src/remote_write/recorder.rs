//! A receiver that records requests and answers as a test says.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime::Runtime};
use virtfleet_remote_write::{
    Compression, MAX_MESSAGE_BYTES, decode_v1, decode_v2, decompress,
    message::{v1, v2},
};

/// A received request.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as received.
    pub body: Bytes,
    /// Number of the TCP connection, from 0.
    pub connection: usize,
}

impl Recorded {
    /// A header's value, empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    /// The message, uncompressed.
    pub fn message(&self) -> Result<Vec<u8>> {
        let compression = match self.header("content-encoding") {
            "snappy" => Compression::Snappy,
            "zstd" => Compression::Zstd,
            other => anyhow::bail!("content-encoding {other:?}"),
        };
        Ok(decompress(compression, &self.body, MAX_MESSAGE_BYTES)?)
    }

    /// The message of 2.0.
    pub fn v2(&self) -> Result<v2::Request> {
        Ok(decode_v2(&self.message()?)?)
    }

    /// The message of 1.0.
    pub fn v1(&self) -> Result<v1::WriteRequest> {
        Ok(decode_v1(&self.message()?)?)
    }
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Bytes,
}

impl Reply {
    /// An answer without headers and body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Adds the header with the number of written samples.
    #[must_use]
    pub fn written(self, samples: u64) -> Self {
        self.header("x-prometheus-remote-write-samples-written", samples)
    }
}

/// Chooses the answer by the request's number, from 0, and the request; none closes the connection.
type Answering = dyn Fn(usize, &Recorded) -> Option<Reply> + Send + Sync;

/// A receiver on a port of its own. Dropping it ends it.
pub struct Recorder {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<Recorded>>>,
    runtime: Option<Runtime>,
}

impl Recorder {
    /// Starts it.
    pub fn start(answer: impl Fn(usize, &Recorded) -> Option<Reply> + Send + Sync + 'static) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::clone(&recorded), Arc::new(answer)));
        Ok(Self {
            address,
            recorded,
            runtime: Some(runtime),
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.recorded_from(0)
    }

    /// All requests so far, except the first `count`.
    pub fn recorded_from(&self, count: usize) -> Vec<Recorded> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get(count..).unwrap_or_default().to_vec()
    }

    /// The last request.
    pub fn last(&self) -> Result<Recorded> {
        self.recorded().pop().context("no request")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may drop it within another runtime, where waiting is forbidden.
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, recorded: Arc<Mutex<Vec<Recorded>>>, answer: Arc<Answering>) {
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let (recorded, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
        let service = service_fn(move |request| {
            let (recorded, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
            async move { respond(request, connection, &recorded, &*answer).await }
        });
        tokio::spawn(async move {
            // A request without an answer ends the connection with an error.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the test closes the connection")
    }
}

impl std::error::Error for Closed {}

async fn respond(
    request: Request<Incoming>,
    connection: usize,
    recorded: &Mutex<Vec<Recorded>>,
    answer: &Answering,
) -> Result<Response<Full<Bytes>>, Closed> {
    let (head, body) = request.into_parts();
    let one = Recorded {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await.map_err(|_| Closed)?.to_bytes(),
        connection,
    };
    let reply = {
        let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = answer(recorded.len(), &one);
        recorded.push(one);
        reply.ok_or(Closed)?
    };
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    response.body(Full::new(reply.body)).map_err(|_| Closed)
}
