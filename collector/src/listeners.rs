//! The sockets on which the collector listens.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use tokio::net::TcpListener;
use virtfleet_runtime::{http::Transport, process::raise_file_limit, tls::TlsAcceptor};

use crate::{ca::LoadedCa, config::CollectorConfig, credentials};

/// Open files beside those of agents that connect: clients, the inventory, pulls.
const OTHER_FILES: u64 = 2048;

/// The listener of the API, and whether it uses TLS: with the certificate of the settings, else
/// with one that `ca` issues.
///
/// # Errors
/// A key of the settings, with the address or file, and why it cannot be used.
pub(crate) async fn listen(
    config: &CollectorConfig,
    ca: Option<&LoadedCa>,
) -> anyhow::Result<(TcpListener, Transport)> {
    let server = &config.server;
    let issued = ca.and_then(LoadedCa::api_identity).map(TlsAcceptor::issued);
    let transport = match (credentials::server(server)?, issued.transpose()?) {
        (Some(tls), _) | (None, Some(tls)) => Transport::Tls(Arc::new(tls)),
        (None, None) if server.is_plain() => Transport::Plain,
        (None, None) => anyhow::bail!("server.tls.certificate and server.tls.key are not both set"),
    };
    let listener = bind("server.address", &server.address).await?;
    Ok((listener, transport))
}

/// The listener to which agents connect, if there is one.
///
/// # Errors
/// The address, and why it cannot be listened on.
pub(crate) async fn bind_ingest(config: &CollectorConfig) -> anyhow::Result<Option<TcpListener>> {
    let Some(ingest) = &config.ingest else {
        return Ok(None);
    };
    check_file_limit(ingest.max_connections);
    let listener = bind("ingest.address", &ingest.address).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, "agents may connect");
    Ok(Some(listener))
}

/// Warns if the limit on open files allows fewer connections than the settings.
fn check_file_limit(max_connections: u32) {
    let needed = OTHER_FILES + u64::from(max_connections);
    match raise_file_limit() {
        Ok(limit) if limit >= needed => {}
        Ok(limit) => tracing::warn!(
            limit,
            needed,
            "the limit on open files is too low for ingest.maxConnections; raise it, or lower the setting"
        ),
        Err(error) => tracing::warn!(%error, "the limit on open files cannot be raised"),
    }
}

/// The listener of probes, if there is one.
///
/// # Errors
/// The address, and why it cannot be listened on.
pub(crate) async fn bind_probes(config: &CollectorConfig) -> anyhow::Result<Option<TcpListener>> {
    match &config.server.probe_address {
        Some(address) => bind("server.probeAddress", address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(setting: &str, text: &str) -> anyhow::Result<TcpListener> {
    let address: SocketAddr = text.parse().with_context(|| format!("{setting}: {text:?}"))?;
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{setting}: cannot listen on {address}"))
}
