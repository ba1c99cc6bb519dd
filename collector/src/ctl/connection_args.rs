//! Options of the connection to the collector.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use virtfleet_wire::duration::Span;

/// Connection to the collector.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct ConnectionArgs {
    /// The collector's address [default: found through the kubeconfig, else http://127.0.0.1:10912]
    #[arg(long, global = true, env = "VIRTFLEET_SERVER", value_name = "URL")]
    pub(super) server: Option<String>,
    /// PEM file with the CA of the collector's certificate (https only)
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,
    /// PEM file with the client certificate, if the collector requires one
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// PEM file with the client certificate's key
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// File with a bearer token for the collector
    #[arg(long, global = true, env = "VIRTFLEET_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The kubeconfig [default: KUBECONFIG, else ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// The collector's namespace in the cluster of the kubeconfig
    #[arg(
        long,
        global = true,
        env = "VIRTFLEET_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = DEFAULT_NAMESPACE
    )]
    pub(super) collector_namespace: String,
    /// Read as this ServiceAccount of the cluster, with a token that is requested for the collector
    #[arg(
        long,
        global = true,
        env = "VIRTFLEET_SERVICE_ACCOUNT",
        value_name = "[NAMESPACE/]NAME",
        conflicts_with = "token_file"
    )]
    pub(super) service_account: Option<String>,
    /// Audience of requested tokens: one of server.access.tokenReview.audiences of the collector
    #[arg(
        long,
        global = true,
        value_name = "AUDIENCE",
        default_value = "virtfleet-collector"
    )]
    pub(super) audience: String,
    /// The way to the collector in the cluster [default: by the kind of token]
    #[arg(long, global = true, value_enum)]
    pub(super) via: Option<Via>,
    /// Timeout of a request, e.g. 10s
    #[arg(long, global = true, value_name = "TIME", default_value = "10s")]
    pub(super) timeout: Span,
}

/// Default of `--collector-namespace`.
const DEFAULT_NAMESPACE: &str = "virtfleet";

/// A way to the collector in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Via {
    /// The API server's proxy to the collector's Service
    ServiceProxy,
    /// A port-forward to a pod of the collector
    PortForward,
}

impl ConnectionArgs {
    /// Whether requests go to a URL, whatever the kubeconfig is: that of `--server`, or with the
    /// client certificate of `--cert`.
    pub(super) fn is_direct(&self) -> bool {
        let server = self.server.as_deref();
        self.cert.is_some() || server.is_some_and(|server| !server.is_empty())
    }

    /// A flag that chooses a cluster or a way in it, if one is given.
    pub(super) fn cluster_flag(&self) -> Option<&'static str> {
        let given = [
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--context", self.context.is_some()),
            ("--via", self.via.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }
}
