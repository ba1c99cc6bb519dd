//! Starts enrolment.

use std::{sync::Arc, time::Duration};

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::ClientTls;

use super::{
    ConfigMapRecords, Enroller, EnrollerParts, EnrolmentLimits, EnrolmentMetrics, FolderRecords, RecordBook,
    RecordGuard, RecordKeeper, RecordStore, SigningAuthority, keep_records,
};
use crate::{
    ca::CaService,
    config::{CollectorConfig, EnrolmentSettings},
    fleet::Fleet,
    leader::{self, WriteAccess},
};

/// Maximum concurrent enrolments. Most of the time an enrolment waits for its record to be written,
/// and more of them make larger batches.
const MAX_CONCURRENT_ENROLMENTS: usize = 128;
/// Interval between two searches for records of VMs that are gone.
const CLEAN_INTERVAL: Duration = Duration::from_mins(10);

/// Enrolment, running.
#[derive(Debug, Clone)]
pub struct RunningEnrolment {
    /// Enrols agents.
    pub enroller: Arc<Enroller>,
    /// Decides which certificates are used.
    pub guard: Arc<RecordGuard>,
}

/// What enrolment needs of the rest of the collector.
pub struct EnrolmentContext<'a> {
    pub config: &'a CollectorConfig,
    /// `config.enrolment`.
    pub settings: &'a EnrolmentSettings,
    pub fleet: &'a Arc<Fleet>,
    /// The collector's certificate.
    pub tls: Arc<ClientTls>,
    /// The fleet's authority.
    pub ca: CaService,
    /// The infra cluster, with `inventory.cluster`.
    pub infra: Option<Client>,
    /// Whether this process leads; without a cluster it always does.
    pub write_access: WriteAccess,
}

impl RunningEnrolment {
    /// Starts all tasks in `parts`, until `stop`.
    pub fn start(
        context: EnrolmentContext<'_>,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> Self {
        let metrics = EnrolmentMetrics::register(registry);
        let (config, settings) = (context.config, context.settings);
        let (records, write_access);
        if let Some(client) = context.infra {
            let namespace = leader::namespace(config.leader_election.namespace.as_deref(), &client);
            write_access = context.write_access;
            let store = ConfigMapRecords::new(client, &namespace);
            records = keep(store, &write_access, &metrics, parts, stop);
        } else {
            write_access = WriteAccess::fixed(true);
            let store = FolderRecords::new(settings.folder.as_ref());
            records = keep(store, &write_access, &metrics, parts, stop);
        }
        let authority = SigningAuthority::new(context.ca);
        let guard = Arc::new(RecordGuard::new(records.clone(), authority.clone()));
        let enroller = Arc::new(Enroller::new(EnrollerParts {
            fleet: Arc::clone(context.fleet),
            tls: context.tls,
            trust_domain: settings.trust_domain.clone(),
            authority,
            records,
            write_access,
            metrics,
            limits: EnrolmentLimits {
                concurrency: MAX_CONCURRENT_ENROLMENTS,
                timeout: config.scrape.timeout.0,
                lifetime: settings.lifetime.0,
            },
        }));
        parts.spawn(forever(clean(Arc::clone(&enroller), stop.clone())));
        Self { enroller, guard }
    }
}

fn keep<S: RecordStore>(
    store: S,
    write_access: &WriteAccess,
    metrics: &EnrolmentMetrics,
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> RecordBook {
    let (records, keeper) = RecordKeeper::new(store, write_access.clone(), metrics.clone());
    parts.spawn(forever(keep_records(keeper, stop.clone())));
    records
}

async fn clean(enroller: Arc<Enroller>, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(CLEAN_INTERVAL))
        .await
        .is_some()
    {
        enroller.clean().await;
    }
}

async fn forever(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}
