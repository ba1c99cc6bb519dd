//! Starts all tasks that write to Kubernetes: leader election, label writer, Events, GuestHealth.
//! With the manifest folder nothing is written, but labels are planned.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::labels::plan::plan;
use virtfleet_wire::ids::{ClusterName, VmKey};

use crate::{
    config::CollectorConfig,
    events::{self, EventRecorder},
    fleet::Fleet,
    health::{self, KubeHealth},
    labels::{
        self, Clients, ConfirmationDelays, KubeNodes, LabelMetrics, LabelReconciler, LabelStatusStore,
        ReconcilerParts, ReconcilerSettings,
    },
    leader::{self, Candidate, ElectionTiming, KubeLease, LeaderAddress, LeaderPort, WriteAccess},
    objects::publish::{Sources, publish},
    sources::{self, SourceMetrics, SourceTask},
    tenants::Tenants,
};

/// Maximum time to wait at shutdown until the Lease is released.
const LEASE_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl Clients for Tenants {
    fn client(&self, cluster: &ClusterName) -> Option<kube::Client> {
        Self::client(self, cluster)
    }
}

/// The tasks that write to Kubernetes.
pub struct Writers {
    /// Label status of each VM.
    pub statuses: Arc<LabelStatusStore>,
    /// Whether this process may write.
    pub write_access: WriteAccess,
    leader: Option<JoinHandle<()>>,
}

impl Writers {
    /// Starts all tasks in `parts`, until `stop`. `changes` has the VMs whose labels may have to
    /// change.
    ///
    /// # Errors
    /// A name in `inventory.cluster.namespaces` is not a valid namespace, or
    /// `leaderElection.service` is set and the address of this pod is not known.
    pub fn start(
        config: &CollectorConfig,
        fleet: &Arc<Fleet>,
        tenants: &Arc<Tenants>,
        changes: mpsc::Receiver<Vec<VmKey>>,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let identity = leader::identity();
        let infra = tenants.infra();
        let gauge = leader::register(registry);
        let election = &config.leader_election;
        let (write_access, leader) = match &infra {
            Some(client) if election.enabled => {
                let namespace = leader::namespace(election.namespace.as_deref(), client);
                let lease = KubeLease::new(client.clone(), &namespace, &election.name);
                let seconds = |count: u32| Duration::from_secs(count.into());
                let timing = ElectionTiming {
                    lease: seconds(election.lease_seconds),
                    renew: seconds(election.renew_seconds),
                    retry: seconds(election.retry_seconds),
                };
                let name = format!("{namespace}/{}", election.name);
                let (candidate, write_access) = Candidate::new(lease, name, identity.clone(), timing, gauge);
                if let Some(address) = leader_address(config, client, &namespace)? {
                    parts.spawn(forever(address.publish(write_access.clone(), stop.clone())));
                }
                (write_access, Some(tokio::spawn(candidate.run(stop.clone()))))
            }
            alone => {
                gauge.set(i64::from(alone.is_some()));
                (WriteAccess::fixed(alone.is_some()), None)
            }
        };

        let (events, queued_events) = EventRecorder::channel(Some(&mut *registry));
        let statuses = Arc::<LabelStatusStore>::default();
        let settings = ReconcilerSettings {
            write: config.labels.write,
            per_second: config.labels.requests_per_second,
            parallel: config.labels.parallel as usize,
            recheck: config.labels.recheck.0,
            confirm: ConfirmationDelays {
                removal: config.labels.confirm_removal.0,
                change: config.labels.confirm_change.0,
            },
        };
        let reconciler = LabelReconciler::new(ReconcilerParts {
            fleet: Arc::clone(fleet),
            writer: KubeNodes::new(Arc::clone(tenants)),
            write_access: write_access.clone(),
            statuses: Arc::clone(&statuses),
            events: events.clone(),
            metrics: LabelMetrics::register(registry),
            settings,
            plan,
        });
        parts.spawn(forever(labels::run(reconciler, changes, stop.clone())));
        if let Some(client) = infra {
            let namespaces = config
                .inventory
                .cluster
                .iter()
                .flat_map(|cluster| &cluster.namespaces);
            let namespaces = namespaces.map(|name| name.parse().context("inventory.cluster.namespaces"));
            let store = KubeHealth::new(client.clone(), namespaces.collect::<anyhow::Result<_>>()?);
            parts.spawn(forever(health::run(
                Arc::clone(fleet),
                Arc::clone(&statuses),
                store,
                write_access.clone(),
                events.clone(),
                stop.clone(),
            )));
            let cluster = config.inventory.cluster.as_ref();
            let interval = cluster.and_then(|cluster| cluster.source_interval);
            let task = SourceTask {
                client: client.clone(),
                tenants: Arc::clone(tenants),
                fleet: Arc::clone(fleet),
                metrics: SourceMetrics::register(registry),
                write_access: write_access.clone(),
                interval: interval.map_or(sources::DEFAULT_INTERVAL, |interval| interval.0),
            };
            parts.spawn(forever(sources::run(task, stop.clone())));
            let statuses_of = Sources {
                tenants: Arc::clone(tenants),
                fleet: Arc::clone(fleet),
                statuses: Arc::clone(&statuses),
                events: events.clone(),
            };
            parts.spawn(forever(publish(statuses_of, write_access.clone(), stop.clone())));
            let follow = events::follow_tenants(events.clone(), Arc::clone(tenants), stop.clone());
            parts.spawn(forever(follow));
        }
        let record = events::run(
            events,
            queued_events,
            Arc::clone(tenants),
            write_access.clone(),
            identity,
            stop.clone(),
        );
        parts.spawn(forever(record));
        Ok(Self {
            statuses,
            write_access,
            leader,
        })
    }

    /// After `stop`: returns when the Lease is released, so that the next leader need not wait
    /// until it expires.
    pub async fn end(self) {
        if let Some(leader) = self.leader
            && tokio::time::timeout(LEASE_RELEASE_TIMEOUT, leader).await.is_err()
        {
            tracing::warn!("the Lease was not released in time; the next leader starts when it expires");
        }
    }
}

/// What publishes the leader's address; none without `leaderElection.service`.
fn leader_address(
    config: &CollectorConfig,
    client: &kube::Client,
    namespace: &str,
) -> anyhow::Result<Option<LeaderAddress>> {
    let Some(service) = &config.leader_election.service else {
        return Ok(None);
    };
    let api = LeaderPort {
        name: "api",
        setting: "server.address",
        address: &config.server.address,
    };
    let ingest = config.ingest.as_ref().map(|ingest| LeaderPort {
        name: "ingest",
        setting: "ingest.address",
        address: &ingest.address,
    });
    let ports: Vec<_> = std::iter::once(api).chain(ingest).collect();
    let address = LeaderAddress::from_environment(client.clone(), namespace, service, &ports)?;
    Ok(Some(address))
}

async fn forever(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}
