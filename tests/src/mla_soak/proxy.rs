//! A TCP proxy in front of a receiver, which fails as a network or an overloaded receiver does.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::watch,
};

/// Maximum bytes of a request that is answered by the proxy itself.
const MAX_REQUEST_BYTES: usize = 64 << 20;
/// Time after which a connection with [`ProxyMode::Slow`] is closed, whatever it transfers.
const SLOW_CONNECTION: Duration = Duration::from_millis(40);

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyMode {
    /// Passes everything on.
    Pass,
    /// Closes each connection at once.
    Cut,
    /// Accepts connections and passes nothing on.
    Stall,
    /// Passes a request on and loses its answer: the receiver has stored it, and gets it again.
    LoseAnswer,
    /// Passes a connection on for 40 ms, so that requests or their answers are lost on the way.
    Slow,
    /// Answers each request with this status, and `Retry-After: 1`.
    Status(u16),
}

/// What a proxy does with requests beside passing them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// Nothing.
    Plain,
    /// As a gateway that names the tenant by its header `X-Scope-OrgID`: `VictoriaMetrics` adds the
    /// label `tenant` with the header's value to each series. A request without it gets none.
    TenantByHeader,
}

/// A running proxy. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Proxy {
    /// Where it listens.
    pub(super) address: SocketAddr,
    mode: watch::Sender<ProxyMode>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Starts a proxy in front of `receiver`.
    pub(super) fn start(receiver: SocketAddr, kind: ProxyKind) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("mla-proxy")
            .enable_all()
            .build()
            .context("runtime of the proxy")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (mode, watched) = watch::channel(ProxyMode::Pass);
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((client, _)) => drop(tokio::spawn(connection(
                        client,
                        (receiver, kind),
                        watched.clone(),
                    ))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Ok(Self {
            address,
            mode,
            runtime: Some(runtime),
        })
    }

    /// Changes the mode. Open connections are closed, also in the middle of a request.
    pub(super) fn set(&self, mode: ProxyMode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves a connection until the mode changes. An error closes it, as the end of a peer does.
async fn connection(
    client: TcpStream,
    receiver: (SocketAddr, ProxyKind),
    mut mode: watch::Receiver<ProxyMode>,
) {
    let current = *mode.borrow_and_update();
    tokio::select! {
        _ = mode.changed() => {}
        _ = serve(client, receiver, current) => {}
    }
}

async fn serve(
    mut client: TcpStream,
    (receiver, kind): (SocketAddr, ProxyKind),
    mode: ProxyMode,
) -> Result<()> {
    match mode {
        ProxyMode::Pass => pass(client, receiver, kind).await?,
        ProxyMode::Cut => {}
        ProxyMode::Stall => std::future::pending().await,
        ProxyMode::Slow => {
            tokio::time::timeout(SLOW_CONNECTION, pass(client, receiver, kind)).await??;
        }
        ProxyMode::LoseAnswer => {
            let mut server = TcpStream::connect(receiver).await?;
            let (mut answer, mut requests) = server.split();
            let (mut from_client, _) = client.split();
            tokio::select! {
                _ = forward(&mut from_client, &mut requests, kind) => {}
                _ = answer.read_u8() => {}
            }
        }
        ProxyMode::Status(status) => {
            read_request(&mut client).await?;
            let answer = format!(
                "HTTP/1.1 {status} Fault\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            client.write_all(answer.as_bytes()).await?;
            client.shutdown().await?;
        }
    }
    Ok(())
}

/// Passes requests and answers on until one side ends.
async fn pass(mut client: TcpStream, receiver: SocketAddr, kind: ProxyKind) -> Result<()> {
    let mut server = TcpStream::connect(receiver).await?;
    if kind == ProxyKind::Plain {
        copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    let (mut answers, mut requests) = server.split();
    let (mut from_client, mut to_client) = client.split();
    tokio::select! {
        forwarded = forward(&mut from_client, &mut requests, kind) => forwarded,
        copied = tokio::io::copy(&mut answers, &mut to_client) => Ok(copied.map(drop)?),
    }
}

/// Passes requests on.
async fn forward(
    client: &mut (impl AsyncRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
    kind: ProxyKind,
) -> Result<()> {
    if kind == ProxyKind::Plain {
        tokio::io::copy(client, server).await?;
        return Ok(());
    }
    let mut bytes = Vec::new();
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            let read = client.read_buf(&mut bytes).await?;
            anyhow::ensure!(bytes.len() < MAX_REQUEST_BYTES, "endless head");
            if read == 0 {
                return Ok(());
            }
            continue;
        };
        let rest = bytes.split_off(end + 4);
        let head = String::from_utf8(bytes)?;
        server.write_all(with_tenant(&head).as_bytes()).await?;
        let length: usize = header(&head, "content-length").unwrap_or("0").parse()?;
        server.write_all(&rest[..length.min(rest.len())]).await?;
        let left = length.saturating_sub(rest.len());
        tokio::io::copy(&mut client.take(left as u64), server).await?;
        bytes = rest.get(length..).unwrap_or_default().to_vec();
    }
}

/// The value of a header in the head of a request.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.trim())
}

/// The head of a request that makes `VictoriaMetrics` add the label `tenant`.
fn with_tenant(head: &str) -> String {
    match (header(head, "x-scope-orgid"), head.split_once(" HTTP/1.1")) {
        (Some(tenant), Some((line, rest))) => {
            format!("{line}?extra_label=tenant={tenant} HTTP/1.1{rest}")
        }
        _ => head.to_owned(),
    }
}

/// Reads a request with `Content-Length` completely.
async fn read_request(client: &mut TcpStream) -> Result<()> {
    let mut bytes = Vec::new();
    loop {
        let read = client.read_buf(&mut bytes).await?;
        anyhow::ensure!(read > 0 && bytes.len() < MAX_REQUEST_BYTES, "incomplete request");
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.unwrap_or("0").trim().parse()?;
        if bytes.len() >= end + 4 + length {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_header_names_the_tenant_of_each_request() {
        let request = |tenant: &str, body: &str| {
            format!(
                "POST /api/v1/write HTTP/1.1\r\nX-Scope-OrgID: {tenant}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let sent = request("a", "one\r\n\r\n") + &request("b", "") + "POST / HTTP/1.1\r\n\r\n";
        let mut passed = Vec::new();
        forward(&mut sent.as_bytes(), &mut passed, ProxyKind::TenantByHeader)
            .await
            .unwrap();
        let write = "POST /api/v1/write HTTP";
        let expected = sent.replacen(write, "POST /api/v1/write?extra_label=tenant=a HTTP", 1);
        let (first, second) = expected.split_at(expected.rfind(write).unwrap());
        let second = second.replacen(write, "POST /api/v1/write?extra_label=tenant=b HTTP", 1);
        assert_eq!(String::from_utf8(passed).unwrap(), format!("{first}{second}"));
    }
}
