//! Runs the webhook until a signal.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use virtfleet_delivery::osc::AgentItems;
use virtfleet_runtime::{
    exit::Code,
    http::{Limits, Server, ServerMetrics, Transport},
    shutdown, telemetry,
    tls::{ClientRule, ServerTlsPaths, TlsAcceptor},
};
use virtfleet_wire::settings::LogSettings;

use super::{
    args::GardenerArgs,
    items::load,
    metrics::WebhookMetrics,
    server::{Webhook, limits, router},
};
use crate::{print::print_error, probes};

/// Validates the flags and the files that they name; prints each problem on standard error.
pub fn check(args: &GardenerArgs) -> Code {
    match prepare(args) {
        Ok(_) => Code::Ok,
        Err(code) => code,
    }
}

/// Runs the webhook until SIGTERM or SIGINT.
pub fn run(args: &GardenerArgs, log: &LogSettings) -> Code {
    if let Err(error) = telemetry::init(log) {
        print_error(&error.to_string());
    }
    let (items, tls) = match prepare(args) {
        Ok(prepared) => prepared,
        Err(code) => return code,
    };
    // One thread: a seed writes few OperatingSystemConfigs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .context("cannot start")
        .and_then(|runtime| runtime.block_on(serve(args, items, tls)));
    match ended {
        Ok(()) => Code::Ok,
        Err(error) => {
            print_error(&format!("{error:#}"));
            Code::Failure
        }
    }
}

/// The items and the certificate; prints each problem.
fn prepare(args: &GardenerArgs) -> Result<(AgentItems, TlsAcceptor), Code> {
    let items = load(args).map_err(|problems| {
        for problem in &problems {
            print_error(problem);
        }
        Code::Config
    })?;
    // Any client may ask: the response has nothing that the OperatingSystemConfigs do not show.
    let paths = ServerTlsPaths {
        certificate: args.certificate.clone(),
        key: args.key.clone(),
        client_ca: None,
        clients: ClientRule::AllExceptAgents,
    };
    let tls = TlsAcceptor::new(paths).map_err(|error| {
        let error = anyhow::Error::new(error);
        print_error(&format!("--tls.certificate, --tls.key: {error:#}"));
        Code::Config
    })?;
    Ok((items, tls))
}

async fn serve(args: &GardenerArgs, items: AgentItems, tls: TlsAcceptor) -> anyhow::Result<()> {
    let shutdown = shutdown::signals().context("cannot install signal handlers")?;
    let mut registry = Registry::with_prefix("virtfleet_gardener_webhook");
    let metrics = WebhookMetrics::register(&mut registry);
    let server_metrics = metrics.server.clone();

    let listener = bind("--address", args.address).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let service = TowerToHyperService::new(router(Webhook::new(items, metrics)));
    let server = Server::new(service, limits(), server_metrics);
    let webhook = tokio::spawn(server.serve(listener, Transport::Tls(Arc::new(tls)), shutdown.clone()));

    let listener = bind("--probe.address", args.probe_address).await?;
    let service = TowerToHyperService::new(probes::router(registry));
    let server = Server::new(service, Limits::default(), ServerMetrics::default());
    let probes = tokio::spawn(server.serve(listener, Transport::Plain, shutdown));
    tracing::info!(%address, image = args.image, "admitting OperatingSystemConfigs");

    webhook.await.context("the server panicked")?;
    probes.await.context("the server of the probes panicked")?;
    tracing::info!("stopped");
    Ok(())
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}
