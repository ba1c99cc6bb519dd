//! Finds the collector: `--server`, else the cluster of the kubeconfig, else this machine.

use std::sync::Arc;

use super::{
    cli::ConnectionArgs,
    cluster::{ClusterTransport, kubeconfig},
    direct::DirectTransport,
    fail::Fail,
    transport::CollectorTransport,
};

/// The collector on this machine, or the one that `kubectl port-forward` forwards to.
const LOCAL_SERVER: &str = "http://127.0.0.1:10912";

pub(super) fn transport(connection: &ConnectionArgs) -> Result<Arc<dyn CollectorTransport>, Fail> {
    if let Some(server) = connection.server.as_deref().filter(|server| !server.is_empty()) {
        if let Some(flag) = connection.cluster_flag() {
            return Err(Fail::Usage(format!(
                "{flag} has no effect with --server; remove one of them"
            )));
        }
        return Ok(Arc::new(DirectTransport::new(server, connection)?));
    }
    // A client certificate is for a URL: the collector of a cluster gets a token.
    if connection.cert.is_none()
        && let Some(kubeconfig) = kubeconfig::find(connection)?
    {
        return Ok(Arc::new(ClusterTransport::new(kubeconfig, connection)?));
    }
    let account = connection.service_account.as_ref().map(|_| "--service-account");
    if let Some(flag) = connection.cluster_flag().or(account) {
        let message = format!("{flag} requires a kubeconfig; set --kubeconfig or KUBECONFIG");
        return Err(Fail::Usage(message));
    }
    Ok(Arc::new(DirectTransport::new(LOCAL_SERVER, connection)?))
}
