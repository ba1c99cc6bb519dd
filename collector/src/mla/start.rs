//! Starts what belongs to MLA.

use std::{path::Path, sync::Arc};

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    metrics,
    section::{MlaSection, SectionFollower},
    settings::{StreamDefaults, StreamRegistry, follow_fleet},
    status::MlaStatus,
};
use crate::{
    clock::unix_seconds, config::CollectorConfig, fleet::Fleet, leader::WriteAccess, tenants::Tenants,
};

/// What the streams follow.
pub(crate) struct MlaSources {
    /// The settings of all streams.
    pub(crate) registry: Arc<StreamRegistry>,
    pub(crate) section: MlaSection,
}

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

/// Starts the tasks that follow the settings of streams, until `stop`: those of the collector are
/// in `file`. The inventory passes those of user clusters to the registry.
pub(crate) fn start(
    config: &CollectorConfig,
    file: &Path,
    fleet: &Arc<Fleet>,
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> MlaSources {
    let registry = Arc::new(StreamRegistry::new(StreamDefaults::new(config), unix_seconds));
    parts.spawn(note(Arc::clone(fleet), Arc::clone(&registry)));
    let follower = SectionFollower::new(file, config, Arc::clone(&registry));
    let section = follower.section();
    let follow = follow_fleet(section.clone(), Arc::clone(&registry), unix_seconds, stop.clone());
    let follower = follower.run(stop.clone());
    parts.spawn(async move {
        tokio::join!(follow, follower);
        // They end with `stop`, and the collector then ends this task, too.
        std::future::pending().await
    });
    MlaSources { registry, section }
}

/// Passes the findings to the fleet.
async fn note(fleet: Arc<Fleet>, streams: Arc<StreamRegistry>) -> anyhow::Result<()> {
    let mut findings = streams.findings();
    while findings.changed().await.is_ok() {
        let now = findings.borrow_and_update().clone();
        fleet.change(|index| index.set_mla_settings_findings(now));
    }
    Ok(())
}
