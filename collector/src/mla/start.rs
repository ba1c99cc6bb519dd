//! Starts what belongs to MLA.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    metrics,
    settings::{StreamDefaults, StreamRegistry, follow_fleet},
    status::MlaStatus,
};
use crate::{
    clock::unix_seconds, config::CollectorConfig, fleet::Fleet, leader::WriteAccess, tenants::Tenants,
};

/// The status of all streams, with its metrics.
pub fn status(registry: &mut Registry) -> Arc<MlaStatus> {
    let status = Arc::new(MlaStatus::default());
    metrics::register(&status, registry);
    status
}

/// Whether this process feeds the streams. Without an infra cluster there is no election, so it
/// does.
pub fn leadership(write_access: &WriteAccess, tenants: &Tenants) -> WriteAccess {
    match tenants.infra() {
        Some(_) => write_access.clone(),
        None => WriteAccess::fixed(true),
    }
}

/// Starts the tasks that follow the settings of streams, until `stop`. The inventory passes those
/// of user clusters to the registry.
pub fn start(
    config: &CollectorConfig,
    fleet: &Arc<Fleet>,
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> Arc<StreamRegistry> {
    let streams = Arc::new(StreamRegistry::new(StreamDefaults::new(config), unix_seconds));
    parts.spawn(note(Arc::clone(fleet), Arc::clone(&streams)));
    if let Some(mla) = config.mla.clone().filter(|mla| mla.fleet.is_some()) {
        let follow = follow_fleet(mla, Arc::clone(&streams), unix_seconds, stop.clone());
        parts.spawn(async {
            follow.await;
            // It ends with `stop`, and the collector then ends this task, too.
            std::future::pending().await
        });
    }
    streams
}

/// Passes the findings to the fleet.
async fn note(fleet: Arc<Fleet>, streams: Arc<StreamRegistry>) -> anyhow::Result<()> {
    let mut findings = streams.findings();
    while findings.changed().await.is_ok() {
        let now = findings.borrow_and_update().clone();
        fleet.set_mla_settings_findings(now);
    }
    Ok(())
}
