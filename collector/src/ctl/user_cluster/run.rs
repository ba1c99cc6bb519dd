//! Chooses among the three verbs.

use super::{add::Addition, args::ClusterCommand, clusters, remove, rotate};
use crate::ctl::{connection_args::ConnectionArgs, console::Console, fail::Fail};

pub(in crate::ctl) fn run(
    command: &ClusterCommand,
    connection: &ConnectionArgs,
    console: &mut Console<'_>,
) -> Result<(), Fail> {
    // Fails only if a provider is already installed.
    rustls::crypto::ring::default_provider().install_default().ok();
    let (clusters, dry_run) = match command {
        ClusterCommand::Add {
            clusters, dry_run, ..
        }
        | ClusterCommand::Remove {
            clusters, dry_run, ..
        } => (clusters, *dry_run),
        ClusterCommand::Rotate { clusters, .. } => (clusters, false),
    };
    let name: Result<virtfleet_wire::ids::ClusterName, _> = clusters.name.parse();
    name.map_err(|error| Fail::Usage(error.to_string()))?;
    // Reads the kubeconfig with a runtime of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Fail::Start(error.to_string()))?;
    let config = clusters::infra_config(clusters, connection)?;
    runtime.block_on(async {
        let infra = clusters::place("infra cluster", config, dry_run)?;
        match command {
            ClusterCommand::Add { spec, token, .. } => {
                let user = clusters::user(clusters, token, dry_run, console).await?;
                Addition {
                    clusters,
                    spec,
                    token,
                    infra: &infra,
                    user: &user,
                }
                .run(console)
                .await
            }
            ClusterCommand::Rotate {
                token, wait_timeout, ..
            } => {
                let user = clusters::user(clusters, token, false, console).await?;
                rotate::rotate(clusters, token, &infra, &user, wait_timeout.0, console).await
            }
            ClusterCommand::Remove { yes, infra_only, .. } => {
                remove::remove(clusters, &infra, *yes, *infra_only, console).await
            }
        }
    })
}
