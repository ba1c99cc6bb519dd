//! Flags of the webhook.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use virtfleet_delivery::osc::PATH_IN_IMAGE;

/// Flags of the webhook.
#[derive(Debug, Clone, Args)]
pub struct GardenerArgs {
    /// What machines get beside the binary: a file of `kind: Delivery` without `agent`. Files that
    /// it names are beside it.
    #[arg(long, value_name = "FILE", default_value = "/etc/virtfleet/delivery.yaml")]
    pub delivery: PathBuf,
    /// The container image with the agent, with a tag or a digest. Machines pull it without
    /// credentials.
    #[arg(long = "agent.image", value_name = "IMAGE")]
    pub image: String,
    /// Path of the agent in the image.
    #[arg(long = "agent.path", value_name = "PATH", default_value = PATH_IN_IMAGE)]
    pub path: String,
    /// Address and port for the API server, over TLS. With port 0 the kernel chooses one.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10916")]
    pub address: SocketAddr,
    /// Certificate and chain of this server in PEM. It is read again when it changes.
    #[arg(
        long = "tls.certificate",
        value_name = "FILE",
        default_value = "/etc/virtfleet/tls/tls.crt"
    )]
    pub certificate: PathBuf,
    /// Its private key in PEM.
    #[arg(
        long = "tls.key",
        value_name = "FILE",
        default_value = "/etc/virtfleet/tls/tls.key"
    )]
    pub key: PathBuf,
    /// Address and port of /healthz, /readyz and /metrics, over HTTP.
    #[arg(
        long = "probe.address",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:10914"
    )]
    pub probe_address: SocketAddr,
    /// Validate the flags and the files that they name, and exit.
    #[arg(long)]
    pub check: bool,
}
