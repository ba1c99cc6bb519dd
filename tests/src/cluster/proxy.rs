//! Injects faults between a collector and an API server: a proxy that forwards requests, answers
//! them itself, or holds them.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{ApiServer, User};
use crate::pki::Authority;

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The proxy answers with this status code; the request never reaches the API server.
    Answer(u16),
    /// The proxy answers with this status code and an endless body.
    Flood(u16),
    /// The proxy holds the request until the faults change.
    Hold,
}

type Faults = Arc<Vec<(String, Fault)>>;

/// A running proxy; it stops when dropped.
pub struct Proxy {
    address: SocketAddr,
    ca: String,
    faults: watch::Sender<Faults>,
    _runtime: Runtime,
}

struct Ways {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    server: SocketAddr,
}

impl Proxy {
    /// Starts a proxy for `server`, without faults.
    pub fn start(server: &ApiServer) -> Result<Self> {
        let authority = Authority::new("proxy")?;
        let runtime = Runtime::new().context("runtime")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (chain, key) = authority.server("proxy", address.ip())?.der();
        let provider = Arc::new(ring::default_provider());
        let ours = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes())?)?;
        let theirs = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let url = server.url();
        let host = url.strip_prefix("https://").context("https")?;
        let ways = Arc::new(Ways {
            acceptor: TlsAcceptor::from(Arc::new(ours)),
            connector: TlsConnector::from(Arc::new(theirs)),
            server: host.parse()?,
        });
        let (faults, rules) = watch::channel(Faults::default());
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (ways, rules) = (Arc::clone(&ways), rules.clone());
                // The client sees whatever breaks a connection.
                tokio::spawn(async move { carry(client, &ways, rules).await.ok() });
            }
        });
        Ok(Self {
            address,
            ca: authority.pem(),
            faults,
            _runtime: runtime,
        })
    }

    /// The kubeconfig of a user whose requests pass through the proxy.
    pub fn kubeconfig(&self, user: &User) -> String {
        user.kubeconfig(&format!("https://{}", self.address), &self.ca)
    }

    /// Sets the faults: a request whose path and query contain a text gets its fault; the first
    /// match wins. If there is any fault, open connections are closed, so that no old watch
    /// continues.
    pub fn set(&self, faults: &[(&str, Fault)]) {
        let faults = faults.iter().map(|(text, fault)| ((*text).to_owned(), *fault));
        self.faults.send_replace(Arc::new(faults.collect()));
    }
}

async fn carry(client: TcpStream, ways: &Ways, mut rules: watch::Receiver<Faults>) -> Result<()> {
    rules.borrow_and_update();
    let mut client = ways.acceptor.accept(client).await?;
    let server = TcpStream::connect(ways.server).await?;
    let name = ServerName::from(ways.server.ip());
    let mut server = ways.connector.connect(name, server).await?;
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let chunk = &up[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                loop {
                    let faults = Arc::clone(&rules.borrow_and_update());
                    match fault_of(chunk, &faults) {
                        None => break,
                        Some(Fault::Answer(code)) => return answer(&mut client, code).await,
                        Some(Fault::Flood(code)) => return flood(&mut client, code).await,
                        Some(Fault::Hold) => rules.changed().await?,
                    }
                }
                server.write_all(chunk).await?;
                server.flush().await?;
            }
            read = server.read(&mut down) => {
                let chunk = &down[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                client.write_all(chunk).await?;
                client.flush().await?;
            }
            changed = rules.changed() => {
                changed?;
                if !rules.borrow_and_update().is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// The fault of a request that begins with this chunk. A body is never mistaken for a header,
/// because it is JSON.
fn fault_of(chunk: &[u8], faults: &Faults) -> Option<Fault> {
    let line = chunk.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let target = line.strip_suffix(" HTTP/1.1")?.split(' ').nth(1)?;
    let found = faults.iter().find(|(text, _)| target.contains(text.as_str()));
    found.map(|(_, fault)| *fault)
}

/// Sends an endless response.
async fn flood(client: &mut (impl AsyncWrite + Unpin), code: u16) -> Result<()> {
    let head =
        format!("HTTP/1.1 {code} Flood\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).await?;
    let body = vec![b' '; 1 << 16];
    loop {
        client.write_all(&body).await?;
    }
}

async fn answer(client: &mut (impl AsyncWrite + Unpin), code: u16) -> Result<()> {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "a fault of the test", "code": code,
    });
    let body = body.to_string();
    let text = format!(
        "HTTP/1.1 {code} Fault\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(text.as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_by_the_path_and_a_body_has_none() {
        let faults: Faults = Arc::new(vec![("/nodes".to_owned(), Fault::Answer(500))]);
        let of = |text: &str| fault_of(text.as_bytes(), &faults);
        assert_eq!(
            of("GET /api/v1/nodes?watch=true HTTP/1.1\r\nhost: h\r\n\r\n"),
            Some(Fault::Answer(500))
        );
        assert_eq!(of("GET /api/v1/pods HTTP/1.1\r\nhost: h\r\n\r\n"), None);
        assert_eq!(of("{\"metadata\": \"/nodes HTTP/1.1\"}"), None);
    }
}
