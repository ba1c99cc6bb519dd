//! A small HTTP(S) client for tests and benchmarks, with one persistent connection, as a scraper
//! has.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{HeaderMap, Request, StatusCode, client::conn::http1::SendRequest, header};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Runtime,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::pki::AGENT_DNS;

/// Maximum size of an answer in bytes.
const LARGEST: usize = 64 * 1024 * 1024;

/// An HTTP response.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as received (still compressed, if so).
    pub body: Bytes,
}

impl Answer {
    /// The body as text; it must be UTF-8.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).context("the body is not UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        let start = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {start}"))
    }

    /// The answer if its status is 200, else an error that quotes it.
    pub fn ok(self) -> Result<Self> {
        let start = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
        ensure!(self.status == StatusCode::OK, "{}: {start}", self.status);
        Ok(self)
    }
}

/// A connection to one server, for threads that are not async.
pub struct Client {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    host: String,
    deadline: Duration,
}

impl Client {
    /// Connects without TLS. `deadline` applies to the connection and to each answer.
    pub fn plain(address: SocketAddr, deadline: Duration) -> Result<Self> {
        Self::connect(address, None, deadline)
    }

    /// Connects with TLS to an agent, whose certificate must contain the agents' DNS name.
    pub fn tls(address: SocketAddr, config: Arc<ClientConfig>, deadline: Duration) -> Result<Self> {
        Self::connect(address, Some(config), deadline)
    }

    /// As [`Client::tls`], over a connection that the agent opened.
    pub fn over(stream: std::net::TcpStream, config: Arc<ClientConfig>, deadline: Duration) -> Result<Self> {
        let address = stream.peer_addr()?;
        stream.set_nonblocking(true)?;
        Self::with(address, deadline, async {
            secure(TcpStream::from_std(stream)?, address, Some(config)).await
        })
    }

    fn connect(address: SocketAddr, tls: Option<Arc<ClientConfig>>, deadline: Duration) -> Result<Self> {
        Self::with(address, deadline, async {
            let stream = TcpStream::connect(address).await;
            secure(
                stream.with_context(|| format!("connect to {address}"))?,
                address,
                tls,
            )
            .await
        })
    }

    fn with(
        address: SocketAddr,
        deadline: Duration,
        opening: impl Future<Output = Result<SendRequest<Full<Bytes>>>>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let sender = runtime.block_on(async {
            timeout(deadline, opening)
                .await
                .with_context(|| format!("{address}: no answer in {deadline:?}"))?
        });
        Ok(Self {
            runtime,
            sender: sender?,
            host: address.to_string(),
            deadline,
        })
    }

    /// Sends a GET request for `path`, e.g. `/metrics`.
    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.get_with(path, &[])
    }

    /// Sends a GET request for `path` with further headers.
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        let mut request = Request::get(path).header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(path, request.body(Full::default())?)
    }

    /// Sends a GET request and reads the text of its response until it ends, or until `is_last` of
    /// the text so far. The deadline applies to the whole response.
    pub fn stream(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        mut is_last: impl FnMut(&str) -> bool,
    ) -> Result<(StatusCode, String)> {
        let mut request = Request::get(path).header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::default())?;
        let sender = &mut self.sender;
        let mut text = String::new();
        let exchange = async {
            sender.ready().await?;
            let (head, mut body) = sender.send_request(request).await?.into_parts();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                text.push_str(std::str::from_utf8(&data).context("the stream is not UTF-8")?);
                ensure!(text.len() <= LARGEST, "the stream is too long");
                if is_last(&text) {
                    break;
                }
            }
            Ok::<_, anyhow::Error>(head.status)
        };
        let deadline = self.deadline;
        let status = self.runtime.block_on(async { timeout(deadline, exchange).await });
        let status = status.with_context(|| format!("{path}: no end in {deadline:?}: {text}"))?;
        Ok((status?, text))
    }

    /// Sends a POST request with a JSON body.
    pub fn post(&mut self, path: &str, body: &impl serde::Serialize) -> Result<Answer> {
        let body = serde_json::to_vec(body)?;
        let request = Request::post(path).header(header::HOST, &self.host);
        self.send(path, request.body(Full::from(body))?)
    }

    /// Sends a POST request with a body of any kind and these headers.
    pub fn post_bytes(&mut self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Answer> {
        let mut request = Request::post(path).header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(path, request.body(Full::from(body))?)
    }

    fn send(&mut self, path: &str, request: Request<Full<Bytes>>) -> Result<Answer> {
        let sender = &mut self.sender;
        let exchange = async {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, LARGEST)
                .collect()
                .await
                .map_err(|error| anyhow::anyhow!(error))?;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
            })
        };
        let deadline = self.deadline;
        self.runtime
            .block_on(async { timeout(deadline, exchange).await })
            .with_context(|| format!("{}{path}: no answer in {deadline:?}", self.host))?
            .map_err(|error: anyhow::Error| error.context(format!("{}{path}", self.host)))
    }
}

async fn secure(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
) -> Result<SendRequest<Full<Bytes>>> {
    stream.set_nodelay(true)?;
    match tls {
        None => shake(stream).await,
        Some(config) => {
            let name = ServerName::try_from(AGENT_DNS)?;
            let stream = TlsConnector::from(config).connect(name, stream).await;
            shake(stream.with_context(|| format!("TLS with {address}"))?).await
        }
    }
}

async fn shake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with its client's runtime; the pending request receives any error of the
    // connection.
    drop(tokio::spawn(connection));
    Ok(sender)
}
