//! The infra cluster of the kubeconfig, for commands that use its API server directly.

use kube::{Client, Config};
use tokio::runtime::Runtime;

use super::{cli::ConnectionArgs, cluster::kubeconfig, fail::Fail};

/// A client of the infra cluster, and the runtime for its requests.
pub(super) struct InfraCluster {
    pub(super) runtime: Runtime,
    pub(super) client: Client,
}

impl InfraCluster {
    /// The cluster of `--kubeconfig` and `--context`, or of the default kubeconfig. Sends no
    /// request.
    ///
    /// # Errors
    /// There is no kubeconfig, or it cannot be used.
    pub(super) fn of(connection: &ConnectionArgs) -> Result<Self, Fail> {
        let start = |error: &dyn std::fmt::Display| Fail::Start(error.to_string());
        let config: Config = kubeconfig::find(connection)?.ok_or_else(|| {
            Fail::Usage(
                "there is no kubeconfig; set --kubeconfig or KUBECONFIG to one of the infra cluster"
                    .to_owned(),
            )
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| start(&error))?;
        let client = runtime.block_on(async { Client::try_from(config) });
        Ok(Self {
            client: client.map_err(|error| start(&error))?,
            runtime,
        })
    }
}
